//! What the contract promises, shown through the real parts; and what must hold when the host is killed.

mod desk;
mod witness;
mod world;

mod activation;
mod hooks;
mod visibility;

mod approvals;
mod ending;
mod expiry;
mod standing_rules;
mod waiting;

mod host;
mod killed;
