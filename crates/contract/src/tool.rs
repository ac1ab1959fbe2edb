//! A tool as configuration, catalog and guest name it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

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

/// A tool on offer: what it is called, what it does, what it takes.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    pub id: ToolId,
    pub label: Option<String>,
    pub description: String,
    pub parameters: Value,
}

#[cfg(test)]
mod tests {
    use super::{Source, ToolId};

    #[test]
    fn an_id_has_three_parts_and_the_name_keeps_its_colons() {
        let id = ToolId::parse("mcp:github:create:issue").unwrap();
        assert_eq!((id.source(), id.owner(), id.name()), (Source::Mcp, "github", "create:issue"));
        for bad in ["", "mcp", "mcp:github", "mcp::x", "mcp:github:", "host:a:b"] {
            assert!(ToolId::parse(bad).is_err(), "{bad}");
        }
    }
}
