//! The tools that a client sent with its request, as a source of tools for one run.
//!
//! The client itself carries out their calls: a call is parked, sent to the client as an ordinary tool call, and settled
//! with the result that the client sends in a later request.

use contract::tool::{Repeat, Source, ToolId, ToolSpec, is_visible_name};
use executor::{AuthorizedCall, CallFuture, Dispatch, Parked, ToolSource};
use wire::downstream::ClientTool;

/// The most tools that one request may bring.
pub const MAX_CLIENT_TOOLS: usize = 2_000;

/// The most bytes of all definitions of a request's tools together.
pub const MAX_DEFINITION_BYTES: usize = 4 << 20;

/// The owner of client tools in their ids, `client:<owner>:<name>`, if the client has no name.
pub const DEFAULT_APP: &str = "app";

/// Why the tools of a request cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientToolsError {
    #[error("the request has {0} tools; at most {MAX_CLIENT_TOOLS} are allowed")]
    TooMany(usize),
    #[error("the definitions of the request's tools have {0} bytes; at most {MAX_DEFINITION_BYTES} are allowed")]
    TooLarge(usize),
    #[error("`{0}` cannot be the name of a tool: it must not contain `:`, control or invisible characters")]
    Name(String),
    #[error("the request has two tools with the name `{0}`")]
    Repeated(String),
}

/// The tools of one request.
#[derive(Debug)]
pub struct ClientTools {
    specs: Vec<ToolSpec>,
}

impl ClientTools {
    /// Checks the tools of a request. `app` is the client's name in their ids.
    pub fn new(app: &str, tools: &[ClientTool]) -> Result<Self, ClientToolsError> {
        if tools.len() > MAX_CLIENT_TOOLS {
            return Err(ClientToolsError::TooMany(tools.len()));
        }
        let bytes = tools.iter().map(|tool| tool.description.len() + tool.parameters.to_string().len()).sum();
        if bytes > MAX_DEFINITION_BYTES {
            return Err(ClientToolsError::TooLarge(bytes));
        }
        let mut specs: Vec<ToolSpec> = Vec::with_capacity(tools.len());
        let mut names = std::collections::HashSet::new();
        for tool in tools {
            let shown = || tool.name.chars().take(100).flat_map(char::escape_default).collect::<String>();
            let id = ToolId::parse(&format!("{}:{app}:{}", Source::Client.as_str(), tool.name));
            let id = id.ok().filter(|_| is_visible_name(&tool.name)).ok_or_else(|| ClientToolsError::Name(shown()))?;
            if !names.insert(tool.name.as_str()) {
                return Err(ClientToolsError::Repeated(shown()));
            }
            // The client's tool may change something, so a call whose outcome is not known is not repeated.
            specs.push(ToolSpec {
                repeat: Repeat::Never,
                ..ToolSpec::new(id, &tool.description, tool.parameters.clone())
            });
        }
        Ok(Self { specs })
    }
}

impl ToolSource for ClientTools {
    fn tools(&self) -> Vec<ToolSpec> {
        self.specs.clone()
    }

    fn call(&self, _call: AuthorizedCall) -> CallFuture<'_> {
        Box::pin(std::future::ready(Dispatch::Parked(Parked::Client)))
    }
}
