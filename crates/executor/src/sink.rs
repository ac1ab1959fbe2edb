//! Optional callbacks that observe a call while it is being made.

use std::fmt;
use std::sync::Arc;

use contract::cell::PendingState;
use serde_json::Value;

/// An optional callback. Clones share it; the default ignores everything that is sent.
pub struct Sink<T>(Option<Arc<dyn Fn(T) + Send + Sync>>);

/// Receives a tool's progress updates.
pub type ProgressSink = Sink<Value>;

/// Receives a call's state changes while it is being made.
pub type StateSink = Sink<PendingState>;

impl<T> Sink<T> {
    /// Creates a sink that calls the function with each value.
    pub fn to(listener: impl Fn(T) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(listener)))
    }

    /// Whether anything receives what is sent.
    pub(crate) fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// Passes a value to the callback, if there is one.
    pub fn send(&self, value: T) {
        if let Some(listener) = &self.0 {
            listener(value);
        }
    }
}

impl<T> Clone for Sink<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for Sink<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> fmt::Debug for Sink<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Sink(set)" } else { "Sink(none)" })
    }
}
