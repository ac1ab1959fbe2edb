//! One tool as a search knows it: its words counted, its meaning weighed.

use std::borrow::Cow;

use super::document::{Document, Field};
use super::lexical::Counted;
use super::meaning::{Meaning, Vector};
use super::vocabulary::Reader;
use super::weights::Weights;
use super::words;

/// So much of a description counts for what a tool means.
const MAX_OPENING_CHARS: usize = 300;

/// Read once; an index made from another takes it over as it is.
pub(crate) struct Tool {
    pub(crate) document: Document,
    pub(crate) counted: Counted,
    pub(crate) vector: Option<Vector>,
}

impl Tool {
    pub(crate) fn read(
        document: Document,
        reader: &mut Reader<'_>,
        meaning: Option<&Meaning>,
        weights: &Weights,
    ) -> Self {
        let mut found = Vec::new();
        for (number, field) in (0_u8..).zip(Field::ALL) {
            reader.read(document.field(field), |term| found.push((term, number)));
        }
        let vector = meaning.and_then(|meaning| meant(&document, meaning, weights));
        Self { counted: Counted::new(found), vector, document }
    }
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

/// What something is, is said first; the rest is detail that blurs it.
fn opening(text: &str) -> &str {
    text.char_indices().nth(MAX_OPENING_CHARS).map_or(text, |(end, _)| text.get(..end).unwrap_or(text))
}
