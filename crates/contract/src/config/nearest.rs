//! The word that was probably meant.

/// Longer words are not compared: nobody mistypes one, and comparing costs the product of lengths.
const MAX_CHARS: usize = 64;

/// The candidate with the fewest edits, if they are no more than half the longer word; the first of equals.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.chars().nth(MAX_CHARS).is_some() {
        return None;
    }
    candidates
        .into_iter()
        .filter_map(|candidate| {
            let edits = edits(word, candidate);
            let longer = word.chars().count().max(candidate.chars().count());
            (edits * 2 <= longer).then_some((edits, candidate))
        })
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// Insertions, deletions and replacements that turn one word into the other; case does not count.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (position, letter) in from.to_lowercase().chars().enumerate() {
        let mut left = position + 1;
        let mut next = vec![left];
        for (target, pair) in to.iter().zip(row.array_windows::<2>()) {
            let [above_left, above] = *pair;
            let replaced = above_left + usize::from(letter != *target);
            left = replaced.min(above + 1).min(left + 1);
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{edits, nearest};

    #[test]
    fn edits_are_counted_without_regard_to_case() {
        let cases = [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("timeoutMS", "timeoutMs", 0),
            ("dney", "deny", 2),
            ("größe", "grösse", 2),
        ];
        for (from, to, expected) in cases {
            assert_eq!(edits(from, to), expected, "{from} {to}");
        }
    }

    #[test]
    fn only_a_near_word_is_offered() {
        let known = ["allow", "deny", "alsoAllow", "mode", "timeoutMs"];
        let long = "a".repeat(65);
        let cases = [
            ("timeout", Some("timeoutMs")),
            ("TIMEOUTMS", Some("timeoutMs")),
            ("dney", Some("deny")),
            ("also_allow", Some("alsoAllow")),
            ("allows", Some("allow")),
            ("zebra", None),
            ("x", None),
            ("", None),
            (long.as_str(), None),
        ];
        for (word, expected) in cases {
            assert_eq!(nearest(word, known), expected, "{word}");
        }
        assert_eq!(nearest("same", ["sane", "sale"]), Some("sane"));
        assert_eq!(nearest("deny", []), None);
        assert_eq!(nearest(&long, [long.as_str()]), None);
        assert_eq!(nearest(&long[1..], [long.as_str()]), Some(long.as_str()));
    }
}
