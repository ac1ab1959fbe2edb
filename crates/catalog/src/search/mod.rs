//! Finding the tool that somebody means: by its words, by their meaning, and first of all by its name.
//!
//! The same tools and the same request give the same answer on every machine: nothing here depends on time, chance or the
//! order in which tools were added.

mod document;
mod lexical;
mod meaning;
mod near;
mod score;
mod sentences;
mod tool;
mod vocabulary;
mod weights;
mod words;

use std::collections::HashMap;
use std::sync::Arc;

use lexical::{Counted, Postings};
use meaning::Vectors;
use tool::Tool;
use vocabulary::{Reader, Vocabulary};
use words::{Stems, spelling};

pub use document::{Document, Field};
pub use meaning::{Meaning, MeaningError};
pub use near::near;
pub use weights::Weights;

/// Tools, ready to be found.
pub struct Index {
    weights: Weights,
    meaning: Option<&'static Meaning>,
    stems: Stems,
    vocabulary: Vocabulary,
    tools: Vec<Arc<Tool>>,
    postings: Postings,
    vectors: Vectors,
    /// Ids and names as people type them, and who is called so.
    names: HashMap<String, Vec<usize>>,
}

/// A tool that was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit {
    /// Its position among the documents that were given.
    pub position: usize,
    pub score: f32,
}

/// What spoke for a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Why {
    /// The request is its name or its id.
    pub exact: bool,
    /// From 0 to 1, the best match of words being 1.
    pub words: f32,
    /// From 0 to 1, the nearest in meaning being 1; nothing without a table of meanings.
    pub meaning: Option<f32>,
    /// Words of the request that the tool has, and what each says for it.
    pub matched: Vec<(String, f32)>,
}

impl Index {
    /// Without a table of meanings only words count.
    pub fn new(documents: Vec<Document>, meaning: Option<&'static Meaning>, weights: Weights) -> Self {
        Self::assembled(Vec::new(), Vocabulary::default(), meaning, weights).updated(documents)
    }

    /// The index of these tools instead: the ones that were here and have not changed are not read again.
    pub fn updated(&self, documents: Vec<Document>) -> Self {
        let known: HashMap<&Document, &Arc<Tool>> = self.tools.iter().map(|tool| (&tool.document, tool)).collect();
        let mut vocabulary = self.vocabulary.clone();
        let mut reader = Reader::new(&mut vocabulary, &self.stems);
        let tools: Vec<Arc<Tool>> = documents
            .into_iter()
            .map(|document| match known.get(&document) {
                Some(tool) => Arc::clone(tool),
                None => Arc::new(Tool::read(document, &mut reader, self.meaning, &self.weights)),
            })
            .collect();
        Self::assembled(tools, vocabulary, self.meaning, self.weights.clone())
    }

    /// The same tools, weighed otherwise.
    pub fn weighed(&self, weights: Weights) -> Self {
        Self::assembled(self.tools.clone(), self.vocabulary.clone(), self.meaning, weights)
    }

    fn assembled(
        tools: Vec<Arc<Tool>>,
        vocabulary: Vocabulary,
        meaning: Option<&'static Meaning>,
        weights: Weights,
    ) -> Self {
        let counted: Vec<&Counted> = tools.iter().map(|tool| &tool.counted).collect();
        Self {
            postings: Postings::new(&counted, vocabulary.len(), &weights),
            vectors: Vectors::new(tools.iter().map(|tool| tool.vector.as_ref())),
            names: names(&tools),
            stems: Stems::new(),
            weights,
            meaning,
            vocabulary,
            tools,
        }
    }

    pub fn len(&self) -> usize {
        self.tools.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// The best matches first, ties in the order of ids. Tools that `shown` refuses are not there.
    pub fn rank(&self, query: &str, limit: usize, shown: impl Fn(usize) -> bool) -> Vec<Hit> {
        if limit == 0 {
            return Vec::new();
        }
        let scores = self.scores(query);
        let mut hits: Vec<Hit> = scores
            .total
            .iter()
            .enumerate()
            .filter(|(position, score)| **score > 0.0 && scores.is_hit(*position) && shown(*position))
            .map(|(position, score)| Hit { position, score: *score })
            .collect();
        let order = |a: &Hit, b: &Hit| b.score.total_cmp(&a.score).then_with(|| self.id(a).cmp(self.id(b)));
        if limit < hits.len() {
            hits.select_nth_unstable_by(limit - 1, order);
            hits.truncate(limit);
        }
        hits.sort_unstable_by(order);
        hits
    }

    /// Why a tool is where it is in the ranking.
    pub fn explain(&self, query: &str, position: usize) -> Option<Why> {
        self.tools.get(position)?;
        let scores = self.scores(query);
        let mut matched = Vec::new();
        for run in words::runs(query) {
            self.stems.terms(run, |term| {
                let says = self.vocabulary.get(term).map(|term| self.postings.says(term, position)).unwrap_or_default();
                if says > 0.0 && !matched.iter().any(|(known, _)| known == term) {
                    matched.push((term.to_owned(), says));
                }
            });
        }
        Some(Why {
            exact: self.names.get(&spelling(query)).is_some_and(|called| called.contains(&position)),
            words: scores.words.get(position).copied().unwrap_or_default(),
            meaning: scores.meaning.and_then(|meaning| meaning.get(position).copied()),
            matched,
        })
    }

    fn id(&self, hit: &Hit) -> &str {
        self.tools.get(hit.position).map(|tool| tool.document.id.as_str()).unwrap_or_default()
    }
}

fn names(tools: &[Arc<Tool>]) -> HashMap<String, Vec<usize>> {
    let mut names: HashMap<String, Vec<usize>> = HashMap::new();
    for (position, tool) in tools.iter().enumerate() {
        for name in [&tool.document.id, &tool.document.name] {
            let called = names.entry(spelling(name)).or_default();
            if called.last() != Some(&position) {
                called.push(position);
            }
        }
    }
    // A name of signs alone is spelled like no name at all.
    names.remove("");
    names
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Index")
            .field("tools", &self.tools.len())
            .field("terms", &self.vocabulary.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
