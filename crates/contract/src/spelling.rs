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

/// Returns a name without its separators and in lower case: `readTextFile`, `read_text_file` and `Read-Text-File` are the
/// same.
pub fn folded(name: &str) -> String {
    name.chars().filter(|letter| letter.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// Counts the letters to insert, delete, replace or swap with their neighbour to turn one word into another, ignoring
/// case.
pub fn edits(from: &str, to: &str) -> usize {
    strsim::osa_distance(&from.to_lowercase(), &to.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::{edits, folded, nearest};

    #[test]
    fn spellings_of_a_name_are_folded_to_one() {
        for name in ["readTextFile", "read_text_file", "Read-Text-File", "READTEXTFILE"] {
            assert_eq!(folded(name), "readtextfile");
        }
        assert_eq!(folded("$_"), "");
    }

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
