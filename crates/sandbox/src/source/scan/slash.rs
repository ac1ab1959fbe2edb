//! Decides whether a slash divides or starts a regular expression, as far as tokens tell.

use super::{Bracket, Kind, Scanned, Scanner, Token, is_word_byte};
use crate::source::lines::terminator;
use crate::source::words::{is_keyword, takes_header};

/// How far the scanner looks for the end of a possible regular expression.
const REGEX_LOOKAHEAD: usize = 200;

impl Scanner<'_> {
    pub(super) fn slash(&mut self) -> Scanned {
        if self.previous.is_some_and(|previous| previous.kind == Kind::Dot) {
            return Scanned::Error(self.position);
        }
        match self.divides() {
            Some(true) => self.divide(),
            Some(false) => self.regex(),
            // Without a second slash on the line, it is not a regular expression.
            None => match self.regex_end(REGEX_LOOKAHEAD) {
                Ok(None) => self.divide(),
                _ => Scanned::Slash(self.position),
            },
        }
    }

    /// Reads the slash here as a division.
    pub(in crate::source) fn divide(&mut self) -> Scanned {
        self.token(Kind::Operator, self.position + 1)
    }

    /// Reads the slash here as the start of a regular expression.
    pub(in crate::source) fn regex(&mut self) -> Scanned {
        match self.regex_end(usize::MAX) {
            Ok(Some(end)) => self.token(Kind::Literal, end),
            _ => Scanned::Error(self.position),
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
            _ if self.is_operand(previous) => (!self.newline).then_some(true),
            Kind::Bang => {
                let prefix = match self.previous2 {
                    Some(Token { kind: Kind::Bang, .. }) => self
                        .previous3
                        .is_none_or(|earlier| earlier.kind != Kind::Word && self.starts_expression(earlier, None)),
                    Some(before) => self.starts_expression(before, self.previous3),
                    None => true,
                };
                prefix.then_some(false)
            }
            _ => self.starts_expression(previous, self.previous2).then_some(false),
        }
    }

    /// Returns whether only an expression or an error can follow the token; `before` is the token before it.
    fn starts_expression(&self, token: Token, before: Option<Token>) -> bool {
        match token.kind {
            Kind::Word if matches!(self.token_bytes(token), b"return" | b"case") => {
                before.is_none_or(|before| before.kind == Kind::Colon || self.ends_statement(before, token.newline))
            }
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

    /// Returns which kind of parentheses opens here.
    ///
    /// In `x as while` the word names a type, and a parenthesis on the next line is an expression. So the word counts
    /// as a statement only where no type is possible.
    pub(super) fn parenthesis(&self) -> Bracket {
        let (Some(previous), before) = (self.previous, self.previous2) else { return Bracket::Paren };
        if previous.kind != Kind::Word || before.is_some_and(|token| token.kind == Kind::Dot) {
            return Bracket::Paren;
        }
        match (self.token_bytes(previous), before) {
            (b"await", Some(before)) if self.token_bytes(before) == b"for" => Bracket::PerhapsHeader,
            (word, None) if takes_header(word) => Bracket::Header,
            (word, Some(before)) if takes_header(word) => {
                if self.ends_statement(before, previous.newline) || matches!(self.token_bytes(before), b"else" | b"do")
                {
                    Bracket::Header
                } else {
                    Bracket::PerhapsHeader
                }
            }
            _ => Bracket::Paren,
        }
    }

    /// Returns whether a word after `token` cannot be part of a type that `token` belongs to.
    fn ends_statement(&self, token: Token, newline: bool) -> bool {
        match token.kind {
            Kind::Semicolon
            | Kind::Open(Bracket::Brace)
            | Kind::Close(Bracket::Brace | Bracket::Paren | Bracket::Header | Bracket::PerhapsHeader) => true,
            _ => newline && self.is_operand(token),
        }
    }

    /// Returns whether an expression may end with the token, so that it need not continue.
    pub(in crate::source) fn is_operand(&self, token: Token) -> bool {
        match token.kind {
            Kind::Literal | Kind::Close(Bracket::Paren | Bracket::Square | Bracket::Brace | Bracket::Template) => true,
            Kind::Word => !is_keyword(self.token_bytes(token)),
            _ => false,
        }
    }
}
