//! Untrusted JSON: measuring it without parsing, and parsing it within limits.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

use crate::limits::MAX_BRIDGE_VALUE_DEPTH;

/// Levels that our own records may add around a value that crossed the bridge.
const MAX_WRAPPING: usize = 24;

/// Why a JSON text cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error("the JSON value nests deeper than {MAX_BRIDGE_VALUE_DEPTH} levels")]
    TooDeep,
    #[error(transparent)]
    Malformed(#[from] serde_json::Error),
}

/// Parses JSON that may have crossed the bridge, up to the bridge's depth and with any text that JavaScript allows.
///
/// The parser's own depth limit is lower than the bridge's. Every value that a cell may send must be readable later, or
/// it could make the records that contain it unreadable.
pub fn read(text: &str) -> Result<Value, Unreadable> {
    if depth(text.as_bytes()) > MAX_BRIDGE_VALUE_DEPTH + MAX_WRAPPING {
        return Err(Unreadable::TooDeep);
    }
    let text = well_formed(text);
    let mut reader = serde_json::Deserializer::from_str(&text);
    reader.disable_recursion_limit();
    let value = Value::deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// Returns bytes as text, with replacement characters for what is not UTF-8. Valid text, which is the usual case, is
/// checked several times faster than [`String::from_utf8_lossy`] does.
pub fn text(bytes: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

/// Replaces every escape of an unpaired surrogate. JavaScript strings may contain them, UTF-8 cannot, and most JSON
/// parsers reject the whole text for one.
pub fn well_formed(text: &str) -> Cow<'_, str> {
    // Escapes of surrogates start with `\ud` or `\uD`.
    if !text.contains("\\ud") && !text.contains("\\uD") {
        return Cow::Borrowed(text);
    }
    let mut mended = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        mended.push_str(before);
        let (kept, length) = match (unit(escape), escape.get(6..).and_then(unit)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => (true, 12),
            (Some(0xD800..=0xDFFF), _) => (false, 6),
            // Any other escape: the backslash and the escaped character, which may be a backslash.
            _ => (true, escape.char_indices().nth(2).map_or(escape.len(), |(end, _)| end)),
        };
        let (escape, after) = escape.split_at_checked(length).unwrap_or((escape, ""));
        mended.push_str(if kept { escape } else { "\\ufffd" });
        rest = after;
    }
    mended.push_str(rest);
    Cow::Owned(mended)
}

/// Returns the UTF-16 unit of the `\uXXXX` escape at the start of the text.
fn unit(text: &str) -> Option<u16> {
    u16::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok()
}

/// The size of a JSON text, found by a linear scan without parsing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measure {
    /// How deep arrays and objects nest.
    pub depth: usize,
    /// The number of scalars, keys, arrays and objects. Exact for valid JSON, and an upper bound for any text that a
    /// parser accepts.
    pub values: usize,
}

/// Counts the values of a JSON text and how deep they nest.
///
/// Linear and without recursion or allocation, so that hostile text can be measured before it is parsed.
pub fn measure(text: &[u8]) -> Measure {
    let mut found = Measure::default();
    let mut open = 0_usize;
    let mut in_scalar = false;
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => {
                open += 1;
                found.depth = found.depth.max(open);
                found.values += 1;
                in_scalar = false;
            }
            b']' | b'}' => {
                open = open.saturating_sub(1);
                in_scalar = false;
            }
            b'"' => {
                found.values += 1;
                in_scalar = false;
                skip_string(&mut bytes);
            }
            b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' => in_scalar = false,
            // A number, `true`, `false` or `null`: counted at its first byte.
            _ => {
                found.values += usize::from(!in_scalar);
                in_scalar = true;
            }
        }
    }
    found
}

/// Returns how deep the brackets of a JSON text nest; strings are skipped.
pub fn depth(text: &[u8]) -> usize {
    measure(text).depth
}

/// Whether every number of a JSON text can be read. `1e999` is valid JSON, but most parsers reject the whole text for
/// it.
///
/// Linear and without recursion or allocation, like [`measure`].
pub fn numbers_are_readable(text: &[u8]) -> bool {
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match first {
            b'"' => {
                let mut bytes = after.iter();
                skip_string(&mut bytes);
                rest = bytes.as_slice();
            }
            b'-' | b'0'..=b'9' => {
                let end = after
                    .iter()
                    .position(|byte| !matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'))
                    .unwrap_or(after.len());
                let (digits, behind) = after.split_at(end);
                // Shorter numbers without an exponent are far below the largest `f64`.
                let may_be_too_large = digits.len() > 300 || digits.iter().any(|byte| matches!(byte, b'e' | b'E'));
                let number = text.get(text.len() - after.len() - 1..text.len() - behind.len()).unwrap_or_default();
                if may_be_too_large && serde_json::from_slice::<f64>(number).is_err() {
                    return false;
                }
                rest = behind;
            }
            _ => {}
        }
    }
    true
}

fn skip_string(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => {
                bytes.next();
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{depth, measure, numbers_are_readable, read, well_formed};
    use crate::limits::MAX_BRIDGE_VALUE_DEPTH;

    #[test]
    fn values_within_the_depth_of_the_bridge_can_be_read_and_deeper_ones_cannot() {
        let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert!(read(&nested(MAX_BRIDGE_VALUE_DEPTH)).is_ok());
        assert!(read(&nested(MAX_BRIDGE_VALUE_DEPTH * 2)).is_err());
        assert!(read("[1] 2").is_err());
        assert_eq!(read(r#"{"a":"x\ud800y"}"#).unwrap(), json!({"a": "x\u{fffd}y"}));
    }

    #[test]
    fn only_unpaired_surrogates_are_replaced() {
        let cases = [
            (r#""\ud83d\ude00""#, r#""\ud83d\ude00""#),
            (r#""\ud83d""#, r#""\ufffd""#),
            (r#""\uDE00\ud83d""#, r#""\ufffd\ufffd""#),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\\ud83d""#, r#""\\ud83d""#),
            (r#""\\\ud83dx""#, r#""\\\ufffdx""#),
            (r#""\n\ud83d\né\ud83d""#, r#""\n\ufffd\né\ufffd""#),
            (r#""plain""#, r#""plain""#),
            (r#""\ud8"#, r#""\ud8"#),
        ];
        for (text, mended) in cases {
            assert_eq!(well_formed(text), mended, "{text}");
        }
        assert!(serde_json::from_str::<Value>(&well_formed(r#"["\ud83d", "\udfff\ud800"]"#)).is_ok());
    }

    #[test]
    fn depth_counts_brackets_outside_strings() {
        let cases = [
            ("1", 0),
            ("[]", 1),
            (r#"{"a":[{"b":1}]}"#, 3),
            (r#"["[[[","\"[",{}]"#, 2),
            ("[[[[", 4),
            (r#""unterminated [["#, 0),
        ];
        for (text, expected) in cases {
            assert_eq!(depth(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn numbers_are_readable_exactly_if_the_parser_reads_them() {
        let long = format!("[{}]", "9".repeat(400));
        let large = format!("[{}]", 1e300);
        let cases = [
            ("1e999999", false),
            (r#"{"a":[1,-1E400]}"#, false),
            (long.as_str(), false),
            (large.as_str(), true),
            ("[1.7976931348623157e+308,5e-324,1e-999999,-0]", true),
            (r#"["1e999999","\"1e999999",true,false,null]"#, true),
            ("", true),
        ];
        for (text, expected) in cases {
            assert_eq!(numbers_are_readable(text.as_bytes()), expected, "{text}");
            assert!(text.is_empty() || read(text).is_ok() == expected, "{text}");
        }
    }

    #[test]
    fn every_scalar_key_array_and_object_counts_as_a_value() {
        let cases = [
            ("1", 1),
            ("[]", 1),
            ("[1, true,null,-2.5e3]", 5),
            (r#"{"a":[{"b":1}], "c" : "d"}"#, 8),
            (r#"["[1,2]","\"{"]"#, 3),
            ("[[0],[0],[0]]", 7),
        ];
        for (text, expected) in cases {
            assert_eq!(measure(text.as_bytes()).values, expected, "{text}");
        }
    }
}
