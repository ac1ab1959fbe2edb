//! Okapi BM25 over one bag of words per tool.

use std::collections::HashMap;

pub(crate) struct Bm25 {
    terms: HashMap<String, Vec<(usize, f32)>>,
    tools: usize,
}

impl Bm25 {
    pub(crate) fn new(texts: &[Vec<String>], k1: f32, b: f32) -> Self {
        let average = texts.iter().map(Vec::len).sum::<usize>() as f32 / texts.len().max(1) as f32;
        let mut terms: HashMap<String, Vec<(usize, f32)>> = HashMap::new();
        for (tool, words) in texts.iter().enumerate() {
            let mut counts: HashMap<&str, f32> = HashMap::new();
            words.iter().for_each(|word| *counts.entry(word).or_default() += 1.0);
            let norm = k1 * (1.0 - b + b * words.len() as f32 / average.max(1.0));
            for (word, count) in counts {
                terms.entry(word.to_owned()).or_default().push((tool, count * (k1 + 1.0) / (count + norm)));
            }
        }
        for tools in terms.values_mut() {
            let having = tools.len() as f32;
            let rarity = (1.0 + (texts.len() as f32 - having + 0.5) / (having + 0.5)).ln();
            tools.iter_mut().for_each(|(_, weight)| *weight *= rarity);
        }
        Self { terms, tools: texts.len() }
    }

    pub(crate) fn add(&self, word: &str, factor: f32, scores: &mut [f32]) {
        for (tool, weight) in self.terms.get(word).into_iter().flatten() {
            if let Some(score) = scores.get_mut(*tool) {
                *score += factor * weight;
            }
        }
    }

    pub(crate) fn zeros(&self) -> Vec<f32> {
        vec![0.0; self.tools]
    }
}

/// Returns the tools with a positive score, best first; ties are in the order of the tools.
pub(crate) fn best(scores: &[f32], limit: usize) -> Vec<usize> {
    let mut order: Vec<usize> =
        (0..scores.len()).filter(|tool| scores.get(*tool).is_some_and(|score| *score > 0.0)).collect();
    let score = |tool: &usize| scores.get(*tool).copied().unwrap_or_default();
    order.sort_by(|a, b| score(b).total_cmp(&score(a)).then(a.cmp(b)));
    order.truncate(limit);
    order
}
