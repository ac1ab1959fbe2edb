//! Scans white space, comments, strings and the text of templates.

use super::{Bracket, Kind, Scanned, Scanner, is_space};
use crate::source::lines::{is_separator, terminator};

impl Scanner<'_> {
    /// Skips white space and comments; `Err` is the offset at which the text becomes ambiguous.
    pub(super) fn skip_trivia(&mut self) -> Result<(), usize> {
        loop {
            if let Some(length) = terminator(self.bytes, self.position) {
                self.newline = true;
                self.position += length;
                continue;
            }
            match self.byte(self.position) {
                Some(b' ' | b'\t' | 0x0B | 0x0C | b'\r') => self.position += 1,
                Some(b'/') if self.byte(self.position + 1) == Some(b'/') => self.skip_line(),
                Some(b'/') if self.byte(self.position + 1) == Some(b'*') => self.skip_block(),
                // HTML-like comments, which scripts may still contain.
                Some(b'<') if self.starts_with(b"<!--") => return Err(self.position),
                Some(b'-') if self.newline && self.starts_with(b"-->") => return Err(self.position),
                Some(0x80..) => match self.char_at(self.position) {
                    Some(found) if is_space(found) => self.position += found.len_utf8(),
                    _ => return Ok(()),
                },
                _ => return Ok(()),
            }
        }
    }

    fn skip_line(&mut self) {
        while self.position < self.bytes.len()
            && self.byte(self.position) != Some(b'\r')
            && terminator(self.bytes, self.position).is_none()
        {
            self.position += 1;
        }
    }

    fn skip_block(&mut self) {
        self.position += 2;
        while self.position < self.bytes.len() {
            if self.starts_with(b"*/") {
                self.position += 2;
                return;
            }
            self.newline |=
                matches!(self.byte(self.position), Some(b'\n' | b'\r')) || is_separator(self.bytes, self.position);
            self.position += 1;
        }
    }

    pub(super) fn string(&mut self, quote: u8) -> Scanned {
        let mut end = self.position + 1;
        loop {
            match self.byte(end) {
                None | Some(b'\n' | b'\r') => return Scanned::Error(self.position),
                Some(b'\\') if self.bytes.get(end + 1..end + 3) == Some(b"\r\n") => end += 3,
                Some(b'\\') => end += 2,
                Some(byte) if byte == quote => return self.token(Kind::Literal, end + 1),
                Some(_) => end += 1,
            }
        }
    }

    pub(super) fn in_template(&self) -> bool {
        self.open.last() == Some(&Bracket::Template)
    }

    /// Reads the text of a template literal, up to its end or the next substitution.
    pub(super) fn template(&mut self) -> Scanned {
        loop {
            match self.byte(self.position) {
                None => return Scanned::End,
                Some(b'\\') => self.position += 2,
                Some(b'`') => {
                    self.open.pop();
                    return self.token(Kind::Close(Bracket::Template), self.position + 1);
                }
                Some(b'$') if self.byte(self.position + 1) == Some(b'{') => {
                    return self.opened(Bracket::Substitution, 2);
                }
                Some(_) => self.position += 1,
            }
        }
    }
}
