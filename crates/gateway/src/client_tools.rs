//! The tools that a client sent with its request, as a source of tools for one run.
//!
//! The client itself carries out their calls: a call is parked, sent to the client as an ordinary tool call, and settled
//! with the result that the client sends in a later request.

use contract::tool::{Repeat, Source, ToolId, ToolSpec, is_visible_name};
use executor::{AuthorizedCall, CallFuture, Dispatch, Outcome, ParkedOn, ToolSource};
use wire::downstream::ClientTool;

/// The most tools that a request may contain.
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

/// What a call of `tool_search_code` receives from a tool of the client.
const UNREACHABLE: &str = "this is a tool of the user's application, and a program of `tool_search_code` ends before the \
    application can answer, so the call was not made; continue without this tool, and tell the user that such tools need \
    `tools.codeMode`, or `tools.toolSearch.mode: \"tools\"`";

/// The tools of one request.
#[derive(Debug)]
pub struct ClientTools {
    specs: Vec<ToolSpec>,
    callers: Callers,
}

/// Whether what calls the tools can wait for the client's results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Callers {
    Wait,
    /// Calls fail at once.
    CannotWait,
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
            // A dispatch only parks the call. The client gets it with a delivery, which is written once, so a dispatch that
            // a crash interrupted can be repeated.
            specs.push(ToolSpec {
                repeat: Repeat::WithKey,
                ..ToolSpec::new(id, &tool.description, tool.parameters.clone())
            });
        }
        Ok(Self { specs, callers: Callers::Wait })
    }

    /// Returns these tools for programs that cannot wait for the client: their calls fail at once.
    #[must_use]
    pub fn unreachable(self) -> Self {
        Self { callers: Callers::CannotWait, ..self }
    }
}

impl ToolSource for ClientTools {
    fn tools(&self) -> Vec<ToolSpec> {
        self.specs.clone()
    }

    fn call(&self, _call: AuthorizedCall) -> CallFuture<'_> {
        Box::pin(std::future::ready(match self.callers {
            Callers::Wait => Dispatch::Parked(ParkedOn::Client),
            Callers::CannotWait => Dispatch::Settled(Outcome::Failed(UNREACHABLE.to_owned())),
        }))
    }
}

#[cfg(test)]
mod tests {
    use executor::ToolSource;
    use serde_json::json;
    use wire::downstream::ClientTool;

    use super::{ClientTools, ClientToolsError, MAX_CLIENT_TOOLS, MAX_DEFINITION_BYTES};

    fn tool(name: &str, description: &str) -> ClientTool {
        ClientTool { name: name.to_owned(), description: description.to_owned(), parameters: json!({"type": "object"}) }
    }

    fn read(names: &[&str]) -> Result<Vec<String>, ClientToolsError> {
        let tools: Vec<ClientTool> = names.iter().map(|name| tool(name, "")).collect();
        let tools = ClientTools::new("app", &tools)?;
        Ok(tools.tools().iter().map(|spec| spec.id.as_str().to_owned()).collect())
    }

    #[test]
    fn names_of_control_tools_are_ordinary_names() {
        let ids = read(&["exec", "wait", "tool_call", "mcp__big__do", "constructor", "__proto__"]).unwrap();
        assert_eq!(ids[..3], ["client:app:exec", "client:app:wait", "client:app:tool_call"]);
        assert_eq!(ids.len(), 6);
    }

    #[test]
    fn hostile_names_are_refused_and_escaped_in_the_message() {
        for name in ["", "a:b", "a\nb", "a\u{202e}b", "a\u{0}b", "\u{200b}"] {
            let error = read(&[name]).unwrap_err();
            assert!(matches!(error, ClientToolsError::Name(_)), "{name:?}: {error}");
            assert!(error.to_string().chars().all(|c| !c.is_control() && c != '\u{202e}'), "{error}");
        }
        assert_eq!(read(&["same", "same"]), Err(ClientToolsError::Repeated("same".to_owned())));
    }

    #[test]
    fn too_many_tools_and_too_large_definitions_are_refused() {
        let many: Vec<ClientTool> = (0..=MAX_CLIENT_TOOLS).map(|at| tool(&format!("t{at}"), "")).collect();
        assert_eq!(ClientTools::new("app", &many).unwrap_err(), ClientToolsError::TooMany(2_001));
        assert!(ClientTools::new("app", &many[..MAX_CLIENT_TOOLS]).is_ok());
        let schema = json!({"type": "object"}).to_string().len();
        let fits = "x".repeat(MAX_DEFINITION_BYTES - schema);
        assert!(ClientTools::new("app", &[tool("t", &fits)]).is_ok());
        let large = ClientTools::new("app", &[tool("t", &format!("{fits}x"))]);
        assert_eq!(large.unwrap_err(), ClientToolsError::TooLarge(MAX_DEFINITION_BYTES + 1));
    }
}
