//! Plain BM25 over name and description: the default of a search library.

use catalog::search::Document;

use super::bm25::{Bm25, best};

pub(crate) struct Plain(Bm25);

impl Plain {
    pub(crate) fn new(documents: &[Document]) -> Self {
        let texts: Vec<Vec<String>> =
            documents.iter().map(|tool| words(&format!("{} {}", tool.name, tool.description))).collect();
        Self(Bm25::new(&texts, 1.5, 0.75))
    }

    pub(crate) fn rank(&self, query: &str, limit: usize) -> Vec<usize> {
        let mut scores = self.0.zeros();
        words(query).iter().for_each(|word| self.0.add(word, 1.0, &mut scores));
        best(&scores, limit)
    }
}

fn words(text: &str) -> Vec<String> {
    let words = text.split(|letter: char| !(letter.is_alphanumeric() || letter == '_'));
    words.filter(|word| word.chars().count() > 1).map(str::to_lowercase).collect()
}
