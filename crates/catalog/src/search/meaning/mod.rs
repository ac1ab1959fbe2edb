//! Nearness in meaning: the vector of a text is the sum of its words' vectors, from a precomputed table.

mod pieces;
mod table;
mod vector;

pub use table::{EmbeddingTable, MeaningError};
pub(crate) use vector::{QueryVector, Vector, Vectors};
