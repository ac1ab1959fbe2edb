//! The sandbox through its frames.

mod lab;
mod limits;
mod world;
