//! Parses JSON5, and with it JSON and JSON with comments, with the position of every value.
//!
//! This is our own parser, because edits need byte positions in all of JSON5, and libraries that have positions support
//! only a part of it.

mod literal;

use crate::tree::{Kind, Member, SyntaxError, Tree};

/// The deepest nesting that is accepted.
const MAX_DEPTH: usize = 100;

/// Parses a whole text. A text without a value is an empty object, because editors leave such files behind.
pub(crate) fn parse(text: &str) -> Result<Tree, SyntaxError> {
    let mut reader = Reader { text, at: 0, depth: 0 };
    reader.skip_trivia()?;
    if reader.peek().is_none() {
        return Ok(Tree { span: text.len()..text.len(), ..Tree::empty_map() });
    }
    let tree = reader.value()?;
    reader.skip_trivia()?;
    match reader.peek() {
        None => Ok(tree),
        Some(_) => Err(reader.wrong("unexpected text after the end of the value")),
    }
}

/// Returns the end of the white space and comments that begin here.
pub(crate) fn after_trivia(text: &str, from: usize) -> usize {
    let mut reader = Reader { text, at: from, depth: 0 };
    match reader.skip_trivia() {
        Ok(()) => reader.at,
        Err(_) => text.len(),
    }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn bump(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        Some(next)
    }

    fn eat(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.at += wanted.len_utf8();
        }
        found
    }

    fn wrong(&self, why: &str) -> SyntaxError {
        SyntaxError::at(self.text, self.at, why)
    }

    fn skip_trivia(&mut self) -> Result<(), SyntaxError> {
        loop {
            let rest = self.rest();
            if rest.starts_with("//") {
                self.at += rest.find(['\n', '\r', '\u{2028}', '\u{2029}']).unwrap_or(rest.len());
            } else if let Some(inner) = rest.strip_prefix("/*") {
                let length = inner.find("*/").ok_or_else(|| self.wrong("unterminated comment"))?;
                self.at += "/*".len() + length + "*/".len();
            } else if rest.starts_with(|c: char| c.is_whitespace() || c == '\u{feff}') {
                self.bump();
            } else {
                return Ok(());
            }
        }
    }

    fn value(&mut self) -> Result<Tree, SyntaxError> {
        let start = self.at;
        let kind = match self.peek() {
            Some('{') => self.nested(Self::map)?,
            Some('[') => self.nested(Self::list)?,
            Some('"' | '\'') => Kind::Text(self.string()?),
            Some(c) if c.is_ascii_digit() || matches!(c, '+' | '-' | '.') => self.number()?,
            Some(_) => self.word()?,
            None => return Err(self.wrong("expected a value, found the end of the text")),
        };
        Ok(Tree { span: start..self.at, kind })
    }

    fn nested(&mut self, inner: fn(&mut Self) -> Result<Kind, SyntaxError>) -> Result<Kind, SyntaxError> {
        if self.depth == MAX_DEPTH {
            return Err(self.wrong("nested deeper than 100 levels"));
        }
        self.depth += 1;
        self.bump();
        let kind = inner(self)?;
        self.depth -= 1;
        Ok(kind)
    }

    fn map(&mut self) -> Result<Kind, SyntaxError> {
        let mut members = Vec::new();
        loop {
            self.skip_trivia()?;
            if self.eat('}') {
                return Ok(Kind::Map(members));
            }
            let start = self.at;
            let key = match self.peek() {
                Some('"' | '\'') => self.string()?,
                _ => self.name()?,
            };
            let key_span = start..self.at;
            self.skip_trivia()?;
            if !self.eat(':') {
                return Err(self.wrong("expected `:` after a key"));
            }
            self.skip_trivia()?;
            members.push(Member { key, key_span, value: self.value()? });
            self.skip_trivia()?;
            if !self.eat(',') && self.peek() != Some('}') {
                return Err(self.wrong("expected `,` or `}` after a value"));
            }
        }
    }

    fn list(&mut self) -> Result<Kind, SyntaxError> {
        let mut items = Vec::new();
        loop {
            self.skip_trivia()?;
            if self.eat(']') {
                return Ok(Kind::List(items));
            }
            items.push(self.value()?);
            self.skip_trivia()?;
            if !self.eat(',') && self.peek() != Some(']') {
                return Err(self.wrong("expected `,` or `]` after a value"));
            }
        }
    }
}

#[cfg(test)]
mod tests;
