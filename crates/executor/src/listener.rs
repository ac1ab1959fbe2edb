//! Whoever is to hear of something while a call is being made, or nobody.

use std::fmt;
use std::sync::Arc;

use contract::cell::PendingState;
use serde_json::Value;

/// Clones are the same listener; by default it is nobody.
pub struct Sink<T>(pub(crate) Option<Arc<dyn Fn(T) + Send + Sync>>);

/// Where a tool tells how far it is.
pub type ProgressSink = Sink<Value>;

/// Whoever is to know with whom a call is while it is being made.
pub type StateSink = Sink<PendingState>;

impl<T> Sink<T> {
    pub fn to(listener: impl Fn(T) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(listener)))
    }

    pub fn send(&self, heard: T) {
        if let Some(listener) = &self.0 {
            listener(heard);
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
        f.write_str(if self.0.is_some() { "Listener(somebody)" } else { "Listener(nobody)" })
    }
}
