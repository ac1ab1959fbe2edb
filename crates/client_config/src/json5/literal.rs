//! Strings, numbers, names and keywords.

use serde_json::Number;

use super::Reader;
use crate::tree::{Kind, SyntaxError};

impl Reader<'_> {
    pub(super) fn string(&mut self) -> Result<String, SyntaxError> {
        let start = self.at;
        let quote = self.bump();
        let mut text = String::new();
        loop {
            match self.bump() {
                None | Some('\n' | '\r') => {
                    return Err(SyntaxError::at(self.text, start, "this string has no closing quote on its line"));
                }
                c if c == quote => return Ok(text),
                Some('\\') => self.escape(&mut text)?,
                Some(c) => text.push(c),
            }
        }
    }

    fn escape(&mut self, text: &mut String) -> Result<(), SyntaxError> {
        match self.bump() {
            Some('n') => text.push('\n'),
            Some('t') => text.push('\t'),
            Some('r') => text.push('\r'),
            Some('b') => text.push('\u{8}'),
            Some('f') => text.push('\u{c}'),
            Some('v') => text.push('\u{b}'),
            Some('0') if !self.peek().is_some_and(|c| c.is_ascii_digit()) => text.push('\0'),
            Some('x') => text.push(self.hex(2).and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER)),
            Some('u') => text.push(self.unicode()?),
            // A line continuation.
            Some('\r') => drop(self.eat('\n')),
            Some('\n' | '\u{2028}' | '\u{2029}') => {}
            Some(c) if !c.is_ascii_digit() => text.push(c),
            _ => return Err(self.wrong("unknown escape")),
        }
        Ok(())
    }

    /// Reads the digits of a `\u` escape. Half a surrogate pair becomes the replacement character.
    fn unicode(&mut self) -> Result<char, SyntaxError> {
        let first = self.hex(4).ok_or_else(|| self.wrong("`\\u` must be followed by four hexadecimal digits"))?;
        if (0xD800..0xDC00).contains(&first) && self.rest().starts_with("\\u") {
            let before = self.at;
            self.at += 2;
            match self.hex(4) {
                Some(second) if (0xDC00..0xE000).contains(&second) => {
                    let code = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
                    return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                }
                _ => self.at = before,
            }
        }
        Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn hex(&mut self, digits: usize) -> Option<u32> {
        let found = self.rest().get(..digits).filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        let code = u32::from_str_radix(found, 16).ok()?;
        self.at += digits;
        Some(code)
    }

    pub(super) fn number(&mut self) -> Result<Kind, SyntaxError> {
        let start = self.at;
        let belongs = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        let written = self.rest().split(|c| !belongs(c)).next().unwrap_or_default().to_owned();
        self.at += written.len();
        read_number(&written).ok_or_else(|| SyntaxError::at(self.text, start, "this is not a number"))
    }

    pub(super) fn name(&mut self) -> Result<String, SyntaxError> {
        let start = self.at;
        let mut name = String::new();
        while let Some(c) = self.peek() {
            if c == '\\' && self.rest().starts_with("\\u") {
                self.at += 2;
                name.push(self.unicode()?);
            } else if c.is_alphanumeric() || matches!(c, '_' | '$' | '\u{200c}' | '\u{200d}') {
                name.push(c);
                self.bump();
            } else {
                break;
            }
        }
        if name.is_empty() || name.starts_with(|c: char| c.is_numeric()) {
            return Err(SyntaxError::at(self.text, start, "expected a key, in quotes or a plain name"));
        }
        Ok(name)
    }

    pub(super) fn word(&mut self) -> Result<Kind, SyntaxError> {
        let start = self.at;
        let wrong = |text| SyntaxError::at(text, start, "expected a value; a string needs quotes");
        match self.name().map_err(|_| wrong(self.text))?.as_str() {
            "null" => Ok(Kind::Null),
            "true" => Ok(Kind::Bool(true)),
            "false" => Ok(Kind::Bool(false)),
            // JSON cannot represent them, and no setting may have such a value.
            "Infinity" | "NaN" => Ok(Kind::Null),
            _ => Err(wrong(self.text)),
        }
    }
}

fn read_number(written: &str) -> Option<Kind> {
    let (negative, digits) = match written.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, written.strip_prefix('+').unwrap_or(written)),
    };
    if matches!(digits, "Infinity" | "NaN") {
        return Some(Kind::Null);
    }
    if let Some(hex) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        let whole = i64::from_str_radix(hex, 16).ok().filter(|_| !hex.starts_with(['+', '-']))?;
        return Some(Kind::Number(Number::from(if negative { -whole } else { whole })));
    }
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') || !digits.contains(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let plain = if negative { format!("-{digits}") } else { digits.to_owned() };
    if let Ok(whole) = plain.parse::<i64>() {
        return Some(Kind::Number(Number::from(whole)));
    }
    if let Ok(whole) = plain.parse::<u64>() {
        return Some(Kind::Number(Number::from(whole)));
    }
    Number::from_f64(plain.parse().ok()?).map(Kind::Number)
}
