//! The core tools, `openclaw:core:*`. Each is off unless the user's own configuration enables it.

mod beneath;
mod files;
mod roots;
mod shell;
mod web;

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use contract::config;
use contract::tool::ToolSpec;
use executor::{AuthorizedCall, CallFuture, Dispatch, Outcome, ToolSource};

pub use beneath::Resolver;
pub use roots::{ProtectedFolder, Root, RootError, Roots};
pub use shell::{Shell, ShellSettings, UnreadableFolder};
pub use web::{Lookup, LookupFuture, SystemLookup, WebFetch};

/// The source of all core tools that are enabled.
#[derive(Debug)]
pub struct CoreTools {
    tools: Vec<Box<dyn CoreTool>>,
}

/// A core tool.
pub(crate) trait CoreTool: fmt::Debug + Send + Sync {
    fn spec(&self) -> &ToolSpec;

    /// Executes a call. Dropping the future cancels it.
    fn call<'a>(&'a self, call: &'a AuthorizedCall) -> Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;
}

impl CoreTools {
    /// Creates the tools that the settings enable. They may use these folders.
    pub fn new(settings: &config::CoreTools, roots: &Roots) -> Self {
        let mut tools = Vec::new();
        if settings.files.enabled {
            tools.extend(files::tools(roots));
        }
        Self { tools }
    }

    /// Adds the shell.
    #[must_use]
    pub fn with_shell(mut self, shell: Shell) -> Self {
        self.tools.push(Box::new(shell));
        self
    }

    /// Adds the tool that fetches pages.
    #[must_use]
    pub fn with_web_fetch(mut self, web_fetch: WebFetch) -> Self {
        self.tools.push(Box::new(web_fetch));
        self
    }
}

impl ToolSource for CoreTools {
    fn tools(&self) -> Vec<ToolSpec> {
        self.tools.iter().map(|tool| tool.spec().clone()).collect()
    }

    fn call(&self, call: AuthorizedCall) -> CallFuture<'_> {
        Box::pin(async move {
            let outcome = match self.tools.iter().find(|tool| tool.spec().id == *call.id()) {
                Some(tool) => tool.call(&call).await,
                None => Outcome::Failed(format!("the core tool `{}` is not enabled", call.id().name())),
            };
            Dispatch::Settled(outcome)
        })
    }
}
