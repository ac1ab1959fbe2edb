//! Scans white space, comments and literals: strings, the text of templates, numbers.

use super::{Bracket, Kind, ScanStep, Scanner, is_digit, is_space, is_word_byte};
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

    pub(super) fn string(&mut self, quote: u8) -> ScanStep {
        let mut end = self.position + 1;
        loop {
            match self.byte(end) {
                None | Some(b'\n' | b'\r') => return ScanStep::Error(self.position),
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
    pub(super) fn template(&mut self) -> ScanStep {
        loop {
            match self.byte(self.position) {
                None => return ScanStep::End,
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

    /// Scans a number exactly: its end decides whether a dot after it is a property access.
    pub(super) fn number(&mut self) -> ScanStep {
        let Some(end) = self.number_end() else { return ScanStep::Unsure(self.position) };
        // oxc reports an error if a name directly follows a number.
        let touches = self.byte(end).is_some_and(|byte| match byte {
            0x80.. => self.char_at(end).is_some_and(|found| !is_space(found)),
            _ => is_word_byte(byte),
        });
        if touches { ScanStep::Error(end) } else { self.token(Kind::Literal, end) }
    }

    /// Returns the end of a well-formed number.
    fn number_end(&self) -> Option<usize> {
        let start = self.position;
        let second = self.byte(start + 1);
        if self.byte(start) == Some(b'0') && second.is_some_and(|byte| b"xXoObB".contains(&byte)) {
            let end = self.digits(start + 2, |byte| byte.is_ascii_hexdigit())?;
            return Some(end + usize::from(self.byte(end) == Some(b'n')));
        }
        if self.byte(start) == Some(b'0') && second.is_some_and(is_digit) {
            // `017.x` is a property of an octal number, `018.5` is a decimal number.
            let end = self.digits(start, is_digit)?;
            let octal = self.bytes.get(start..end)?.iter().all(|digit| (b'0'..=b'7').contains(digit));
            return if octal { Some(end) } else { self.fraction_end(end) };
        }
        let end = if self.byte(start) == Some(b'.') { start } else { self.digits(start, is_digit)? };
        if self.byte(end) == Some(b'n') { Some(end + 1) } else { self.fraction_end(end) }
    }

    /// Returns the end of the fraction and exponent of a number.
    fn fraction_end(&self, mut end: usize) -> Option<usize> {
        if self.byte(end) == Some(b'.') {
            end += 1;
            if self.byte(end).is_some_and(is_digit) {
                end = self.digits(end, is_digit)?;
            }
        }
        if matches!(self.byte(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(self.byte(end + 1), Some(b'+' | b'-')));
            end = self.digits(end + 1 + sign, is_digit)?;
        }
        Some(end)
    }

    /// Returns the end of one or more digits, with single underscores between them.
    fn digits(&self, start: usize, is_digit: impl Fn(u8) -> bool) -> Option<usize> {
        let mut end = start;
        loop {
            match self.byte(end) {
                Some(byte) if is_digit(byte) => end += 1,
                Some(b'_') if end > start && self.byte(end + 1).is_some_and(&is_digit) => end += 2,
                Some(b'_') => return None,
                _ => return (end > start).then_some(end),
            }
        }
    }
}
