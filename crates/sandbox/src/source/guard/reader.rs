//! One reading of a text: the open brackets, and the parsing cost so far.

use super::level::Level;
use super::{MAX_DEPTH, MAX_NESTING, MAX_WORK};
use crate::source::Language;
use crate::source::scan::{Bracket, Kind, Scanner, Token};
use crate::source::words::continues;

/// The offset at which a bound was exceeded.
pub(super) struct TooDeep(pub(super) usize);

/// What oxc may do with the next token without checking it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doubt {
    No,
    /// After the parameters of a function type, oxc takes any token for the arrow.
    Arrow,
    /// At the start of the options of an `import` type, oxc takes any token for the key, and panics if that is a
    /// template with an escape.
    Key,
}

#[derive(Clone)]
pub(super) struct Reader<'s> {
    pub(super) scanner: Scanner<'s>,
    language: Language,
    /// The level of the text itself, and one for each open bracket.
    levels: Vec<Level>,
    previous: Option<Token>,
    /// The number of consecutive `static` words: oxc looks past all of them each time.
    statics: u64,
    doubt: Doubt,
}

impl<'s> Reader<'s> {
    pub(super) fn new(source: &'s str, language: Language) -> Self {
        Self {
            scanner: Scanner::new(source),
            language,
            levels: vec![Level::default()],
            previous: None,
            statics: 0,
            doubt: Doubt::No,
        }
    }

    pub(super) fn level(&self) -> Level {
        self.levels.last().copied().unwrap_or_default()
    }

    pub(super) fn doubt(&self) -> Doubt {
        self.doubt
    }

    /// Adds the token that the scanner found, and its cost to `work`.
    pub(super) fn token(&mut self, token: Token, work: &mut u64) -> Result<(), TooDeep> {
        let before = self.previous.replace(token);
        let closed = if matches!(token.kind, Kind::Close(_)) { self.levels.pop() } else { None };
        let Some(level) = self.levels.last_mut() else { return Err(TooDeep(token.start)) };
        self.doubt = Doubt::No;
        if let Some(closed) = closed {
            level.absorb(&closed);
            if closed.is_function_type() {
                self.doubt = Doubt::Arrow;
            }
            if token.kind == Kind::Close(Bracket::Substitution) {
                // The substitutions of one template are siblings.
                level.end_segment();
            }
        } else {
            if before.is_some_and(|before| ends_segment(&self.scanner, level, before, token)) {
                level.end_segment();
            }
            level.count(&self.scanner, self.language, before, token);
        }
        let level = *level;
        *work = work.saturating_add(self.cost(before, token).saturating_mul(level.readings()));
        if level.height() > MAX_DEPTH || self.levels.len() > MAX_NESTING || *work > MAX_WORK {
            return Err(TooDeep(token.start));
        }
        if let Kind::Open(bracket) = token.kind {
            if level.is_import() && bracket == Bracket::Brace {
                self.doubt = Doubt::Key;
            }
            self.levels.push(level.inside(&self.scanner, self.language, before, bracket));
        }
        Ok(())
    }

    /// Returns the cost of reading the token, and the white space and comments before it.
    fn cost(&mut self, before: Option<Token>, token: Token) -> u64 {
        let gap = token.end - before.map_or(0, |before| before.end);
        let mut cost = 1 + gap as u64 / 16;
        if token.kind == Kind::Literal && self.scanner.token_bytes(token).starts_with(b"0") {
            // oxc converts a long hexadecimal BigInt to decimal, which takes quadratic time.
            let length = (token.end - token.start) as u64;
            cost += length * length / 65_536;
        }
        if token.kind == Kind::Word && self.scanner.token_bytes(token) == b"static" {
            self.statics += 1;
            cost += self.statics;
        } else {
            self.statics = 0;
        }
        cost
    }
}

/// Returns whether a statement or a list element certainly ends between two tokens of one level.
///
/// Nothing that follows may continue it: `else` after a semicolon does, and so does everything after the parentheses of
/// an `if`. A comma ends nothing while a list of type arguments or a statement that contains another may be open.
fn ends_segment(scanner: &Scanner<'_>, level: &Level, before: Token, token: Token) -> bool {
    let word: &[u8] = if token.kind == Kind::Word { scanner.token_bytes(token) } else { b"" };
    let continues_do = word == b"while" && level.has_do();
    match before.kind {
        Kind::Comma => !level.outlives_comma(),
        Kind::Semicolon => word != b"else" && !continues_do,
        _ if token.kind != Kind::Word || continues(word) || continues_do => false,
        Kind::Close(Bracket::Brace) => true,
        _ => token.newline && scanner.may_end_expression(before),
    }
}
