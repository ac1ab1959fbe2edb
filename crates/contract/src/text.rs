//! Text from servers, cells, files and stores, made safe to print on a terminal.
//!
//! [`plain`] and [`line()`] are for text that people read, [`escape_json`] is for JSON that programs read.

use std::borrow::Cow;
use std::fmt::Write;

/// Returns text of several lines, with at most `chars` characters and `…` if more were cut. A character that is
/// invisible, or that controls a terminal, is written as its number.
pub fn plain(text: &str, chars: usize) -> String {
    shown(text, chars, '\n')
}

/// Cleans a text as [`plain`] does, for output that must stay on one line: every line break becomes a space.
pub fn line(text: &str, chars: usize) -> String {
    shown(text, chars, ' ')
}

fn shown(text: &str, chars: usize, line_break: char) -> String {
    let mut shown = String::new();
    let mut rest = text.chars().peekable();
    for _ in 0..chars {
        match rest.next() {
            None => return shown,
            Some('\n') => shown.push(line_break),
            Some('\r') if rest.peek() == Some(&'\n') => {}
            Some('\t') => shown.push(' '),
            Some(letter) if is_unsafe(letter) => {
                // Writing to a string cannot fail.
                write!(shown, "\\u{{{:x}}}", u32::from(letter)).ok();
            }
            Some(letter) => shown.push(letter),
        }
    }
    if rest.next().is_some() {
        shown.push('…');
    }
    shown
}

/// Returns a JSON text with the same value, in which every unsafe character is written as `\uXXXX`.
///
/// JSON has such characters only within strings, where the escape means the same. Line breaks and tabs between values
/// stay.
pub fn escape_json(json: &str) -> Cow<'_, str> {
    let must_be_escaped = |letter: char| is_unsafe(letter) && !matches!(letter, '\n' | '\r' | '\t');
    let Some(first) = json.find(must_be_escaped) else { return Cow::Borrowed(json) };
    let (before, rest) = json.split_at(first);
    let mut escaped = before.to_owned();
    for letter in rest.chars() {
        if must_be_escaped(letter) {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                write!(escaped, "\\u{unit:04x}").ok();
            }
        } else {
            escaped.push(letter);
        }
    }
    Cow::Owned(escaped)
}

/// Whether the character controls a terminal, is invisible, or changes the direction of the text that follows.
///
/// These are the C0 and C1 controls, line and paragraph separators, and all characters that Unicode calls default
/// ignorable: direction marks, zero-width characters, fillers, variation selectors and tags.
pub fn is_unsafe(letter: char) -> bool {
    letter.is_control()
        || matches!(
            u32::from(letter),
            0xad | 0x34f
                | 0x61c
                | 0x115f..=0x1160
                | 0x17b4..=0x17b5
                | 0x180b..=0x180f
                | 0x200b..=0x200f
                | 0x2028..=0x202e
                | 0x2060..=0x206f
                | 0x3164
                | 0xfe00..=0xfe0f
                | 0xfeff
                | 0xffa0
                | 0xfff0..=0xfffb
                | 0x1bca0..=0x1bca3
                | 0x1d173..=0x1d17a
                | 0xe0000..=0xe0fff
        )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{escape_json, is_unsafe, line, plain};

    #[test]
    fn unsafe_characters_are_written_as_numbers_and_long_text_is_cut() {
        let cases = [
            ("a\u{1b}[2Jb", "a\\u{1b}[2Jb"),
            ("a\u{9b}2Jb\u{7f}", "a\\u{9b}2Jb\\u{7f}"),
            ("pay \u{202e}eno\u{2066}", "pay \\u{202e}eno\\u{2066}"),
            ("a\u{200b}b\nc\td\r\ne\rf", "a\\u{200b}b\nc d\ne\\u{d}f"),
            ("x\u{e0041}\u{fe0f}\u{2028}\u{feff}", "x\\u{e0041}\\u{fe0f}\\u{2028}\\u{feff}"),
            ("äöü 日本 😀", "äöü 日本 😀"),
        ];
        for (text, expected) in cases {
            assert_eq!(plain(text, 100), expected);
            assert_eq!(line(text, 100), expected.replace('\n', " "));
            assert!(!line(text, 100).contains(is_unsafe));
        }
        assert_eq!(plain("äöü", 2), "äö…");
        assert_eq!(plain("äöü", 3), "äöü");
    }

    #[test]
    fn escaped_json_has_the_same_value_and_no_unsafe_character() {
        let value = json!({
            "\u{9b}key\u{202e}": ["\u{0}\u{1b}\u{7f}\u{80}\u{9f}", "\u{2028}\u{200d}\u{feff}", "\u{e0041}\u{e0fff}", "\\u{9b}\u{9b}"],
        });
        for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
            let escaped = escape_json(&text);
            assert_eq!(serde_json::from_str::<Value>(&escaped).unwrap(), value, "{escaped}");
            assert!(!escaped.contains(|letter| is_unsafe(letter) && letter != '\n'), "{escaped}");
        }
        assert_eq!(escape_json("\"\u{9b}\u{e0041}\""), r#""\u009b\udb40\udc41""#);
        assert!(matches!(escape_json("{\n\t\"a\": 1}\r\n"), std::borrow::Cow::Borrowed(_)));
    }
}
