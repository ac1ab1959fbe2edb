//! Nearness in meaning: a text is the sum of its words' vectors, out of a table made beforehand.

mod pieces;
mod table;
mod vector;

pub use table::{Meaning, MeaningError};
pub(crate) use vector::{Asked, Vector, Vectors};
