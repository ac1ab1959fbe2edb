//! Lexical ranking: BM25 over weighted fields, with a bonus for matches in the name.

use super::document::FIELDS;
use super::vocabulary::TermId;
use super::weights::Weights;

/// The number of occurrences of each term in each field of a tool.
#[derive(Debug)]
pub(crate) struct TermCounts {
    /// Sorted by term.
    pub(crate) terms: Box<[(TermId, [u8; FIELDS])]>,
    pub(crate) lengths: [u16; FIELDS],
}

impl TermCounts {
    /// Counts terms given in any order, each with the number of its field.
    pub(crate) fn new(mut found: Vec<(TermId, u8)>) -> Self {
        let mut lengths = [0_u16; FIELDS];
        found.sort_unstable();
        let mut terms: Vec<(TermId, [u8; FIELDS])> = Vec::new();
        for (term, field) in found {
            if let Some(length) = lengths.get_mut(usize::from(field)) {
                *length = length.saturating_add(1);
            }
            if terms.last().is_none_or(|(last, _)| *last != term) {
                terms.push((term, [0; FIELDS]));
            }
            if let Some(count) = terms.last_mut().and_then(|(_, counts)| counts.get_mut(usize::from(field))) {
                *count = count.saturating_add(1);
            }
        }
        Self { terms: terms.into_boxed_slice(), lengths }
    }
}

/// The inverted index: for every term, the tools that contain it and its score there.
#[derive(Debug, Default)]
pub(crate) struct Postings {
    starts: Vec<u32>,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    tool: u32,
    weight: f32,
    /// The share of the name that this term makes up, by rarity; 0 if the name does not contain it.
    of_name: f32,
}

impl Postings {
    pub(crate) fn new(tools: &[&TermCounts], terms: usize, weights: &Weights) -> Self {
        let mut starts = vec![0_u32; terms + 1];
        for (term, _) in tools.iter().flat_map(|tool| tool.terms.iter()) {
            if let Some(count) = starts.get_mut(*term as usize + 1) {
                *count += 1;
            }
        }
        let rarity: Vec<f32> = starts.iter().skip(1).map(|count| rarity(*count, tools.len())).collect();
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        let mut next = starts.clone();
        let mut entries = vec![Entry::default(); sum as usize];
        let average = average_lengths(tools);
        for (number, tool) in (0_u32..).zip(tools) {
            let scale = scales(tool, &average, weights);
            let name = name_rarity(tool, &rarity);
            for (term, counts) in &tool.terms {
                let rarity = rarity.get(*term as usize).copied().unwrap_or_default();
                let entry = Entry {
                    tool: number,
                    weight: rarity * saturated(counts, &scale, weights),
                    of_name: if counts.first().is_some_and(|count| *count > 0) { rarity / name } else { 0.0 },
                };
                let Some(at) = next.get_mut(*term as usize) else { continue };
                if let Some(slot) = entries.get_mut(*at as usize) {
                    *slot = entry;
                }
                *at += 1;
            }
        }
        Self { starts, entries }
    }

    fn of(&self, term: TermId) -> &[Entry] {
        let term = term as usize;
        let (Some(from), Some(to)) = (self.starts.get(term), self.starts.get(term + 1)) else { return &[] };
        self.entries.get(*from as usize..*to as usize).unwrap_or_default()
    }

    /// Returns every tool's score for these words, scaled so that the best is 1.
    pub(crate) fn score(&self, words: &[(TermId, f32)], tools: usize, weights: &Weights) -> Vec<f32> {
        let mut scores = vec![0.0_f32; tools];
        let mut names = vec![0.0_f32; tools];
        for (term, count) in words {
            let asked = count * (1.0 + weights.query_saturation) / (count + weights.query_saturation);
            for entry in self.of(*term) {
                let at = entry.tool as usize;
                if let (Some(score), Some(name)) = (scores.get_mut(at), names.get_mut(at)) {
                    *score += asked * entry.weight;
                    *name += count.min(1.0) * entry.of_name;
                }
            }
        }
        let best = scores.iter().copied().fold(0.0, f32::max);
        for (score, name) in scores.iter_mut().zip(&names) {
            *score += weights.name_coverage * best * name.min(1.0);
        }
        to_unit(&mut scores);
        scores
    }

    /// Returns the score of one word for one tool.
    pub(crate) fn term_score(&self, term: TermId, tool: usize) -> f32 {
        let entries = self.of(term);
        let found = entries.binary_search_by_key(&tool, |entry| entry.tool as usize);
        found.ok().and_then(|at| entries.get(at)).map(|entry| entry.weight).unwrap_or_default()
    }
}

/// Scales scores so that the best is 1.
pub(crate) fn to_unit(scores: &mut [f32]) {
    let best = scores.iter().copied().fold(0.0, f32::max);
    if best > 0.0 {
        scores.iter_mut().for_each(|score| *score /= best);
    }
}

fn rarity(having: u32, tools: usize) -> f32 {
    let (having, tools) = (having as f32, tools as f32);
    (1.0 + (tools - having + 0.5) / (having + 0.5)).ln()
}

fn average_lengths(tools: &[&TermCounts]) -> [f32; FIELDS] {
    std::array::from_fn(|field| {
        let lengths = || tools.iter().filter_map(|tool| tool.lengths.get(field)).filter(|length| **length > 0);
        let sum: u64 = lengths().map(|length| u64::from(*length)).sum();
        let count = lengths().count();
        if count == 0 { 1.0 } else { sum as f32 / count as f32 }
    })
}

/// Returns the weight of one occurrence in each field: lower in a long text than in a short one.
fn scales(tool: &TermCounts, average: &[f32; FIELDS], weights: &Weights) -> [f32; FIELDS] {
    std::array::from_fn(|field| {
        let at = |values: &[f32; FIELDS]| values.get(field).copied().unwrap_or_default();
        let length = tool.lengths.get(field).copied().unwrap_or_default();
        let share = at(&weights.length);
        at(&weights.field) / (1.0 - share + share * f32::from(length) / at(average))
    })
}

/// Weighs repetitions, each less than the one before.
fn saturated(counts: &[u8; FIELDS], scale: &[f32; FIELDS], weights: &Weights) -> f32 {
    let sum: f32 =
        counts.iter().zip(scale).map(|(count, scale)| f32::from(*count).min(weights.max_repeats) * scale).sum();
    sum * (1.0 + weights.saturation) / (sum + weights.saturation)
}

fn name_rarity(tool: &TermCounts, rarity: &[f32]) -> f32 {
    let in_name = tool.terms.iter().filter(|(_, counts)| counts.first().is_some_and(|count| *count > 0));
    let sum: f32 = in_name.filter_map(|(term, _)| rarity.get(*term as usize)).sum();
    sum.max(f32::MIN_POSITIVE)
}
