//! The numbers of the ranking.

use super::document::FIELDS;

/// Chosen on labelled requests by `make bench-search`; the order of fields is `Field::ALL`'s.
#[derive(Clone, Debug)]
pub struct Weights {
    /// What a word weighs where it stands.
    pub field: [f32; FIELDS],
    /// How much a long text is held against its words: 0 not at all, 1 in proportion.
    pub length: [f32; FIELDS],
    pub saturation: f32,
    pub query_saturation: f32,
    /// Repeating a word more often than this in one field adds nothing: servers that stuff keywords gain nothing by it.
    pub most_repeats: f32,
    /// What it adds that the request has all words of the name.
    pub name_coverage: f32,
    /// What the best of the sentences adds to the whole request.
    pub sentences: f32,
    /// What each field's meaning weighs in the tool's.
    pub field_meaning: [f32; FIELDS],
    /// A tool that shares no word with the request has to be at least this near.
    pub near_enough: f32,
    /// What nearness in meaning adds to matching words, for a request without any.
    pub meaning: f32,
    /// So many words halve that: the more words there are, the better they tell tools apart by themselves.
    pub words_that_halve_meaning: f32,
}

impl Weights {
    pub const SHIPPED: Self = Self {
        field: [2.0, 1.0, 0.5, 0.5, 4.0, 2.0],
        length: [0.75, 0.35, 0.65, 0.35, 0.9, 0.2],
        saturation: 1.2,
        query_saturation: 1.2,
        most_repeats: 3.0,
        name_coverage: 0.2,
        sentences: 1.0,
        field_meaning: [0.3, 1.0, 0.4, 0.3, 0.5, 0.2],
        near_enough: 0.25,
        meaning: 4.0,
        words_that_halve_meaning: 10.0,
    };
}
