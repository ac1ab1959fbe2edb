//! Models behind HTTP: one request to a provider, from its bytes to a complete response or a failure.

use std::time::Duration;

use wire::Wire;
use wire::upstream::{Broken, ModelEvent, ModelResponse};

/// Why a request to a provider failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CallError {
    /// The provider answered with an error status.
    #[error("the provider answered with status {status}: {message}")]
    Status { status: u16, kind: String, message: String, retry_after: Option<Duration> },
    /// The provider could not be reached, or the connection was lost.
    #[error("the provider cannot be reached: {0}")]
    Unreachable(String),
    /// The response is not complete, so nothing in it may be executed.
    #[error(transparent)]
    Broken(#[from] Broken),
    /// The provider did not respond in time.
    #[error("the provider sent nothing for {0:?}")]
    TimedOut(Duration),
}

/// A provider that requests can be sent to.
pub trait Model: std::fmt::Debug + Send + Sync {
    fn wire(&self) -> Wire;

    /// Sends the request once and returns the complete response. `on_event` is called with what the model says.
    fn respond<'a>(
        &'a self,
        body: Vec<u8>,
        on_event: &'a mut (dyn FnMut(ModelEvent) + Send),
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<ModelResponse, CallError>> + Send + 'a>>;
}
