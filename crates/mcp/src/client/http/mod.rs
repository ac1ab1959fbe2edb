//! The HTTP transport to servers: requests, and responses whose size is counted while they are read.

mod address;
mod answer;
mod caller;
mod client;
mod sse;

pub(crate) use address::AddressScope;
pub(crate) use answer::{Answer, Body, Content, Events, Failure, Share};
pub use caller::BadAddress;
pub(crate) use caller::{Caller, PostRequest};
pub use client::ClientBuildError;
pub(crate) use client::{build, guarded};
pub(crate) use sse::Event;
