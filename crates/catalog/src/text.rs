//! Cleans untrusted text for use in declarations and prompts.

use std::borrow::Cow;

use serde_json::Value;

/// The maximum length of a name in a declaration. Longer names are counted, not shown.
pub(crate) const MAX_NAME: usize = 128;

/// The maximum depth to which a default or an example is shown.
const MAX_BRIEF_DEPTH: usize = 3;

/// Returns one line of at most `limit` bytes: white space folded, hidden characters removed, `…` where it was cut.
pub(crate) fn clean(text: &str, limit: usize) -> String {
    // Bounds the work: a megabyte of blanks would fold to one.
    let head = head(text, limit.saturating_mul(4).saturating_add(64));
    let mut line = String::new();
    let mut gap = false;
    for letter in head.chars() {
        if letter.is_whitespace() || letter.is_control() {
            gap = !line.is_empty();
        } else if !is_hidden(letter) {
            if gap {
                line.push(' ');
                gap = false;
            }
            line.push(letter);
            if line.len() > limit {
                break;
            }
        }
    }
    if head.len() < text.len() && line.len() <= limit && !line.is_empty() {
        line.push_str(" …");
    }
    cut(line, limit)
}

/// Returns lines of at most `limit` bytes in total: hidden and control characters removed, `…` where the text was cut.
pub(crate) fn clean_lines(text: &str, limit: usize) -> String {
    let mut lines = String::new();
    for letter in text.chars() {
        match letter {
            '\n' => lines.push('\n'),
            '\t' => lines.push(' '),
            _ if letter.is_control() || is_hidden(letter) => {}
            _ => lines.push(letter),
        }
        if lines.len() > limit {
            break;
        }
    }
    cut(lines, limit)
}

/// Returns the text, or its beginning and `…` in at most `limit` bytes.
pub(crate) fn cut(text: String, limit: usize) -> String {
    if text.len() <= limit {
        return text;
    }
    let mut short = head(&text, limit.saturating_sub('…'.len_utf8())).trim_end().to_owned();
    if limit >= '…'.len_utf8() {
        short.push('…');
    }
    short
}

/// Returns at most `limit` bytes of the text, in whole characters.
pub(crate) fn head(text: &str, limit: usize) -> &str {
    if text.len() <= limit {
        return text;
    }
    let end = (0..=limit).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.get(..end).unwrap_or_default()
}

/// Escapes text for use inside a block comment.
pub(crate) fn in_comment(text: &str) -> Cow<'_, str> {
    if text.contains("*/") { Cow::Owned(text.replace("*/", "*\\/")) } else { Cow::Borrowed(text) }
}

/// Returns a JavaScript string literal with hidden characters escaped.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            _ if letter.is_control() || is_hidden(letter) => quoted.extend(letter.escape_unicode()),
            _ => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

/// Returns a property name as it is written in a type.
pub(crate) fn property(name: &str) -> String {
    if is_identifier(name) { name.to_owned() } else { quoted(name) }
}

/// Returns whether a name is an ASCII identifier; JavaScript keywords count, too.
pub(crate) fn is_identifier(name: &str) -> bool {
    name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_' || letter == '$')
        && name.starts_with(|first: char| !first.is_ascii_digit())
}

/// Invisible characters and those that change the writing direction. None of them reaches a model unescaped.
fn is_hidden(letter: char) -> bool {
    matches!(letter,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// Returns a value in about `limit` bytes, as a comment shows it.
pub(crate) fn brief(value: &Value, limit: usize) -> String {
    let mut out = String::new();
    write_brief(value, limit, MAX_BRIEF_DEPTH, &mut out);
    cut(out, limit)
}

fn write_brief(value: &Value, limit: usize, depth: usize, out: &mut String) {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => out.push_str(&value.to_string()),
        Value::String(text) => out.push_str(&quoted(&cut(head(text, limit * 2).to_owned(), limit))),
        Value::Array(_) if depth == 0 => out.push_str("[…]"),
        Value::Object(_) if depth == 0 => out.push_str("{…}"),
        Value::Array(items) => {
            out.push('[');
            for (position, item) in items.iter().enumerate() {
                if out.len() > limit {
                    return;
                }
                out.push_str(if position == 0 { "" } else { "," });
                write_brief(item, limit, depth - 1, out);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            out.push('{');
            for (position, (name, field)) in fields.iter().enumerate() {
                if out.len() > limit {
                    return;
                }
                out.push_str(if position == 0 { "" } else { "," });
                out.push_str(&quoted(&cut(head(name, limit * 2).to_owned(), limit)));
                out.push(':');
                write_brief(field, limit, depth - 1, out);
            }
            out.push('}');
        }
    }
}
