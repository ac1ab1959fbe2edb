//! Development only: the executable contract, read from `spec/cells/*.md`.

pub mod case;
pub mod ledger;
pub mod runner;
