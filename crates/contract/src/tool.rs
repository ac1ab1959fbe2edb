//! A tool as configuration, catalog and guest name it.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::ids::write_hex;

/// Where a tool comes from; the first part of its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    Openclaw,
    Plugin,
    Mcp,
    Client,
}

impl Source {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Openclaw => "openclaw",
            Self::Plugin => "plugin",
            Self::Mcp => "mcp",
            Self::Client => "client",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Openclaw, Self::Plugin, Self::Mcp, Self::Client].into_iter().find(|source| source.as_str() == text)
    }
}

/// `<source>:<owner>:<name>`, parsed once.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ToolId {
    text: String,
    source: Source,
    owner_end: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a tool id: write `<source>:<owner>:<name>`, with the source one of openclaw, plugin, mcp, client"
)]
pub struct BadToolId(pub String);

impl ToolId {
    pub fn parse(text: &str) -> Result<Self, BadToolId> {
        let bad = || BadToolId(text.chars().take(200).collect());
        let (source, rest) = text.split_once(':').ok_or_else(bad)?;
        let (owner, name) = rest.split_once(':').ok_or_else(bad)?;
        let parsed = Source::parse(source).ok_or_else(bad)?;
        if owner.is_empty() || name.is_empty() {
            return Err(bad());
        }
        let owner_end = source.len() + 1 + owner.len();
        Ok(Self { text: text.to_owned(), source: parsed, owner_end })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn source(&self) -> Source {
        self.source
    }

    pub fn owner(&self) -> &str {
        self.text.get(self.source.as_str().len() + 1..self.owner_end).unwrap_or_default()
    }

    pub fn name(&self) -> &str {
        self.text.get(self.owner_end + 1..).unwrap_or_default()
    }
}

/// A tool on offer: what it is called, what it does, what it takes and what it gives.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    pub id: ToolId,
    pub label: Option<String>,
    pub description: String,
    /// JSON Schema of the input.
    pub parameters: Value,
    /// JSON Schema of the structured result, where the tool declares one.
    pub output: Option<Value>,
    pub operation: Operation,
    pub repeat: Repeat,
    /// What its owner says of itself. It helps to find the tool and goes nowhere else.
    pub about_owner: Option<Arc<str>>,
}

/// What of its source a tool reaches. Only MCP servers have more than tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    #[default]
    Tool,
    ListResources,
    ReadResource,
    ListPrompts,
    GetPrompt,
}

impl Operation {
    pub const ALL: [Self; 5] =
        [Self::Tool, Self::ListResources, Self::ReadResource, Self::ListPrompts, Self::GetPrompt];

    /// As `$api()` says it. An operation that is no tool has this for the name in its id, too.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::ListResources => "resources_list",
            Self::ReadResource => "resources_read",
            Self::ListPrompts => "prompts_list",
            Self::GetPrompt => "prompts_get",
        }
    }

    /// Where it stands below `MCP.<server>`; a tool stands there under its own name.
    pub fn place(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Tool => None,
            Self::ListResources => Some(("resources", "list")),
            Self::ReadResource => Some(("resources", "read")),
            Self::ListPrompts => Some(("prompts", "list")),
            Self::GetPrompt => Some(("prompts", "get")),
        }
    }
}

/// What a crash between dispatch and result leaves to do. Only trusted sources may say anything but never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Repeat {
    /// Its outcome stays unknown.
    #[default]
    Never,
    /// It takes the call's key and does a repeated call once.
    WithKey,
    /// It only reads.
    Always,
}

impl ToolSpec {
    pub fn new(id: ToolId, description: impl Into<String>, parameters: Value) -> Self {
        Self {
            id,
            label: None,
            description: description.into(),
            parameters,
            output: None,
            about_owner: None,
            operation: Operation::Tool,
            repeat: Repeat::Never,
        }
    }

    /// What a person who approves a call approves of: the same text means the same tool.
    pub fn hash(&self) -> ToolHash {
        let said = json!([
            self.id.as_str(),
            self.label,
            self.description,
            self.parameters,
            self.output,
            self.operation.as_str()
        ]);
        ToolHash(Sha256::digest(said.to_string()).into())
    }
}

/// Sha256 of a tool's definition.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ToolHash(pub [u8; 32]);

/// Sha256 of a call's input.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct InputHash(pub [u8; 32]);

impl InputHash {
    /// The bytes as the cell sent them.
    pub fn of(json: &[u8]) -> Self {
        Self(Sha256::digest(json).into())
    }
}

impl fmt::Display for ToolHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Display for InputHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for ToolHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ToolHash({self})")
    }
}

impl fmt::Debug for InputHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InputHash({self})")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Operation, Source, ToolId, ToolSpec};

    #[test]
    fn an_operation_is_named_after_its_place() {
        for operation in Operation::ALL {
            let placed = operation.place().map_or("tool".to_owned(), |(group, method)| format!("{group}_{method}"));
            assert_eq!(operation.as_str(), placed);
        }
    }

    #[test]
    fn any_change_of_the_definition_changes_the_hash() {
        let tool = ToolSpec::new(ToolId::parse("mcp:a:b").unwrap(), "Reads.", json!({"type": "object"}));
        let mut changed = vec![tool.clone(), tool.clone(), tool.clone(), tool.clone()];
        changed[0].description = "Writes.".to_owned();
        changed[1].parameters = json!({});
        changed[2].output = Some(json!({}));
        changed[3].label = Some(String::new());
        for other in changed {
            assert_ne!(other.hash(), tool.hash(), "{other:?}");
        }
        assert_eq!(tool.clone().hash(), tool.hash());
    }

    #[test]
    fn an_id_has_three_parts_and_the_name_keeps_its_colons() {
        let id = ToolId::parse("mcp:github:create:issue").unwrap();
        assert_eq!((id.source(), id.owner(), id.name()), (Source::Mcp, "github", "create:issue"));
        for bad in ["", "mcp", "mcp:github", "mcp::x", "mcp:github:", "host:a:b"] {
            assert!(ToolId::parse(bad).is_err(), "{bad}");
        }
    }
}
