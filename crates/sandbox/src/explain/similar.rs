//! Names that are similar to one that does not exist.

use std::collections::BTreeSet;

use contract::spelling::{edits, folded};

/// The minimum similarity of a suggestion; less is coincidence.
const MIN_SIMILARITY: f64 = 0.6;

/// Longer names are not compared: the cost is the product of both lengths.
const MAX_COMPARED_BYTES: usize = 64;

/// A shorter beginning of a word may be a coincidence.
const MIN_PREFIX_BYTES: usize = 3;

/// The maximum number of suggestions.
const MAX_SUGGESTIONS: usize = 3;

/// Returns the names that are most similar to `name`, the best first.
pub(super) fn similar<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    if name.len() > MAX_COMPARED_BYTES {
        return Vec::new();
    }
    let mut alike: Vec<(f64, &str)> = known
        .into_iter()
        .filter(|known| known.len() <= MAX_COMPARED_BYTES)
        .map(|known| (similarity(name, known), known))
        .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
        .collect();
    alike.sort_by(|(a, left), (b, right)| b.total_cmp(a).then_with(|| left.cmp(right)));
    // Names that are clearly worse than the best one only distract from it.
    let best = alike.first().map_or(0.0, |(best, _)| *best);
    alike.into_iter().filter(|(one, _)| *one >= best - 0.15).take(MAX_SUGGESTIONS).map(|(_, name)| name).collect()
}

/// Returns how similar two names are, from 0 to 1: by their letters, or by their words in any order.
fn similarity(left: &str, right: &str) -> f64 {
    let (left_letters, right_letters) = (folded(left), folded(right));
    let longer = left_letters.chars().count().max(right_letters.chars().count()).max(1);
    let by_letters = 1.0 - edits(&left_letters, &right_letters) as f64 / longer as f64;
    let (left, right) = (words(left), words(right));
    let shared = left.iter().filter(|word| right.iter().any(|other| is_same_word(word, other))).count();
    let by_words = 2.0 * shared as f64 / (left.len() + right.len()).max(1) as f64;
    by_letters.max(by_words.min(1.0))
}

/// Returns whether two words are the same, or one is the beginning of the other: `dir` and `directory`.
fn is_same_word(left: &str, right: &str) -> bool {
    let (shorter, longer) = if left.len() <= right.len() { (left, right) } else { (right, left) };
    shorter == longer || shorter.len() >= MIN_PREFIX_BYTES && longer.starts_with(shorter)
}

/// Splits a name at separators and at capital letters: `readTextFile` and `read_text_file` have the same words.
fn words(name: &str) -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    let mut word = String::new();
    let mut was_lower = false;
    for letter in name.chars() {
        let starts = letter.is_uppercase() && was_lower;
        if (starts || !letter.is_alphanumeric()) && !word.is_empty() {
            words.insert(std::mem::take(&mut word));
        }
        if letter.is_alphanumeric() {
            word.extend(letter.to_lowercase());
        }
        was_lower = letter.is_lowercase() || letter.is_ascii_digit();
    }
    if !word.is_empty() {
        words.insert(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::similar;

    #[test]
    fn misspelt_and_rearranged_names_are_recognised() {
        let known = ["readTextFile", "readMultipleFiles", "writeFile", "listDirectory", "getFileInfo", "search"];
        let cases: [(&str, &[&str]); 8] = [
            ("readFileText", &["readTextFile"]),
            ("read_text_fiel", &["readTextFile"]),
            ("readFile", &["readMultipleFiles", "readTextFile"]),
            ("list_dir", &["listDirectory"]),
            ("listDirectories", &["listDirectory"]),
            ("serch", &["search"]),
            ("weather", &[]),
            ("", &[]),
        ];
        for (name, expected) in cases {
            assert_eq!(similar(name, known), expected, "{name}");
        }
        assert_eq!(similar(&"a".repeat(65), ["a"]), [""; 0]);
    }
}
