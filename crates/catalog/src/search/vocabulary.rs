//! The words of a catalog's tools, numbered.

use std::collections::HashMap;

use super::words::{Stems, runs};

pub(crate) type TermId = u32;

/// Stemming a word costs more than all else that is done with it, and descriptions repeat themselves.
const MAX_REMEMBERED: usize = 200_000;

#[derive(Clone, Debug, Default)]
pub(crate) struct Vocabulary {
    terms: HashMap<Box<str>, TermId>,
}

impl Vocabulary {
    pub(crate) fn len(&self) -> usize {
        self.terms.len()
    }

    /// The terms of a request that some tool has, and how often; in the order in which they come.
    pub(crate) fn known(&self, stems: &Stems, text: &str) -> Vec<(TermId, f32)> {
        let mut found: Vec<(TermId, f32)> = Vec::new();
        for run in runs(text) {
            stems.terms(run, |term| {
                let Some(term) = self.terms.get(term) else { return };
                match found.iter_mut().find(|(known, _)| known == term) {
                    Some((_, count)) => *count += 1.0,
                    None => found.push((*term, 1.0)),
                }
            });
        }
        found
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

/// Reads texts into numbers, adding to a vocabulary as it goes.
pub(crate) struct Reader<'a> {
    vocabulary: &'a mut Vocabulary,
    stems: &'a Stems,
    remembered: HashMap<Box<str>, Box<[TermId]>>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(vocabulary: &'a mut Vocabulary, stems: &'a Stems) -> Self {
        Self { vocabulary, stems, remembered: HashMap::new() }
    }

    /// Every term of the text, as often as it stands there.
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
