//! The terms of a catalog's tools, numbered.

use std::collections::HashMap;

use super::words::{Stems, runs};

pub(crate) type TermId = u32;

/// The maximum number of words whose stems are cached: stemming costs more than the rest of indexing, and descriptions
/// repeat themselves.
const MAX_REMEMBERED: usize = 200_000;

#[derive(Clone, Debug, Default)]
pub(crate) struct Vocabulary {
    terms: HashMap<Box<str>, TermId>,
}

impl Vocabulary {
    pub(crate) fn len(&self) -> usize {
        self.terms.len()
    }

    pub(crate) fn get(&self, term: &str) -> Option<TermId> {
        self.terms.get(term).copied()
    }

    fn number(&mut self, term: &str) -> TermId {
        if let Some(known) = self.terms.get(term) {
            return *known;
        }
        let number = TermId::try_from(self.terms.len()).unwrap_or(TermId::MAX);
        self.terms.insert(term.into(), number);
        number
    }
}

/// Reads texts into term numbers and adds new terms to a vocabulary.
pub(crate) struct Reader<'a> {
    vocabulary: &'a mut Vocabulary,
    stems: &'a Stems,
    remembered: HashMap<Box<str>, Box<[TermId]>>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(vocabulary: &'a mut Vocabulary, stems: &'a Stems) -> Self {
        Self { vocabulary, stems, remembered: HashMap::new() }
    }

    /// Calls `each` for every occurrence of a term in the text.
    pub(crate) fn read(&mut self, text: &str, mut each: impl FnMut(TermId)) {
        for run in runs(text) {
            if let Some(terms) = self.remembered.get(run) {
                terms.iter().copied().for_each(&mut each);
                continue;
            }
            let mut terms = Vec::new();
            self.stems.terms(run, |term| terms.push(self.vocabulary.number(term)));
            terms.iter().copied().for_each(&mut each);
            if self.remembered.len() < MAX_REMEMBERED {
                self.remembered.insert(run.into(), terms.into_boxed_slice());
            }
        }
    }
}

/// Reads a request and its parts; each word is stemmed only once.
pub(crate) struct QueryReader<'a> {
    vocabulary: &'a Vocabulary,
    stems: &'a Stems,
    remembered: HashMap<&'a str, Terms>,
}

/// The terms of one run of letters.
#[derive(Default)]
struct Terms {
    known: Vec<TermId>,
    count: usize,
}

impl<'a> QueryReader<'a> {
    pub(crate) fn new(vocabulary: &'a Vocabulary, stems: &'a Stems) -> Self {
        Self { vocabulary, stems, remembered: HashMap::new() }
    }

    /// Returns the terms that some tool contains, with their counts, in the order of the text, and the number of words.
    pub(crate) fn read(&mut self, text: &'a str) -> (Vec<(TermId, f32)>, usize) {
        let mut found: Vec<(TermId, f32)> = Vec::new();
        let mut count = 0;
        for run in runs(text) {
            let terms = self.remembered.entry(run).or_insert_with(|| {
                let mut terms = Terms::default();
                self.stems.terms(run, |term| {
                    terms.count += 1;
                    terms.known.extend(self.vocabulary.get(term));
                });
                terms
            });
            count += terms.count;
            for term in &terms.known {
                match found.iter_mut().find(|(known, _)| known == term) {
                    Some((_, count)) => *count += 1.0,
                    None => found.push((*term, 1.0)),
                }
            }
        }
        (found, count)
    }
}
