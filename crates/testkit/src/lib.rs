//! Development only: the executable contract, read from `spec/cells/*.md`, and hostile cells with their judge.

pub mod case;
pub mod hostile;
pub mod ledger;
pub mod other_image;
pub mod postgres;
pub mod proxy;
pub mod runner;
