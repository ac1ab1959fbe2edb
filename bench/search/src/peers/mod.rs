//! Rankings to compare with.

mod bm25;
pub(crate) mod incumbent;
pub(crate) mod plain;
