//! The parameters of the ranking.

use super::document::FIELDS;

/// Parameters tuned on labelled requests by `make bench-search`; the order of fields is that of `Field::ALL`.
#[derive(Clone, Debug)]
pub struct Weights {
    /// The weight of a word, by field.
    pub field: [f32; FIELDS],
    /// How much a long text lowers the weight of its words: 0 not at all, 1 in proportion.
    pub length: [f32; FIELDS],
    pub saturation: f32,
    pub query_saturation: f32,
    /// The maximum number of repetitions in one field that count, so that keyword stuffing gains nothing.
    pub most_repeats: f32,
    /// The bonus if the request has all words of the name.
    pub name_coverage: f32,
    /// The weight of the best sentence, added to the whole request.
    pub sentences: f32,
    /// The weight of each field in the tool's vector.
    pub field_meaning: [f32; FIELDS],
    /// The minimum nearness of a tool that shares no word with the request.
    pub near_enough: f32,
    /// The weight of nearness in meaning, for a request without words.
    pub meaning: f32,
    /// The number of words that halves that weight: the more words there are, the better they distinguish tools.
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
