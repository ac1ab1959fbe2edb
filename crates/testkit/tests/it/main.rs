//! What the contract promises, shown through the real parts; and what must hold when the host is killed.

mod desk;
mod witness;
mod world;

mod activation;
mod contract_map;
mod visibility;

mod approvals;
mod hooks;
mod standing_rules;

mod codes;
mod ending;
mod expiry;
mod waiting;

mod namespaces;
mod secrets;
mod transcript;

mod host;
mod killed;
