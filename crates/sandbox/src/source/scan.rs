//! Splits hostile text into tokens, without recursion and without guessing.
//!
//! Only one thing about JavaScript's tokens depends on its grammar: whether a slash divides or starts a regular
//! expression. A wrong guess would let an attacker hide brackets from the guard in what looks like a string, so the
//! scanner never guesses. It returns `Slash`, and the caller follows both readings.

mod literal;
mod slash;

/// The result of a scanner step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScanStep {
    Token(Token),
    /// A slash that divides or starts a regular expression: continue with `read_division` and with `read_regex`.
    Slash(usize),
    /// A parser fails here, regardless of what follows.
    Error(usize),
    /// A closing bracket with none open: it would end the wrapper function, and the parser would continue outside it.
    Stray(usize),
    /// From this offset on, the scanner does not know what the text means.
    Unsure(usize),
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) start: usize,
    pub(super) end: usize,
    /// Whether a line ends between the previous token and this one.
    pub(super) newline: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Word,
    /// A number, a string or a regular expression.
    Literal,
    Open(Bracket),
    Close(Bracket),
    Comma,
    Semicolon,
    Colon,
    Question,
    Less,
    Greater,
    Bang,
    Dot,
    Arrow,
    /// `++` or `--`, before or after their operand.
    Increment,
    Operator,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bracket {
    Paren,
    /// The parentheses after `if`, `for`, `while` and `with`.
    Header,
    /// Parentheses after one of those words in a position where it may name a type instead.
    PerhapsHeader,
    Square,
    Brace,
    /// From the opening backtick to the closing one.
    Template,
    /// From `${` to its `}`.
    Substitution,
}

#[derive(Debug, Clone)]
pub(super) struct Scanner<'s> {
    text: &'s str,
    bytes: &'s [u8],
    position: usize,
    open: Vec<Bracket>,
    /// The last token.
    previous: Option<Token>,
    /// The token before `previous`.
    previous2: Option<Token>,
    /// The token before `previous2`.
    previous3: Option<Token>,
    /// Whether a line ended since the previous token.
    newline: bool,
    /// The number of brackets that were open at an `as` or `satisfies` whose type may not have ended yet.
    assertion_depth: Option<usize>,
}

impl<'s> Scanner<'s> {
    pub(super) fn new(text: &'s str) -> Self {
        Self {
            text,
            bytes: text.as_bytes(),
            position: 0,
            open: Vec::new(),
            previous: None,
            previous2: None,
            previous3: None,
            newline: true,
            assertion_depth: None,
        }
    }

    /// Returns the text of a token of any kind.
    pub(super) fn token_bytes(&self, token: Token) -> &'s [u8] {
        self.bytes.get(token.start..token.end).unwrap_or_default()
    }

    /// Returns the offset after the last token.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// Returns whether a bracket or a template is open after the last token.
    pub(super) fn has_open_bracket(&self) -> bool {
        !self.open.is_empty()
    }

    /// Returns the token two before the one that `next` returned last.
    pub(super) fn previous3(&self) -> Option<Token> {
        self.previous3
    }

    pub(super) fn next(&mut self) -> ScanStep {
        if self.in_template() {
            return self.template();
        }
        if let Err(unsure) = self.skip_trivia() {
            return ScanStep::Unsure(unsure);
        }
        let start = self.position;
        let Some(first) = self.byte(start) else { return ScanStep::End };
        match first {
            b'"' | b'\'' => self.string(first),
            b'`' => self.opened(Bracket::Template, 1),
            b'/' => self.read_slash(),
            b'(' => {
                let bracket = self.opening_parenthesis();
                self.opened(bracket, 1)
            }
            b'[' => self.opened(Bracket::Square, 1),
            b'{' => self.opened(Bracket::Brace, 1),
            b')' | b']' | b'}' => self.closed(first),
            b'0'..=b'9' => self.number(),
            b'.' if self.byte(start + 1).is_some_and(is_digit) => self.number(),
            b'#' if self.byte(start + 1).is_some_and(is_word_byte) => self.name(start + 1),
            _ if is_word_byte(first) => self.name(start),
            0x80.. => self.name(start),
            b'\\' => ScanStep::Unsure(start),
            _ => self.punctuation(first),
        }
    }

    /// Skips a token that oxc consumes as an arrow without checking it, so that it has no other meaning.
    ///
    /// This happens after the parameters of a function type: in `let f: (a: A) { b`, oxc takes the `{` for the arrow.
    /// The token ends where oxc's tokenizer ends it: a bracket opens and closes nothing, and code follows the start of
    /// a template.
    pub(super) fn swallow(&mut self) -> ScanStep {
        if let Err(unsure) = self.skip_trivia() {
            return ScanStep::Unsure(unsure);
        }
        let start = self.position;
        let Some(first) = self.byte(start) else { return ScanStep::End };
        let found = match first {
            b'(' | b')' | b'[' | b']' | b'{' | b'}' | b'/' => return self.token(Kind::Arrow, start + 1),
            b'`' => return self.swallow_template_start(),
            _ => self.next(),
        };
        match found {
            ScanStep::Token(mut token) => {
                token.kind = Kind::Arrow;
                self.previous = Some(token);
                ScanStep::Token(token)
            }
            // What the tokenizer does with an error, and where it continues, is not known.
            _ => ScanStep::Unsure(start),
        }
    }

    /// Skips a template up to its end or its first substitution, as an arrow.
    fn swallow_template_start(&mut self) -> ScanStep {
        let mut end = self.position + 1;
        loop {
            match self.byte(end) {
                None => return ScanStep::Unsure(self.position),
                Some(b'\\') => end += 2,
                Some(b'`') => return self.token(Kind::Arrow, end + 1),
                Some(b'$') if self.byte(end + 1) == Some(b'{') => return self.token(Kind::Arrow, end + 2),
                Some(_) => end += 1,
            }
        }
    }

    fn byte(&self, offset: usize) -> Option<u8> {
        self.bytes.get(offset).copied()
    }

    fn starts_with(&self, prefix: &[u8]) -> bool {
        self.bytes.get(self.position..).is_some_and(|rest| rest.starts_with(prefix))
    }

    fn token(&mut self, kind: Kind, end: usize) -> ScanStep {
        let token = Token { kind, start: self.position, end, newline: self.newline };
        if kind == Kind::Word && matches!(self.token_bytes(token), b"as" | b"satisfies") {
            self.assertion_depth = Some(self.assertion_depth.unwrap_or(usize::MAX).min(self.open.len()));
        } else if self.assertion_depth.is_some_and(|depth| self.open.len() < depth)
            || kind == Kind::Semicolon && self.assertion_depth == Some(self.open.len())
        {
            self.assertion_depth = None;
        }
        self.previous3 = self.previous2;
        self.previous2 = self.previous.replace(token);
        self.newline = false;
        self.position = end;
        ScanStep::Token(token)
    }

    /// Reads the rest of a name from offset `from`. Invalid characters count as part of it: the parser rejects them
    /// anyway.
    fn name(&mut self, from: usize) -> ScanStep {
        let mut end = from;
        loop {
            end = match self.byte(end) {
                Some(byte) if is_word_byte(byte) => end + 1,
                Some(0x80..) => match self.char_at(end) {
                    Some(found) if !is_space(found) => end + found.len_utf8(),
                    _ => break,
                },
                // An escape may spell a keyword.
                Some(b'\\') => return ScanStep::Unsure(end),
                _ => break,
            }
        }
        self.token(Kind::Word, end)
    }

    fn char_at(&self, offset: usize) -> Option<char> {
        self.text.get(offset..)?.chars().next()
    }

    fn opened(&mut self, bracket: Bracket, length: usize) -> ScanStep {
        self.open.push(bracket);
        self.token(Kind::Open(bracket), self.position + length)
    }

    fn closed(&mut self, byte: u8) -> ScanStep {
        let matches = match self.open.last() {
            Some(Bracket::Paren | Bracket::Header | Bracket::PerhapsHeader) => byte == b')',
            Some(Bracket::Square) => byte == b']',
            Some(Bracket::Brace | Bracket::Substitution) => byte == b'}',
            Some(Bracket::Template) | None => false,
        };
        match self.open.pop() {
            Some(bracket) if matches => self.token(Kind::Close(bracket), self.position + 1),
            Some(_) => ScanStep::Error(self.position),
            None => ScanStep::Stray(self.position),
        }
    }

    fn punctuation(&mut self, first: u8) -> ScanStep {
        let second = self.byte(self.position + 1);
        let (kind, length) = match (first, second) {
            (b',', _) => (Kind::Comma, 1),
            (b';', _) => (Kind::Semicolon, 1),
            (b':', _) => (Kind::Colon, 1),
            (b'=', Some(b'>')) => (Kind::Arrow, 2),
            (b'?', Some(b'?')) | (b'<', Some(b'=')) => (Kind::Operator, 2),
            (b'?', Some(b'.')) if !self.byte(self.position + 2).is_some_and(is_digit) => (Kind::Dot, 2),
            (b'?', _) => (Kind::Question, 1),
            (b'<', _) => (Kind::Less, 1),
            (b'>', _) => (Kind::Greater, 1),
            (b'!', _) => (Kind::Bang, 1),
            (b'.', Some(b'.')) if self.starts_with(b"...") => (Kind::Operator, 3),
            (b'.', _) => (Kind::Dot, 1),
            (b'+', Some(b'+')) | (b'-', Some(b'-')) => (Kind::Increment, 2),
            _ => (Kind::Operator, 1),
        };
        self.token(kind, self.position + length)
    }
}

fn is_digit(byte: u8) -> bool {
    byte.is_ascii_digit()
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$'
}

fn is_space(character: char) -> bool {
    character.is_whitespace() || matches!(character, '\u{FEFF}' | '\u{200B}')
}
