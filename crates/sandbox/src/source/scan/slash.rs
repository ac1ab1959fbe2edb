//! Decides from the tokens before a slash whether it divides or starts a regular expression, where they suffice for that.

use super::{Bracket, Kind, ScanStep, Scanner, Token, is_word_byte};
use crate::source::lines::terminator;
use crate::source::words::{is_keyword, takes_header};

/// How far the scanner looks for the end of a possible regular expression.
const REGEX_LOOKAHEAD_BYTES: usize = 200;

impl Scanner<'_> {
    /// Reads the slash here, or returns `ScanStep::Slash` if the tokens before it do not decide what it is.
    pub(super) fn read_slash(&mut self) -> ScanStep {
        if self.previous.is_some_and(|previous| previous.kind == Kind::Dot) {
            return ScanStep::Error(self.position);
        }
        match self.divides() {
            Some(true) => self.read_division(),
            Some(false) => self.read_regex(),
            // A regular expression has a second slash on its line.
            None => match self.regex_end(REGEX_LOOKAHEAD_BYTES) {
                Ok(None) => self.read_division(),
                _ => ScanStep::Slash(self.position),
            },
        }
    }

    /// Reads the slash here as a division.
    pub(in crate::source) fn read_division(&mut self) -> ScanStep {
        self.token(Kind::Operator, self.position + 1)
    }

    /// Reads the slash here as the start of a regular expression.
    pub(in crate::source) fn read_regex(&mut self) -> ScanStep {
        match self.regex_end(usize::MAX) {
            Ok(Some(end)) => self.token(Kind::Literal, end),
            _ => ScanStep::Error(self.position),
        }
    }

    /// Returns whether the slash here divides; `None` if that depends on the grammar.
    ///
    /// After a type, TypeScript's rules apply: `x as T? / 2`, `f<T> / 2` and `x! / 2` divide, and any keyword may be
    /// the name of a type.
    fn divides(&self) -> Option<bool> {
        let Some(previous) = self.previous else { return Some(false) };
        let property = self.previous2.is_some_and(|before| before.kind == Kind::Dot);
        match previous.kind {
            Kind::Word if property && !self.newline => Some(true),
            Kind::Close(Bracket::Brace | Bracket::PerhapsHeader) => None,
            Kind::Close(Bracket::Header) => Some(false),
            _ if self.may_end_expression(previous) => (!self.newline).then_some(true),
            Kind::Bang => {
                let prefix = match self.previous2 {
                    Some(Token { kind: Kind::Bang, .. }) => self
                        .previous3
                        .is_none_or(|earlier| earlier.kind != Kind::Word && self.expression_must_follow(earlier, None)),
                    Some(before) => self.expression_must_follow(before, self.previous3),
                    None => true,
                };
                prefix.then_some(false)
            }
            _ => self.expression_must_follow(previous, self.previous2).then_some(false),
        }
    }

    /// Returns whether only an expression or an error can follow `token`, so that a slash after it cannot divide; `before`
    /// is the token before it.
    fn expression_must_follow(&self, token: Token, before: Option<Token>) -> bool {
        match token.kind {
            Kind::Word if matches!(self.token_bytes(token), b"return" | b"case") => before.is_none_or(|before| {
                before.kind == Kind::Colon || self.next_word_starts_statement(before, token.newline)
            }),
            Kind::Question => self.assertion_depth.is_none(),
            Kind::Open(_) | Kind::Comma | Kind::Semicolon | Kind::Colon | Kind::Less => true,
            Kind::Arrow | Kind::Operator => true,
            _ => false,
        }
    }

    /// Returns the end of the regular expression that starts here: `None` if its line ends first, `Err` if it is longer
    /// than `limit`.
    fn regex_end(&self, limit: usize) -> Result<Option<usize>, ()> {
        let mut end = self.position + 1;
        let mut in_class = false;
        loop {
            if end - self.position > limit {
                return Err(());
            }
            if self.byte(end) == Some(b'\r') || terminator(self.bytes, end).is_some() {
                return Ok(None);
            }
            match self.byte(end) {
                None => return Ok(None),
                Some(b'\\') => {
                    end += 1;
                    if self.byte(end).is_none_or(|byte| byte == b'\r') || terminator(self.bytes, end).is_some() {
                        return Ok(None);
                    }
                }
                Some(b'[') => in_class = true,
                Some(b']') => in_class = false,
                Some(b'/') if !in_class => break,
                Some(_) => {}
            }
            end += 1;
        }
        end += 1;
        while self.byte(end).is_some_and(is_word_byte) {
            end += 1;
        }
        Ok(Some(end))
    }

    /// Returns the kind of the parenthesis that opens here.
    ///
    /// In `x as while` the word names a type, and a parenthesis on the next line is an expression. So a parenthesis after
    /// such a word is surely a header only where the word cannot be a type.
    pub(super) fn opening_parenthesis(&self) -> Bracket {
        let (Some(previous), before) = (self.previous, self.previous2) else { return Bracket::Paren };
        if previous.kind != Kind::Word || before.is_some_and(|token| token.kind == Kind::Dot) {
            return Bracket::Paren;
        }
        match (self.token_bytes(previous), before) {
            (b"await", Some(before)) if self.token_bytes(before) == b"for" => Bracket::PerhapsHeader,
            (word, None) if takes_header(word) => Bracket::Header,
            (word, Some(before)) if takes_header(word) => {
                if self.next_word_starts_statement(before, previous.newline)
                    || matches!(self.token_bytes(before), b"else" | b"do")
                {
                    Bracket::Header
                } else {
                    Bracket::PerhapsHeader
                }
            }
            _ => Bracket::Paren,
        }
    }

    /// Returns whether a word after `token` starts a statement, and cannot be part of a type that `token` belongs to.
    /// `newline` says whether a line ends between them.
    fn next_word_starts_statement(&self, token: Token, newline: bool) -> bool {
        match token.kind {
            Kind::Semicolon
            | Kind::Open(Bracket::Brace)
            | Kind::Close(Bracket::Brace | Bracket::Paren | Bracket::Header | Bracket::PerhapsHeader) => true,
            _ => newline && self.may_end_expression(token),
        }
    }

    /// Returns whether the token may be the last one of an expression.
    pub(in crate::source) fn may_end_expression(&self, token: Token) -> bool {
        match token.kind {
            Kind::Literal | Kind::Close(Bracket::Paren | Bracket::Square | Bracket::Brace | Bracket::Template) => true,
            Kind::Word => !is_keyword(self.token_bytes(token)),
            _ => false,
        }
    }
}
