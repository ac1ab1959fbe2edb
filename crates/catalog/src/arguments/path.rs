//! The path to a value in the input, in JavaScript notation: `input.items[2]["odd name"]`.

use super::show;

/// The maximum length of a path; longer ones lose their middle.
pub(super) const MAX_PATH_BYTES: usize = 120;

const MAX_NAME_BYTES: usize = 48;

/// How paths name the whole value.
pub(super) const ROOT: &str = "input";

#[derive(Clone, Copy, Debug)]
pub(super) enum Segment<'a> {
    Name(&'a str),
    Index(usize),
}

pub(super) fn render(segments: &[Segment<'_>]) -> String {
    let mut parts = Vec::new();
    let mut room = MAX_PATH_BYTES - "input…".len();
    for segment in segments.iter().rev() {
        let part = part(*segment);
        if part.len() > room {
            parts.push("…".to_owned());
            break;
        }
        room -= part.len();
        parts.push(part);
    }
    parts.push(ROOT.to_owned());
    parts.reverse();
    parts.concat()
}

fn part(segment: Segment<'_>) -> String {
    match segment {
        Segment::Index(position) => format!("[{position}]"),
        Segment::Name(name) if is_plain(name) => format!(".{name}"),
        Segment::Name(name) => format!("[{}]", show::quoted(name, MAX_NAME_BYTES)),
    }
}

fn is_plain(name: &str) -> bool {
    name.len() <= MAX_NAME_BYTES
        && name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_' || first == '$')
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_' || letter == '$')
}

#[cfg(test)]
mod tests {
    use super::{MAX_PATH_BYTES, Segment, render};

    #[test]
    fn paths_are_javascript_and_short() {
        use Segment::{Index, Name};
        let long = "x".repeat(1_000);
        let hidden = "\u{202e}".repeat(1_000);
        let cases: [(&[Segment<'_>], &str); 5] = [
            (&[], "input"),
            (&[Name("items"), Index(2), Name("name")], "input.items[2].name"),
            (&[Name("odd name"), Name("")], r#"input["odd name"][""]"#),
            (&[Name("a\"\n\u{200b}")], r#"input["a\"\n\u{200b}"]"#),
            (&[Name("$ref_1")], "input.$ref_1"),
        ];
        for (segments, expected) in cases {
            assert_eq!(render(segments), expected);
        }
        for name in [long.as_str(), hidden.as_str(), "abc"] {
            let segments = vec![Name(name); 200];
            assert!(render(&segments).len() <= MAX_PATH_BYTES);
            assert!(render(&segments).starts_with("input…"));
        }
    }
}
