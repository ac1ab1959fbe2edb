//! The parameters of the ranking.

use super::document::FIELDS;

/// Parameters tuned on labelled requests by `make bench-search`; the order of fields is that of `Field::ALL`.
#[derive(Clone, Debug)]
pub struct Weights {
    /// The weight of a word that matches in this field.
    pub field: [f32; FIELDS],
    /// How much a field that is longer than average lowers the weight of its words, BM25's `b`: 0 not at all, 1 in
    /// proportion.
    pub length: [f32; FIELDS],
    /// How fast further occurrences of a word in a tool stop counting, BM25's `k1`: the smaller, the faster.
    pub saturation: f32,
    /// How fast further occurrences of a word in the request stop counting, BM25's `k3`.
    pub query_saturation: f32,
    /// The maximum number of occurrences in one field that count, so that keyword stuffing gains nothing.
    pub max_repeats: f32,
    /// The bonus of a tool whose name consists of words of the request.
    pub name_coverage: f32,
    /// The weight of a tool's score for the sentence of the request that matches it best. It is added to the tool's
    /// score for the whole request.
    pub sentences: f32,
    /// The weight of each field in the tool's embedding vector.
    pub field_meaning: [f32; FIELDS],
    /// The minimum similarity in meaning of a hit that shares no word with the request.
    pub min_similarity: f32,
    /// The weight of the similarity in meaning against that of matching words, before `meaning_halved_at_words` lowers
    /// it.
    pub meaning: f32,
    /// The number of words in a request at which `meaning` counts half: the more words a request has, the better
    /// matching words alone distinguish tools.
    pub meaning_halved_at_words: f32,
}

impl Weights {
    pub const SHIPPED: Self = Self {
        field: [2.0, 1.0, 0.5, 0.5, 4.0, 2.0],
        length: [0.75, 0.35, 0.65, 0.35, 0.9, 0.2],
        saturation: 1.2,
        query_saturation: 1.2,
        max_repeats: 3.0,
        name_coverage: 0.2,
        sentences: 1.0,
        field_meaning: [0.3, 1.0, 0.4, 0.3, 0.5, 0.2],
        min_similarity: 0.25,
        meaning: 4.0,
        meaning_halved_at_words: 10.0,
    };
}
