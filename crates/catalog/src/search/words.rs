//! Text into words: identifiers taken apart, words that say nothing left out, the rest reduced to their stems.

use rust_stemmers::{Algorithm, Stemmer};

/// Longer runs of letters are data, not words.
const MAX_WORD_BYTES: usize = 40;

/// Words of a request that say nothing about the tool.
const EMPTY_WORDS: &[&str] = &[
    "a", "about", "all", "also", "am", "an", "and", "any", "are", "as", "at", "be", "been", "but", "by", "can",
    "could", "d", "did", "do", "does", "for", "from", "give", "had", "has", "have", "help", "here", "how", "i", "if",
    "in", "into", "is", "it", "its", "just", "know", "let", "like", "ll", "m", "me", "my", "need", "no", "not", "of",
    "on", "or", "our", "please", "re", "s", "should", "show", "so", "some", "t", "tell", "than", "thank", "thanks",
    "that", "the", "their", "them", "then", "there", "these", "they", "this", "to", "us", "use", "using", "ve", "want",
    "was", "we", "were", "what", "when", "where", "which", "who", "why", "will", "with", "would", "you", "your",
    "yours",
];

/// What a run of letters, digits and underscores is made of: `getHTTPUser_v2` is `get http user v 2`. Where there is
/// more than one part, all of it in one is handed back, `gethttpuserv2`: people write names without their seams.
pub(crate) fn parts(run: &str, mut each: impl FnMut(&str)) -> Option<String> {
    let letters: Vec<char> = run.chars().collect();
    let mut part = String::new();
    let mut whole = String::new();
    let mut count = 0;
    for (at, letter) in letters.iter().enumerate() {
        let kind = Kind::of(*letter);
        let starts = match (at.checked_sub(1).and_then(|before| letters.get(before)), kind) {
            (_, Kind::Seam) => true,
            (None, _) => false,
            (Some(before), _) => is_seam(Kind::of(*before), kind, letters.get(at + 1).map(|next| Kind::of(*next))),
        };
        if starts && !part.is_empty() {
            each(&part);
            part.clear();
            count += 1;
        }
        if kind != Kind::Seam {
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
enum Kind {
    Upper,
    Lower,
    Digit,
    /// Letters without case: a script that does not put spaces between words, mostly.
    Other,
    Seam,
}

impl Kind {
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

fn is_seam(before: Kind, here: Kind, next: Option<Kind>) -> bool {
    match (before, here) {
        // The last capital of several begins the next word.
        (Kind::Upper, Kind::Upper) => next == Some(Kind::Lower),
        // A script without spaces is read in pairs of letters, further down.
        (Kind::Upper, Kind::Lower) => false,
        (before, here) => before != here,
    }
}

/// The runs of a text that [`parts`] takes apart.
pub(crate) fn runs(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !(letter.is_alphanumeric() || letter == '_')).filter(|run| !run.is_empty())
}

/// A name without seams and case: `create-issue`, `createIssue` and `create_issue` are one.
pub(crate) fn spelling(name: &str) -> String {
    name.chars().filter(|letter| letter.is_alphanumeric() || *letter == ':').flat_map(char::to_lowercase).collect()
}

/// Reduces words of English to their stems; other words stay what they are.
pub(crate) struct Stems(Stemmer);

impl Stems {
    pub(crate) fn new() -> Self {
        Self(Stemmer::create(Algorithm::English))
    }

    /// The terms of one run, in order.
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
        } else if part.starts_with(|first: char| Kind::of(first) == Kind::Other) {
            pairs(part, each);
        } else {
            each(part);
        }
    }
}

/// Overlapping pairs of letters, which is how text without spaces is matched.
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
    fn stop_words_are_dropped_and_forms_of_a_word_are_merged() {
        assert_eq!(terms("Please tell me about the running of searches"), ["run", "search"]);
        assert!(EMPTY_WORDS.is_sorted());
    }

    #[test]
    fn a_script_without_spaces_is_split_into_pairs() {
        assert_eq!(terms("使用必应 天"), ["使用", "用必", "必应", "天"]);
        assert_eq!(terms("Wetter für morgen"), ["wetter", "für", "morgen"]);
    }
}
