//! Test support: runs the executable contract (`spec/cells/*.md`) and hostile cells (`spec/hostile`), and provides
//! Postgres servers, a proxy in front of them that cuts connections, a ledger that records the effects of tool calls, a
//! scripted model, workers with another guest image, and what the operating system says about processes. Used in
//! development only.

pub mod case;
pub mod hostile;
pub mod ledger;
pub mod model;
pub mod other_image;
pub mod postgres;
pub mod processes;
pub mod proxy;
pub mod runner;
