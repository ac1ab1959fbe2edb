//! The sandbox through its frames.

mod frames;
mod jail;
mod lab;
mod limits;
mod snapshots;
mod world;
