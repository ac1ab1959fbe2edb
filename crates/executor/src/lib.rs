//! How one tool call happens: through one door.
//!
//! A source is given an [`AuthorizedCall`], and only this crate can make one. Hooks, approval, journal
//! and record will stand between [`Executor::call`] and the source; there is no other way in.

mod canned;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use catalog::Catalog;
use contract::tool::ToolId;
use serde_json::Value;

pub use canned::{Canned, CannedError};

/// A call that may be made: the tool is in the run's catalog.
#[derive(Debug)]
pub struct AuthorizedCall {
    id: ToolId,
    input: Value,
}

impl AuthorizedCall {
    pub fn id(&self) -> &ToolId {
        &self.id
    }

    pub fn input(&self) -> &Value {
        &self.input
    }
}

/// How a tool answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Returned(Value),
    /// What the guest may read of a failure; never more.
    Failed(String),
}

pub type Answering<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

/// Somewhere tools live: canned answers here; core tools, MCP servers and clients to come.
///
/// Dropping the future a source returned cancels the call.
pub trait ToolSource: std::fmt::Debug + Send + Sync {
    fn call(&self, call: AuthorizedCall) -> Answering<'_>;
}

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
        self.source.call(AuthorizedCall { id: tool.id.clone(), input }).await
    }
}
