//! Test support: runs the executable contract (`spec/cells/*.md`) and hostile cells (`spec/hostile`), and provides
//! Postgres servers, a ledger of tool effects, a scripted model and fake workers. Used in development only.

pub mod case;
pub mod hostile;
pub mod ledger;
pub mod model;
pub mod other_image;
pub mod postgres;
pub mod proxy;
pub mod runner;
