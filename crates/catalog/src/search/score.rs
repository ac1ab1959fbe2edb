//! The score of each tool: by words, by meaning and by name.

use super::lexical::to_unit;
use super::meaning::QueryVector;
use super::vocabulary::QueryReader;
use super::words::spelling;
use super::{Index, sentences};
use crate::text;

/// The maximum length of a request; the rest is ignored.
const MAX_QUERY_BYTES: usize = 8 << 10;

/// The maximum number of tools that are compared with the parts of a request.
const MAX_LIKELY: usize = 1_000;

/// More than words and meaning can add up to.
const EXACT: f32 = 100.0;

/// The scores of every tool, by its position.
pub(crate) struct Scores {
    /// Scaled so that the best match is 1.
    pub(crate) words: Vec<f32>,
    /// From 0, the farthest, to 1, the nearest.
    pub(crate) meaning: Option<Vec<f32>>,
    /// Whether the tool is near enough in meaning to be a hit without a matching word.
    is_near: Vec<bool>,
    pub(crate) total: Vec<f32>,
}

impl Scores {
    pub(crate) fn is_hit(&self, position: usize) -> bool {
        let has_words = self.words.get(position).is_some_and(|words| *words > 0.0);
        has_words
            || self.is_near.get(position).copied().unwrap_or_default()
            || self.total.get(position).is_some_and(|total| *total >= EXACT)
    }
}

impl Index {
    pub(crate) fn scores(&self, query: &str) -> Scores {
        let query = text::head(query, MAX_QUERY_BYTES);
        let parts = sentences::parts(query);
        let (words, count) = self.by_words(query, &parts);
        // The more words a request has, the better words alone distinguish tools.
        let share = self.weights.meaning / (1.0 + count as f32 / self.weights.meaning_halved_at_words);
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

    /// Returns the scores by words, the best being 1, and the number of words in the request.
    fn by_words(&self, query: &str, parts: &[&str]) -> (Vec<f32>, usize) {
        let mut reader = QueryReader::new(&self.vocabulary, &self.stems);
        let (words, count) = reader.read(query);
        let mut scores = self.postings.score(&words, self.tools.len(), &self.weights);
        if parts.is_empty() {
            return (scores, count);
        }
        let mut best = vec![0.0_f32; self.tools.len()];
        for part in parts {
            let part = self.postings.score(&reader.read(part).0, self.tools.len(), &self.weights);
            best.iter_mut().zip(part).for_each(|(best, part)| *best = best.max(part));
        }
        scores.iter_mut().zip(best).for_each(|(score, best)| *score += self.weights.sentences * best);
        to_unit(&mut scores);
        (scores, count)
    }

    /// Returns the scores by meaning, from 0 to 1, and which tools are near enough to be hits.
    fn by_meaning(
        &self,
        query: &str,
        parts: &[&str],
        so_far: impl Fn(usize, f32) -> f32,
    ) -> Option<(Vec<f32>, Vec<bool>)> {
        let meaning = self.meaning?;
        let mut scores = self.vectors.nearness(&meaning.of(query)?.to_query());
        let mut is_near: Vec<bool> = scores.iter().map(|near| *near >= self.weights.min_similarity).collect();
        from_zero_to_one(&mut scores);
        let parts: Vec<QueryVector> =
            parts.iter().filter_map(|part| meaning.of(part)).map(|part| part.to_query()).collect();
        if parts.is_empty() {
            return Some((scores, is_near));
        }
        let likely = likely(&scores, so_far);
        let mut best = vec![0.0_f32; likely.len()];
        for part in parts {
            let mut near: Vec<f32> = likely.iter().map(|tool| self.vectors.nearness_of(*tool, &part)).collect();
            for (tool, _) in likely.iter().zip(&near).filter(|(_, near)| **near >= self.weights.min_similarity) {
                is_near.get_mut(*tool).into_iter().for_each(|is_near| *is_near = true);
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

/// Returns the tools that are compared with the parts of a request; no other tool can reach the first places.
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
