//! A tool in the index: its term counts and its vector.

use std::borrow::Cow;

use super::document::{Document, Field};
use super::lexical::TermCounts;
use super::meaning::{EmbeddingTable, Vector};
use super::vocabulary::Reader;
use super::weights::Weights;
use super::words;

/// The maximum length of the part of a description that counts for a tool's meaning.
const MAX_OPENING_CHARS: usize = 300;

/// Immutable after it is read, so that updated indexes share it.
pub(crate) struct Tool {
    pub(crate) document: Document,
    pub(crate) counts: TermCounts,
    pub(crate) vector: Option<Vector>,
}

impl Tool {
    pub(crate) fn read(
        document: Document,
        reader: &mut Reader<'_>,
        meaning: Option<&EmbeddingTable>,
        weights: &Weights,
    ) -> Self {
        let mut found = Vec::new();
        for (number, field) in (0_u8..).zip(Field::ALL) {
            reader.read(document.field(field), |term| found.push((term, number)));
        }
        let vector = meaning.and_then(|meaning| meant(&document, meaning, weights));
        Self { counts: TermCounts::new(found), vector, document }
    }
}

/// Returns the vector of a tool's text, with every field weighted.
fn meant(document: &Document, meaning: &EmbeddingTable, weights: &Weights) -> Option<Vector> {
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

/// Splits a name into its words.
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

/// Returns the beginning of a text, which says what the tool is; later detail would blur the meaning.
fn opening(text: &str) -> &str {
    text.char_indices().nth(MAX_OPENING_CHARS).map_or(text, |(end, _)| text.get(..end).unwrap_or(text))
}
