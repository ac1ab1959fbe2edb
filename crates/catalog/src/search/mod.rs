//! Tool search by words and by their meaning. Tools whose name or id is the request come first.
//!
//! A search is deterministic: equal tools and an equal request give an equal result on every machine. Nothing here
//! depends on time, randomness or the order in which tools were added.

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

use lexical::{Postings, TermCounts};
use meaning::Vectors;
use tool::Tool;
use vocabulary::{Reader, Vocabulary};
use words::{Stems, spelling};

pub use document::{Document, Field};
pub use meaning::{EmbeddingTable, MeaningError};
pub use near::near;
pub use weights::Weights;

/// A search index of tools.
pub struct Index {
    weights: Weights,
    meaning: Option<&'static EmbeddingTable>,
    stems: Stems,
    vocabulary: Vocabulary,
    tools: Vec<Arc<Tool>>,
    postings: Postings,
    vectors: Vectors,
    /// Normalised ids and names, and the positions of the tools that have them.
    names: HashMap<String, Vec<usize>>,
}

/// A tool that was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit {
    /// The tool's position in the list of documents.
    pub position: usize,
    pub score: f32,
}

/// The explanation of a tool's score.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoreExplanation {
    /// Whether the request is the tool's name or id.
    pub exact: bool,
    /// From 0 to 1, where 1 is the best match of words.
    pub words: f32,
    /// From 0 to 1, where 1 is the nearest in meaning; `None` without an embedding table.
    pub meaning: Option<f32>,
    /// Stems of the request's words that the tool contains, with the score of each.
    pub matched: Vec<(String, f32)>,
}

impl Index {
    /// Builds an index. Without an embedding table, only words are matched.
    pub fn new(documents: Vec<Document>, meaning: Option<&'static EmbeddingTable>, weights: Weights) -> Self {
        Self::assemble(Vec::new(), Vocabulary::default(), meaning, weights).updated(documents)
    }

    /// Builds an index of these tools. The work for tools that this index already has, unchanged, is not repeated.
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
        Self::assemble(tools, vocabulary, self.meaning, self.weights.clone())
    }

    /// Builds an index of these tools with other weights. The tools keep their vectors, so a change of
    /// `Weights::field_meaning` has no effect on them.
    pub fn with_weights(&self, weights: Weights) -> Self {
        Self::assemble(self.tools.clone(), self.vocabulary.clone(), self.meaning, weights)
    }

    /// Builds the parts of an index that depend on all tools or on the weights.
    fn assemble(
        tools: Vec<Arc<Tool>>,
        vocabulary: Vocabulary,
        meaning: Option<&'static EmbeddingTable>,
        weights: Weights,
    ) -> Self {
        let counts: Vec<&TermCounts> = tools.iter().map(|tool| &tool.counts).collect();
        Self {
            postings: Postings::new(&counts, vocabulary.len(), &weights),
            vectors: Vectors::new(tools.iter().map(|tool| tool.vector.as_ref())),
            names: positions_by_name(&tools),
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

    /// Returns up to `limit` tools that match, among those whose position `is_visible` accepts. The best match is first;
    /// equal scores are in the order of ids.
    pub fn rank(&self, query: &str, limit: usize, is_visible: impl Fn(usize) -> bool) -> Vec<Hit> {
        if limit == 0 {
            return Vec::new();
        }
        let scores = self.scores(query);
        let mut hits: Vec<Hit> = scores
            .total
            .iter()
            .enumerate()
            .filter(|(position, score)| **score > 0.0 && scores.is_hit(*position) && is_visible(*position))
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

    /// Explains a tool's score; `None` if there is no tool at this position.
    pub fn explain(&self, query: &str, position: usize) -> Option<ScoreExplanation> {
        self.tools.get(position)?;
        let scores = self.scores(query);
        let mut matched = Vec::new();
        for run in words::runs(query) {
            self.stems.terms(run, |term| {
                let score =
                    self.vocabulary.get(term).map(|term| self.postings.term_score(term, position)).unwrap_or_default();
                if score > 0.0 && !matched.iter().any(|(known, _)| known == term) {
                    matched.push((term.to_owned(), score));
                }
            });
        }
        Some(ScoreExplanation {
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

/// Returns the positions of tools by their normalised ids and names.
fn positions_by_name(tools: &[Arc<Tool>]) -> HashMap<String, Vec<usize>> {
    let mut names: HashMap<String, Vec<usize>> = HashMap::new();
    for (position, tool) in tools.iter().enumerate() {
        for name in [&tool.document.id, &tool.document.name] {
            let called = names.entry(spelling(name)).or_default();
            if called.last() != Some(&position) {
                called.push(position);
            }
        }
    }
    // A name of punctuation alone normalises to nothing.
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
