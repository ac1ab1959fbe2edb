//! Splits text into words: splits identifiers, drops stop words, and stems the rest.

use rust_stemmers::{Algorithm, Stemmer};

/// The maximum length of a word; longer runs of letters are data.
const MAX_WORD_BYTES: usize = 40;

/// Stop words, which say nothing about the tool.
const EMPTY_WORDS: &[&str] = &[
    "a", "about", "all", "also", "am", "an", "and", "any", "are", "as", "at", "be", "been", "but", "by", "can",
    "could", "d", "did", "do", "does", "for", "from", "give", "had", "has", "have", "help", "here", "how", "i", "if",
    "in", "into", "is", "it", "its", "just", "know", "let", "like", "ll", "m", "me", "my", "need", "no", "not", "of",
    "on", "or", "our", "please", "re", "s", "should", "show", "so", "some", "t", "tell", "than", "thank", "thanks",
    "that", "the", "their", "them", "then", "there", "these", "they", "this", "to", "us", "use", "using", "ve", "want",
    "was", "we", "were", "what", "when", "where", "which", "who", "why", "will", "with", "would", "you", "your",
    "yours",
];

/// Splits a run of letters, digits and underscores: `getHTTPUser_v2` gives `get http user v 2`. If there is more than
/// one part, also returns all of it in one, `gethttpuserv2`, because people write names without separators.
pub(crate) fn parts(run: &str, mut each: impl FnMut(&str)) -> Option<String> {
    let letters: Vec<char> = run.chars().collect();
    let mut part = String::new();
    let mut whole = String::new();
    let mut count = 0;
    for (at, letter) in letters.iter().enumerate() {
        let kind = LetterKind::of(*letter);
        let starts = match (at.checked_sub(1).and_then(|before| letters.get(before)), kind) {
            (_, LetterKind::Seam) => true,
            (None, _) => false,
            (Some(before), _) => {
                is_seam(LetterKind::of(*before), kind, letters.get(at + 1).map(|next| LetterKind::of(*next)))
            }
        };
        if starts && !part.is_empty() {
            each(&part);
            part.clear();
            count += 1;
        }
        if kind != LetterKind::Seam {
            part.extend(letter.to_lowercase());
            whole.extend(letter.to_lowercase());
        }
    }
    if !part.is_empty() {
        each(&part);
        count += 1;
    }
    (count > 1).then_some(whole)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LetterKind {
    Upper,
    Lower,
    Digit,
    /// Letters without case, mostly of scripts without spaces between words.
    Other,
    Seam,
}

impl LetterKind {
    fn of(letter: char) -> Self {
        match letter {
            _ if letter.is_numeric() => Self::Digit,
            _ if letter.is_uppercase() => Self::Upper,
            _ if letter.is_lowercase() => Self::Lower,
            _ if letter.is_alphabetic() => Self::Other,
            _ => Self::Seam,
        }
    }
}

fn is_seam(before: LetterKind, here: LetterKind, next: Option<LetterKind>) -> bool {
    match (before, here) {
        // The last of several capitals starts the next word.
        (LetterKind::Upper, LetterKind::Upper) => next == Some(LetterKind::Lower),
        // Text of a script without spaces is split into pairs of letters later.
        (LetterKind::Upper, LetterKind::Lower) => false,
        (before, here) => before != here,
    }
}

/// Returns the runs of a text that [`parts`] splits.
pub(crate) fn runs(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !(letter.is_alphanumeric() || letter == '_')).filter(|run| !run.is_empty())
}

/// Returns a name without separators and case: `create-issue`, `createIssue` and `create_issue` are equal.
pub(crate) fn spelling(name: &str) -> String {
    name.chars().filter(|letter| letter.is_alphanumeric() || *letter == ':').flat_map(char::to_lowercase).collect()
}

/// Stems English words; others stay unchanged.
pub(crate) struct Stems(Stemmer);

impl Stems {
    pub(crate) fn new() -> Self {
        Self(Stemmer::create(Algorithm::English))
    }

    /// Calls `each` for the terms of one run, in order.
    pub(crate) fn terms(&self, run: &str, mut each: impl FnMut(&str)) {
        let whole = parts(run, |part| self.term(part, &mut each));
        if let Some(whole) = whole {
            self.term(&whole, &mut each);
        }
    }

    fn term(&self, part: &str, each: &mut impl FnMut(&str)) {
        if part.len() > MAX_WORD_BYTES || EMPTY_WORDS.binary_search(&part).is_ok() {
            return;
        }
        if part.is_ascii() {
            each(&self.0.stem(part));
        } else if part.starts_with(|first: char| LetterKind::of(first) == LetterKind::Other) {
            pairs(part, each);
        } else {
            each(part);
        }
    }
}

/// Splits text without spaces into overlapping pairs of letters.
fn pairs(part: &str, each: &mut impl FnMut(&str)) {
    let starts: Vec<usize> = part.char_indices().map(|(at, _)| at).chain([part.len()]).collect();
    if starts.len() <= 3 {
        return each(part);
    }
    for window in starts.windows(3) {
        if let [from, _, to] = window {
            each(part.get(*from..*to).unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{EMPTY_WORDS, Stems, runs};

    fn terms(text: &str) -> Vec<String> {
        let stems = Stems::new();
        let mut found = Vec::new();
        for run in runs(text) {
            stems.terms(run, |term| found.push(term.to_owned()));
        }
        found
    }

    #[test]
    fn identifiers_are_split_and_also_kept_whole() {
        assert_eq!(terms("getHTTPUser"), ["get", "http", "user", "gethttpus"]);
        assert_eq!(terms("create_issue"), ["creat", "issu", "createissu"]);
        assert_eq!(terms("mcp-server 12306"), ["mcp", "server", "12306"]);
        assert_eq!(terms("OAuth2"), ["o", "auth", "2", "oauth2"]);
    }

    #[test]
    fn stop_words_are_dropped_and_forms_of_a_word_are_equal() {
        assert_eq!(terms("Please tell me about the running of searches"), ["run", "search"]);
        assert!(EMPTY_WORDS.is_sorted());
    }

    #[test]
    fn text_without_spaces_is_split_into_pairs() {
        assert_eq!(terms("使用必应 天"), ["使用", "用必", "必应", "天"]);
        assert_eq!(terms("Wetter für morgen"), ["wetter", "für", "morgen"]);
    }
}
