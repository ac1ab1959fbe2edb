//! How one tool call happens: through one door.
//!
//! A source is given an [`AuthorizedCall`], and only this crate can make one. Hooks, approval, journal
//! and record will stand between [`Executor::call`] and the source; there is no other way in.

mod canned;
mod source;

use std::sync::Arc;

use catalog::Catalog;
use contract::scope::Scope;
use serde_json::Value;

pub use canned::{Canned, CannedError};
pub use source::{Answering, AuthorizedCall, CallToken, Dispatch, Outcome, Parked, Returned, ToolSource, Updates};

#[derive(Clone, Debug)]
pub struct Executor {
    catalog: Arc<Catalog>,
    source: Arc<dyn ToolSource>,
}

impl Executor {
    pub fn new(catalog: Arc<Catalog>, source: Arc<dyn ToolSource>) -> Self {
        Self { catalog, source }
    }

    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// Calls a tool of the catalog; any other id answers as if it did not exist.
    pub async fn call(&self, id: &str, input: Value) -> Outcome {
        let Some(tool) = self.catalog.get(id) else {
            let shown: String = id.chars().take(200).collect();
            return Outcome::Failed(format!("unknown tool `{shown}`; tools.search(query) finds the tools there are"));
        };
        let call = AuthorizedCall {
            id: tool.id.clone(),
            input,
            token: CallToken { run: String::new(), call: 0 },
            key: String::new(),
            scope: Arc::new(Scope::default()),
            updates: Updates::default(),
        };
        match self.source.call(call).await {
            Dispatch::Settled(outcome) => outcome,
            Dispatch::Parked(_) => std::future::pending().await,
        }
    }
}
