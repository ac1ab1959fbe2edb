//! Finding the tool that somebody means: by its words, by their meaning, and first of all by its name.
//!
//! The same tools and the same request give the same answer on every machine: nothing here depends on time, chance or the
//! order in which tools were added.

mod document;
mod lexical;
mod meaning;
mod near;
mod sentences;
mod vocabulary;
mod weights;
mod words;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use lexical::{Counted, Postings, to_unit};
use meaning::{Asked, Vector, Vectors};
use vocabulary::{Asking, Reader, Vocabulary};
use words::Stems;

pub use document::{Document, Field};
pub use meaning::{Meaning, MeaningError};
pub use near::near;
pub use weights::Weights;

/// So many tools are compared with the parts of a request.
const MAX_LIKELY: usize = 1_000;

/// So much of a description counts for what a tool means.
const MAX_OPENING_CHARS: usize = 300;

/// More of a request is not read.
const MAX_QUERY_BYTES: usize = 8 << 10;

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

/// One tool, read once; an index made from this one takes it over as it is.
struct Tool {
    document: Document,
    counted: Counted,
    vector: Option<Vector>,
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
        let empty = Self {
            weights,
            meaning,
            stems: Stems::new(),
            vocabulary: Vocabulary::default(),
            tools: Vec::new(),
            postings: Postings::default(),
            vectors: Vectors::default(),
            names: HashMap::new(),
        };
        empty.updated(documents)
    }

    /// The index of these tools instead: the ones that were here and have not changed are not read again.
    pub fn updated(&self, documents: Vec<Document>) -> Self {
        let known: HashMap<&Document, &Arc<Tool>> = self.tools.iter().map(|tool| (&tool.document, tool)).collect();
        let mut vocabulary = self.vocabulary.clone();
        let stems = Stems::new();
        let mut reader = Reader::new(&mut vocabulary, &stems);
        let tools: Vec<Arc<Tool>> = documents
            .into_iter()
            .map(|document| match known.get(&document) {
                Some(tool) => Arc::clone(tool),
                None => Arc::new(Tool::read(document, &mut reader, self.meaning, &self.weights)),
            })
            .collect();
        let postings = postings(&tools, vocabulary.len(), &self.weights);
        let (vectors, names) = (vectors(&tools), names(&tools));
        Self {
            weights: self.weights.clone(),
            meaning: self.meaning,
            stems,
            vocabulary,
            tools,
            postings,
            vectors,
            names,
        }
    }

    /// The same tools, weighed otherwise.
    pub fn weighed(&self, weights: Weights) -> Self {
        let (vocabulary, tools) = (self.vocabulary.clone(), self.tools.clone());
        let postings = postings(&tools, vocabulary.len(), &weights);
        let (vectors, names) = (vectors(&tools), names(&tools));
        Self { weights, meaning: self.meaning, stems: Stems::new(), vocabulary, tools, postings, vectors, names }
    }

    pub fn len(&self) -> usize {
        self.tools.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// The best matches first, ties in the order of ids. Tools that `shown` refuses are not there.
    pub fn rank(&self, query: &str, limit: usize, shown: impl Fn(usize) -> bool) -> Vec<Hit> {
        let scores = self.scores(query);
        let mut hits: Vec<Hit> = scores
            .total
            .iter()
            .enumerate()
            .filter(|(position, score)| **score > 0.0 && scores.is_hit(*position) && shown(*position))
            .map(|(position, score)| Hit { position, score: *score })
            .collect();
        let order = |a: &Hit, b: &Hit| b.score.total_cmp(&a.score).then_with(|| self.id(a).cmp(self.id(b)));
        if limit == 0 {
            return Vec::new();
        }
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

    fn scores(&self, query: &str) -> Scores {
        let query = head(query);
        let parts = sentences::parts(query);
        let (words, count) = self.by_words(query, &parts);
        // The more words there are, the better they tell tools apart by themselves.
        let share = self.weights.meaning / (1.0 + count as f32 / self.weights.words_that_halve_meaning);
        let (meaning, is_near) = self
            .by_meaning(query, &parts, |tool, near| words.get(tool).map_or(0.0, |words| words + share * near))
            .unzip();
        let mut total = words.clone();
        if let Some(meaning) = &meaning {
            total.iter_mut().zip(meaning).for_each(|(total, near)| *total += share * near);
        }
        for position in self.names.get(&spelling(query)).into_iter().flatten() {
            total.get_mut(*position).into_iter().for_each(|total| *total += EXACT);
        }
        Scores { words, meaning, is_near: is_near.unwrap_or_default(), total }
    }

    /// The best match at one; and how many words were asked for.
    fn by_words(&self, query: &str, parts: &[&str]) -> (Vec<f32>, usize) {
        let mut asking = Asking::new(&self.vocabulary, &self.stems);
        let (words, count) = asking.read(query);
        let mut scores = self.postings.score(&words, self.tools.len(), &self.weights);
        if parts.is_empty() {
            return (scores, count);
        }
        let mut best = vec![0.0_f32; self.tools.len()];
        for part in parts {
            let part = self.postings.score(&asking.read(part).0, self.tools.len(), &self.weights);
            best.iter_mut().zip(part).for_each(|(best, part)| *best = best.max(part));
        }
        scores.iter_mut().zip(best).for_each(|(score, best)| *score += self.weights.sentences * best);
        to_unit(&mut scores);
        (scores, count)
    }

    /// The nearest at one, the farthest at zero; and which of them are near enough by themselves.
    fn by_meaning(
        &self,
        query: &str,
        parts: &[&str],
        so_far: impl Fn(usize, f32) -> f32,
    ) -> Option<(Vec<f32>, Vec<bool>)> {
        let meaning = self.meaning?;
        let mut scores = self.vectors.nearness(&meaning.of(query)?.asked());
        let mut is_near: Vec<bool> = scores.iter().map(|near| *near >= self.weights.near_enough).collect();
        from_zero_to_one(&mut scores);
        let parts: Vec<Asked> = parts.iter().filter_map(|part| meaning.of(part)).map(|part| part.asked()).collect();
        if parts.is_empty() {
            return Some((scores, is_near));
        }
        let likely = likely(&scores, so_far);
        let mut best = vec![0.0_f32; likely.len()];
        for part in parts {
            let mut near: Vec<f32> = likely.iter().map(|tool| self.vectors.nearness_of(*tool, &part)).collect();
            for (tool, near) in likely.iter().zip(&near).filter(|(_, near)| **near >= self.weights.near_enough) {
                is_near.get_mut(*tool).into_iter().for_each(|is_near| *is_near = *near >= self.weights.near_enough);
            }
            from_zero_to_one(&mut near);
            best.iter_mut().zip(near).for_each(|(best, near)| *best = best.max(near));
        }
        for (tool, best) in likely.into_iter().zip(best) {
            scores.get_mut(tool).into_iter().for_each(|score| *score += best);
        }
        from_zero_to_one(&mut scores);
        Some((scores, is_near))
    }
}

/// The tools that the parts of a request are compared with: nobody else gets among the first.
fn likely(near: &[f32], score: impl Fn(usize, f32) -> f32) -> Vec<usize> {
    let mut likely: Vec<(f32, usize)> =
        near.iter().enumerate().map(|(tool, near)| (score(tool, *near), tool)).collect();
    if likely.len() > MAX_LIKELY {
        likely.select_nth_unstable_by(MAX_LIKELY, |(a, left), (b, right)| b.total_cmp(a).then(left.cmp(right)));
        likely.truncate(MAX_LIKELY);
    }
    likely.into_iter().map(|(_, tool)| tool).collect()
}

fn from_zero_to_one(scores: &mut [f32]) {
    let least = scores.iter().copied().fold(f32::INFINITY, f32::min);
    scores.iter_mut().for_each(|score| *score -= least);
    to_unit(scores);
}

fn postings(tools: &[Arc<Tool>], terms: usize, weights: &Weights) -> Postings {
    let counted: Vec<&Counted> = tools.iter().map(|tool| &tool.counted).collect();
    Postings::new(&counted, terms, weights)
}

fn vectors(tools: &[Arc<Tool>]) -> Vectors {
    Vectors::new(tools.iter().map(|tool| tool.vector.as_ref()))
}

fn names(tools: &[Arc<Tool>]) -> HashMap<String, Vec<usize>> {
    let mut names: HashMap<String, Vec<usize>> = HashMap::new();
    for (position, tool) in tools.iter().enumerate() {
        for name in [&tool.document.id, &tool.document.name] {
            let called = names.entry(spelling(name)).or_default();
            if called.last() != Some(&position) && !name.is_empty() {
                called.push(position);
            }
        }
    }
    names.remove("");
    names
}

/// Above all that words and meaning can add up to.
const EXACT: f32 = 100.0;

struct Scores {
    words: Vec<f32>,
    /// From 0, the farthest, to 1, the nearest.
    meaning: Option<Vec<f32>>,
    /// Where no word matches, only these are near enough.
    is_near: Vec<bool>,
    total: Vec<f32>,
}

impl Scores {
    fn is_hit(&self, position: usize) -> bool {
        let has_words = self.words.get(position).is_some_and(|words| *words > 0.0);
        has_words
            || self.is_near.get(position).copied().unwrap_or_default()
            || self.total.get(position).is_some_and(|total| *total >= EXACT)
    }
}

impl Tool {
    fn read(document: Document, reader: &mut Reader<'_>, meaning: Option<&Meaning>, weights: &Weights) -> Self {
        let mut found = Vec::new();
        for (number, field) in (0_u8..).zip(Field::ALL) {
            reader.read(document.field(field), |term| found.push((term, number)));
        }
        let vector = meaning.and_then(|meaning| meant(&document, meaning, weights));
        Self { counted: Counted::new(found), vector, document }
    }
}

/// Names as the words they are made of.
fn in_words(name: &str) -> String {
    let mut text = String::new();
    for run in words::runs(name) {
        words::parts(run, |part| {
            text.push_str(part);
            text.push(' ');
        });
    }
    text
}

/// What a tool says of itself, every field in its weight.
fn meant(document: &Document, meaning: &Meaning, weights: &Weights) -> Option<Vector> {
    let texts: Vec<(Cow<'_, str>, f32)> = Field::ALL
        .into_iter()
        .zip(weights.field_meaning)
        .map(|(field, weight)| {
            let text = document.field(field);
            let is_name = matches!(field, Field::Name | Field::Owner | Field::ParameterNames);
            (if is_name { Cow::Owned(in_words(text)) } else { Cow::Borrowed(opening(text)) }, weight)
        })
        .collect();
    let texts: Vec<(&str, f32)> = texts.iter().map(|(text, weight)| (text.as_ref(), *weight)).collect();
    meaning.of_parts(&texts)
}

/// What something is, is said first; the rest is detail that blurs it.
fn opening(text: &str) -> &str {
    text.char_indices().nth(MAX_OPENING_CHARS).map_or(text, |(end, _)| text.get(..end).unwrap_or(text))
}

/// A name without seams and case: `create-issue`, `createIssue` and `create_issue` are one.
fn spelling(name: &str) -> String {
    name.chars().filter(|letter| letter.is_alphanumeric() || *letter == ':').flat_map(char::to_lowercase).collect()
}

fn head(query: &str) -> &str {
    let end = (0..=MAX_QUERY_BYTES.min(query.len())).rev().find(|end| query.is_char_boundary(*end)).unwrap_or(0);
    query.get(..end).unwrap_or_default()
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
