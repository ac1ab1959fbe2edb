//! Scans numbers exactly: the end of a number decides whether a dot after it is a property access.

use super::{Kind, Scanned, Scanner, is_digit, is_space, is_word_byte};

impl Scanner<'_> {
    pub(super) fn number(&mut self) -> Scanned {
        let Some(end) = self.number_end() else { return Scanned::Unsure(self.position) };
        // oxc reports an error if a name directly follows a number.
        let touches = self.byte(end).is_some_and(|byte| match byte {
            0x80.. => self.char_at(end).is_some_and(|found| !is_space(found)),
            _ => is_word_byte(byte),
        });
        if touches { Scanned::Error(end) } else { self.token(Kind::Literal, end) }
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
