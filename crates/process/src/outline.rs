//! What is left of a JSON text of any length without the contents of its nested values. Pure.

/// The most bytes of an outline. A JSON-RPC message has four members, and all but one of them are short.
const MAX_OUTLINE_BYTES: usize = 16 << 10;

/// The bytes of a string that are kept. It is more than an id may have, so a string that was cut is never taken for an id.
const MAX_STRING_BYTES: usize = 2 << 10;

/// Keeps the outermost object of a JSON text while the text is read: its keys and values, with empty arrays and objects
/// in the place of nested ones. Long strings are truncated, so its memory does not depend on the length of the text.
#[derive(Debug, Default)]
pub(crate) struct Outline {
    kept: Vec<u8>,
    /// The number of open arrays and objects.
    depth: usize,
    string: Option<OpenString>,
    is_too_long: bool,
}

/// The string that the scan is in.
#[derive(Debug, Default)]
struct OpenString {
    bytes: usize,
    after_backslash: bool,
    /// The hexadecimal digits of a `\uXXXX` escape that are still to come.
    hex_digits_left: u8,
    /// Whether the rest of the string is dropped.
    is_cut: bool,
}

impl OpenString {
    /// Returns true if `next` belongs to an escape that has begun. A backslash ends an incomplete `\u`, so that a
    /// string of such escapes is cut, too.
    fn continues_escape(&self, next: u8) -> bool {
        self.after_backslash || (self.hex_digits_left > 0 && next.is_ascii_hexdigit())
    }
}

impl Outline {
    /// Scans the next part of the text.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) {
        // Nothing more can be learned from a text whose outline is too long.
        while !self.is_too_long && !bytes.is_empty() {
            let used = match self.string.is_some() {
                true => self.in_string(bytes),
                false => self.outside_strings(bytes),
            };
            bytes = bytes.get(used..).unwrap_or_default();
        }
    }

    /// Returns the outline, or nothing if it exceeds [`MAX_OUTLINE_BYTES`].
    pub(crate) fn finish(self) -> Vec<u8> {
        if self.is_too_long { Vec::new() } else { self.kept }
    }

    /// Scans up to the next string. Returns the number of bytes that it has scanned.
    fn outside_strings(&mut self, bytes: &[u8]) -> usize {
        for (at, byte) in bytes.iter().enumerate() {
            match byte {
                b'"' => {
                    self.keep(*byte);
                    self.string = Some(OpenString { is_cut: self.depth > 1, ..OpenString::default() });
                    return at + 1;
                }
                b'{' | b'[' => {
                    self.keep(*byte);
                    self.depth += 1;
                }
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    self.keep(*byte);
                }
                _ => self.keep(*byte),
            }
        }
        bytes.len()
    }

    /// Scans up to the end of the string. Returns the number of bytes that it has scanned.
    fn in_string(&mut self, bytes: &[u8]) -> usize {
        let Some(mut string) = self.string.take() else { return 0 };
        let mut at = 0;
        while let Some(byte) = bytes.get(at).copied() {
            // An escape is kept or dropped as a whole. A character of several bytes may be split: what was cut is never
            // decoded.
            string.is_cut |= string.bytes >= MAX_STRING_BYTES && !string.continues_escape(byte);
            if string.is_cut && !string.after_backslash {
                let rest = bytes.get(at..).unwrap_or_default();
                let Some(plain) = memchr::memchr2(b'"', b'\\', rest) else { break };
                at += plain;
                string.after_backslash = rest.get(plain) == Some(&b'\\');
                at += 1;
                if !string.after_backslash {
                    self.keep(b'"');
                    return at;
                }
                continue;
            }
            at += 1;
            string.bytes += 1;
            if !string.is_cut {
                self.keep(byte);
            }
            let is_escaped = string.after_backslash;
            if byte == b'"' && !is_escaped {
                return at;
            }
            string.after_backslash = byte == b'\\' && !is_escaped;
            string.hex_digits_left =
                if is_escaped && byte == b'u' { 4 } else { string.hex_digits_left.saturating_sub(1) };
        }
        self.string = Some(string);
        bytes.len()
    }

    /// Keeps a byte, unless it is inside a nested value.
    fn keep(&mut self, byte: u8) {
        if self.depth > 1 {
            return;
        }
        self.is_too_long |= self.kept.len() >= MAX_OUTLINE_BYTES;
        if !self.is_too_long {
            self.kept.push(byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::de::IgnoredAny;

    use super::{MAX_OUTLINE_BYTES, MAX_STRING_BYTES, Outline};
    use crate::envelope::Envelope;

    /// Scans a text in parts of this many bytes.
    fn outline(text: &str, part: usize) -> String {
        let mut outline = Outline::default();
        text.as_bytes().chunks(part).for_each(|part| outline.push(part));
        String::from_utf8(outline.finish()).unwrap()
    }

    #[test]
    fn the_outline_has_the_members_of_the_outermost_object_and_nothing_of_nested_values() {
        let cases = [
            (r#"{"id":7,"result":{"a":["}\"{",[1]],"id":1}}"#, r#"{"id":7,"result":{}}"#),
            (r#"{"result":[{"x":"\\"},2],"id":"a\"}b"}"#, r#"{"result":[],"id":"a\"}b"}"#),
            (r#" {"jsonrpc" : "2.0"} "#, r#" {"jsonrpc" : "2.0"} "#),
            (r#"[{"id":1}]"#, "[{}]"),
        ];
        for (text, expected) in cases {
            for part in [1, 2, 3, 1_000] {
                assert_eq!(outline(text, part), expected, "{text} in parts of {part}");
            }
        }
    }

    #[test]
    fn a_long_string_is_cut_between_escapes_and_an_id_that_was_cut_is_no_id() {
        for escape in [r"\\", r#"\""#, r"\u00e4", "x"] {
            // The limit is reached at each place of an escape.
            for start in 0..escape.len() {
                let text = format!(r#"{{"id":"{:start$}{}","error":1}}"#, "", escape.repeat(2 * MAX_STRING_BYTES));
                for part in [1, 7, 1_000_000] {
                    let cut = outline(&text, part);
                    assert!(cut.len() < MAX_STRING_BYTES + 100 && cut.ends_with(r#"","error":1}"#), "{cut}");
                    assert!(serde_json::from_str::<IgnoredAny>(&cut).is_ok(), "{cut}");
                    let envelope = Envelope::scan(cut.as_bytes()).unwrap();
                    assert!(envelope.has_id() && envelope.id().is_none());
                }
            }
        }
    }

    #[test]
    fn a_long_string_of_incomplete_escapes_is_cut() {
        let text = format!(r#"{{"id":"{}","error":1}}"#, r"\u".repeat(MAX_OUTLINE_BYTES));
        let cut = outline(&text, 1_000);
        assert!(cut.len() < MAX_STRING_BYTES + 100 && cut.ends_with(r#"","error":1}"#), "{cut}");
    }

    #[test]
    fn an_outline_that_is_too_long_is_empty() {
        let many = format!("{{{}}}", r#""a":1,"#.repeat(MAX_OUTLINE_BYTES));
        assert_eq!(outline(&many, 1_000), "");
        assert_eq!(outline(&"x".repeat(MAX_OUTLINE_BYTES), 1_000).len(), MAX_OUTLINE_BYTES);
        assert_eq!(outline(&"x".repeat(MAX_OUTLINE_BYTES + 1), 1_000), "");
    }
}
