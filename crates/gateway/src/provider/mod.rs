//! Models behind HTTP: one request to a provider, from its bytes to a complete response or a failure.
//!
//! [`Providers`] knows the configured providers and finds the one of a model. [`Provider::respond`] sends one request and
//! never retries it; [`RetryPolicy`] decides whether its caller may. [`verify`] checks the tools in the final bytes of
//! a request.

mod address;
mod client;
mod error;
mod limits;
mod registry;
mod retry;
mod verify;

pub use address::{Lookup, LookupFuture, SystemLookup};
pub use client::Provider;
pub use error::CallError;
pub use registry::{ModelTarget, ProviderSetupError, Providers};
pub use retry::{ClientProgress, RetryPolicy};
pub use verify::{PayloadViolation, verify};

#[cfg(test)]
mod tests;
