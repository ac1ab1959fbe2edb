//! What others do, to be measured beside us.

mod bm25;
pub(crate) mod incumbent;
pub(crate) mod plain;
