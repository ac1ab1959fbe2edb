//! The sandbox through its frames.

mod lab;
mod frames;
mod jail;
mod limits;
mod snapshots;
mod world;
