//! Takes a cell out of the one Markdown fence that a model may have put around it.

use std::borrow::Cow;

/// The source with its fence lines blank, or the source as it is.
///
/// The first and the last line that are not blank must be a matching pair, and the opening line
/// may carry one word. Lines keep their numbers: a fence line becomes an empty line.
pub(super) fn unwrap(source: &str) -> Cow<'_, str> {
    inside(source).map_or(Cow::Borrowed(source), |(before, inside, after)| {
        let mut text = String::with_capacity(source.len());
        text.extend(before.chars().filter(|character| *character == '\n'));
        text.push('\n');
        text.push_str(inside);
        text.extend(after.chars().filter(|character| *character == '\n'));
        Cow::Owned(text)
    })
}

/// The text before the opening fence, between the fences, and after the closing one.
fn inside(source: &str) -> Option<(&str, &str, &str)> {
    let opening_start = source.len() - source.trim_start().len();
    let (before, rest) = source.split_at_checked(opening_start)?;
    let trimmed = rest.trim_end();
    let marker = ["```", "~~~"].into_iter().find(|marker| trimmed.starts_with(marker))?;
    let fence_character = marker.chars().next()?;

    let (opening, body) = trimmed.split_once('\n')?;
    let info = opening.trim_start_matches(fence_character);
    let length = opening.len() - info.len();
    let info = info.trim();
    if info.contains(fence_character) || info.contains(char::is_whitespace) {
        return None;
    }
    let (inside, closing) = match body.rfind('\n') {
        Some(end) => body.split_at_checked(end + 1)?,
        None => ("", body),
    };
    let closing = closing.trim();
    let closes = closing.len() >= length && closing.chars().all(|found| found == fence_character);
    // A second fence line inside means prose with several blocks, or a template literal that
    // happens to end like a fence: neither is one fenced cell.
    let nested = inside.lines().any(|line| {
        let line = line.trim();
        line.len() >= length && line.chars().all(|found| found == fence_character)
    });
    let after = rest.get(trimmed.len()..)?;
    (closes && !nested).then_some((before, inside, after))
}

#[cfg(test)]
mod tests {
    use super::unwrap;

    #[test]
    fn unwraps_one_fence_and_keeps_line_numbers() {
        let cases = [
            ("```js\nreturn 1\n```", "\nreturn 1\n"),
            ("```\nreturn 1\n```\n", "\nreturn 1\n\n"),
            ("\n\n```typescript\nlet x: T\n```", "\n\n\nlet x: T\n"),
            ("~~~ts\nreturn 1\n~~~", "\nreturn 1\n"),
            ("  ```js  \nreturn `a`\n  ```  ", "\nreturn `a`\n"),
            ("````js\nlet a = 1\n````", "\nlet a = 1\n"),
            ("```js\r\nreturn 1\r\n```", "\nreturn 1\r\n"),
            ("```\n```", "\n"),
            // Sources that are not a single fence around everything stay as they are.
            ("return 1", "return 1"),
            ("```", "```"),
            ("```js return 1```", "```js return 1```"),
            ("```js\nreturn 1", "```js\nreturn 1"),
            ("return `\n```\n`", "return `\n```\n`"),
            ("```js\na\n```\ntext\n```js\nb\n```", "```js\na\n```\ntext\n```js\nb\n```"),
            ("```js\nreturn 1\n~~~", "```js\nreturn 1\n~~~"),
            ("````js\nlet a = 1\n```", "````js\nlet a = 1\n```"),
            ("```a tagged`template\nx\n```", "```a tagged`template\nx\n```"),
        ];
        for (source, expected) in cases {
            assert_eq!(unwrap(source), expected, "{source:?}");
        }
    }
}
