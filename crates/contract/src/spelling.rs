//! Suggests the known word that is nearest to a mistyped one.

/// Longer words are not compared: they are hardly typing errors, and the cost is the product of both lengths.
const MAX_CHARS: usize = 64;

/// Returns the candidate with the fewest edits, if they are at most half the length of the longer word. Of equal
/// candidates the first is returned.
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

/// Counts the letters to insert, delete, replace or swap with their neighbour to turn one word into another, ignoring
/// case.
pub fn edits(from: &str, to: &str) -> usize {
    let letters = |word: &str| -> Vec<char> { word.to_lowercase().chars().collect() };
    let (from, to) = (letters(from), letters(to));
    let mut above: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (position, letter) in from.iter().enumerate() {
        let last = position.checked_sub(1).and_then(|last| from.get(last));
        let mut next = vec![position + 1];
        for (at, (target, pair)) in to.iter().zip(row.array_windows::<2>()).enumerate() {
            let [replaced, left_out] = *pair;
            let put_in = next.last().copied().unwrap_or_default() + 1;
            let mut least = (replaced + usize::from(letter != target)).min(left_out + 1).min(put_in);
            let before = at.checked_sub(1);
            if last == Some(target) && before.and_then(|before| to.get(before)) == Some(letter) {
                let swapped = before.and_then(|before| above.get(before)).map_or(least, |edits| edits + 1);
                least = least.min(swapped);
            }
            next.push(least);
        }
        above = std::mem::replace(&mut row, next);
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{edits, nearest};

    #[test]
    fn edits_are_counted_ignoring_case() {
        let cases = [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("timeoutMS", "timeoutMs", 0),
            ("dney", "deny", 1),
            ("raed", "read", 1),
            ("abcd", "badc", 2),
            ("ca", "abc", 3),
            ("größe", "grösse", 2),
        ];
        for (from, to, expected) in cases {
            assert_eq!(edits(from, to), expected, "{from} {to}");
        }
    }

    #[test]
    fn only_a_similar_word_is_suggested() {
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
