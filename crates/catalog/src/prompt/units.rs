//! Lengths in UTF-16 code units, as JavaScript clients count them when they cut a description.

/// Returns the length of a text.
pub(super) fn units(text: &str) -> usize {
    text.encode_utf16().count()
}

/// Items on one line, as many as fit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct List {
    /// `a, b and 3 more`, or only the number.
    pub(super) text: String,
    pub(super) is_whole: bool,
}

/// Lists items in at most `room` units. Returns `None` if not even their number fits.
pub(super) fn listed(items: &[&str], room: usize) -> Option<List> {
    let whole = items.join(", ");
    if units(&whole) <= room {
        return Some(List { text: whole, is_whole: true });
    }
    let mut line = String::new();
    let mut rest = items.len().to_string();
    for (shown, item) in items.iter().enumerate() {
        let longer = if shown == 0 { (*item).to_owned() } else { format!("{line}, {item}") };
        let left = format!(" and {} more", items.len() - shown - 1);
        if units(&longer) + units(&left) > room {
            break;
        }
        (line, rest) = (longer, left);
    }
    line += &rest;
    (units(&line) <= room).then_some(List { text: line, is_whole: false })
}

/// Cuts a text that is too long, as a last resort.
pub(super) fn cut(text: String, limit: usize) -> String {
    if units(&text) <= limit {
        return text;
    }
    let mut used = 1;
    let fits = |letter: &char| {
        used += letter.len_utf16();
        used <= limit
    };
    let mut short: String = text.chars().take_while(fits).collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::{cut, listed, units};

    fn list(items: &[&str], room: usize) -> Option<String> {
        let list = listed(items, room)?;
        assert_eq!(list.is_whole, list.text.split(", ").eq(items.iter().copied()) || items.is_empty(), "{list:?}");
        Some(list.text)
    }

    #[test]
    fn a_list_is_shortened_to_its_room_and_counts_the_rest() {
        assert_eq!(list(&["a", "b", "c"], 7).as_deref(), Some("a, b, c"));
        assert_eq!(list(&["aaaa", "b", "c"], 15).as_deref(), Some("aaaa, b, c"));
        assert_eq!(list(&["aaaa", "bbbbbbb", "c"], 15).as_deref(), Some("aaaa and 2 more"));
        assert_eq!(list(&["aaaaaaaaaaaa", "b"], 8).as_deref(), Some("2"));
        assert_eq!(list(&["aaaaaaaaaaaa"; 100], 2), None);
        assert_eq!(list(&[], 0).as_deref(), Some(""));
        for room in 0..80 {
            let line = list(&["one", "two", "\u{1F600}\u{1F600}", "three", "four"], room);
            assert!(line.is_none_or(|line| units(&line) <= room), "{room}");
        }
    }

    #[test]
    fn a_cut_text_has_whole_characters() {
        assert_eq!(cut("abc".to_owned(), 3), "abc");
        assert_eq!(cut("abcd".to_owned(), 3), "ab…");
        assert_eq!(cut("a\u{1F600}cd".to_owned(), 3), "a…");
    }
}
