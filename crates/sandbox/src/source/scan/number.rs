//! Numbers, exactly: where one ends decides whether a dot behind it is a property.

use super::{Found, Kind, Scanner, is_digit, is_word_byte};

impl Scanner<'_> {
    pub(super) fn number(&mut self) -> Found {
        let end = self.number_end();
        // A number that a name touches is an error wherever it stands.
        let touches = self.byte(end).is_some_and(|byte| is_word_byte(byte) || byte >= 0x80);
        if touches { Found::Unsure(end) } else { self.token(Kind::Literal, end) }
    }

    fn number_end(&self) -> usize {
        let start = self.position;
        let second = self.byte(start + 1);
        if self.byte(start) == Some(b'0') {
            if second.is_some_and(|byte| b"xXoObB".contains(&byte)) {
                return self.run(start + 2, is_word_byte);
            }
            let end = self.run(start, is_digit);
            let octal = self
                .bytes
                .get(start..end)
                .is_some_and(|digits| digits.iter().all(|digit| (b'0'..=b'7').contains(digit)));
            if octal && second.is_some_and(is_digit) {
                return end;
            }
        }
        let mut end = self.run(start, is_decimal);
        if self.byte(end) == Some(b'n') {
            return end + 1;
        }
        if self.byte(end) == Some(b'.') {
            end = self.run(end + 1, is_decimal);
        }
        if matches!(self.byte(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(self.byte(end + 1), Some(b'+' | b'-')));
            end = self.run(end + 1 + sign, is_decimal);
        }
        end
    }

    /// The end of the bytes from `start` on that belong together.
    fn run(&self, start: usize, belongs: impl Fn(u8) -> bool) -> usize {
        let mut end = start;
        while self.byte(end).is_some_and(&belongs) {
            end += 1;
        }
        end
    }
}

fn is_decimal(byte: u8) -> bool {
    byte.is_ascii_digit() || byte == b'_'
}
