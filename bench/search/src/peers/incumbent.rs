//! The incumbent's ranking, re-created from its description: BM25 (k1 1.2, b 0.75) over id, name and description, with
//! identifiers split into words, a light stemmer, and words of the same intent at a discount, below literal matches.

use catalog::search::Document;

use super::bm25::{Bm25, best};

/// Groups of words with the same intent.
const INTENTS: [&[&str]; 7] = [
    &["search", "find", "lookup", "query"],
    &["create", "add", "new", "make"],
    &["delete", "remove"],
    &["update", "edit", "change", "modify"],
    &["send", "post"],
    &["read", "get", "fetch", "retrieve"],
    &["list", "show"],
];

const DISCOUNT: f32 = 0.3;

const EMPTY_WORDS: &str = " a an and are as at be by can do for from how i in is it me my of on or please that the this \
    to use want what when where which with you your ";

pub(crate) struct Incumbent(Bm25);

impl Incumbent {
    pub(crate) fn new(documents: &[Document]) -> Self {
        let text = |tool: &Document| words(&format!("{} {} {}", tool.name, tool.id, tool.description));
        let texts: Vec<Vec<String>> = documents.iter().map(text).collect();
        Self(Bm25::new(&texts, 1.2, 0.75))
    }

    pub(crate) fn rank(&self, query: &str, limit: usize) -> Vec<usize> {
        let mut asked = words(query);
        asked.sort();
        asked.dedup();
        let mut scores = self.0.zeros();
        asked.iter().for_each(|word| self.0.add(word, 1.0, &mut scores));
        for word in &asked {
            let same = INTENTS.iter().find(|intent| intent.iter().any(|other| stem(other) == *word));
            for other in same.into_iter().flat_map(|intent| intent.iter()).map(|other| stem(other)) {
                if !asked.contains(&other) {
                    self.0.add(&other, DISCOUNT, &mut scores);
                }
            }
        }
        best(&scores, limit)
    }
}

fn words(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut word = String::new();
    let mut before = ' ';
    for letter in text.chars().chain([' ']) {
        let seam = !letter.is_alphanumeric() || (letter.is_uppercase() && before.is_lowercase());
        if seam && !word.is_empty() {
            let lower = word.to_lowercase();
            if !EMPTY_WORDS.contains(&format!(" {lower} ")) {
                found.push(stem(&lower));
            }
            word.clear();
        }
        if letter.is_alphanumeric() {
            word.push(letter);
        }
        before = letter;
    }
    found
}

/// Removes plurals and the commonest endings.
fn stem(word: &str) -> String {
    if word.len() > 4 {
        for (ending, instead) in [("ies", "y"), ("ing", ""), ("ed", ""), ("es", ""), ("s", ""), ("e", "")] {
            if let Some(head) = word.strip_suffix(ending).filter(|head| head.len() > 2 && !head.ends_with('s')) {
                return format!("{head}{instead}");
            }
        }
    }
    word.to_owned()
}
