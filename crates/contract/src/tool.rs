//! Tools: their ids, definitions and hashes.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::text::is_unsafe;

/// The kind of a tool's source; the first part of its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// A core tool.
    Openclaw,
    /// A plugin, or the host program.
    Plugin,
    /// An MCP server.
    Mcp,
    /// A client that brings its own tools.
    Client,
}

impl Source {
    /// Returns the first part of the ids of its tools.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Openclaw => "openclaw",
            Self::Plugin => "plugin",
            Self::Mcp => "mcp",
            Self::Client => "client",
        }
    }

    /// Parses the first part of a tool id.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Openclaw, Self::Plugin, Self::Mcp, Self::Client].into_iter().find(|source| source.as_str() == text)
    }
}

/// A parsed tool id, `<source>:<owner>:<name>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ToolId {
    text: String,
    source: Source,
    owner_end: usize,
}

/// Why a text is not a tool id. The text is shown with its invisible characters escaped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadToolId {
    /// The id does not have three parts, or its source is unknown.
    #[error(
        "`{0}` is not a tool id: write `<source>:<owner>:<name>`, with the source one of openclaw, plugin, mcp, client"
    )]
    Parts(String),
    /// The name contains a colon.
    #[error("`{0}` is not a tool id: a tool's name must not contain `:`, which separates the parts of an id")]
    Colon(String),
    /// A part contains an invisible character.
    #[error(
        "`{0}` is not a tool id: owner and name must not contain control or invisible characters, or start or end with a space"
    )]
    Invisible(String),
}

impl ToolId {
    /// Parses a tool id. The name must not contain `:`, and owner and name must not contain invisible characters, so
    /// that a pattern over whole ids matches exactly the tools that it seems to match.
    pub fn parse(text: &str) -> Result<Self, BadToolId> {
        let shown = || text.chars().take(200).map(visible).collect();
        let bad = || BadToolId::Parts(shown());
        let (source, rest) = text.split_once(':').ok_or_else(bad)?;
        let (owner, name) = rest.split_once(':').ok_or_else(bad)?;
        let parsed = Source::parse(source).ok_or_else(bad)?;
        if owner.is_empty() || name.is_empty() {
            return Err(bad());
        }
        if name.contains(':') {
            return Err(BadToolId::Colon(shown()));
        }
        if !is_visible_name(owner) || !is_visible_name(name) {
            return Err(BadToolId::Invisible(shown()));
        }
        let owner_end = source.len() + 1 + owner.len();
        Ok(Self { text: text.to_owned(), source: parsed, owner_end })
    }

    /// Returns the whole id.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the kind of the tool's source.
    pub fn source(&self) -> Source {
        self.source
    }

    /// Returns the name of the tool's source, such as that of an MCP server.
    pub fn owner(&self) -> &str {
        self.text.get(self.source.as_str().len() + 1..self.owner_end).unwrap_or_default()
    }

    /// Returns the name of the tool within its source.
    pub fn name(&self) -> &str {
        self.text.get(self.owner_end + 1..).unwrap_or_default()
    }
}

/// Whether all of a name is visible: no control, zero-width, direction-changing or space-like characters, and no spaces
/// at its start or end.
pub fn is_visible_name(name: &str) -> bool {
    let visible = |letter: char| !letter.is_control() && !is_invisible(letter);
    name.trim() == name && name.chars().all(|letter| letter == ' ' || (visible(letter) && !letter.is_whitespace()))
}

/// Whether a character has no width, changes the direction of text, or looks like a space.
fn is_invisible(letter: char) -> bool {
    // The blank Braille pattern is safe to print, but looks like a space.
    is_unsafe(letter) || letter == '\u{2800}'
}

/// Returns the character, escaped if it is invisible.
fn visible(letter: char) -> String {
    if is_invisible(letter) { letter.escape_unicode().to_string() } else { letter.escape_debug().to_string() }
}

/// The definition of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    /// The id of the tool.
    pub id: ToolId,
    /// A short title for people.
    pub label: Option<String>,
    /// What the tool does, for models.
    pub description: String,
    /// JSON Schema of the input.
    pub parameters: Value,
    /// JSON Schema of the structured result, if the tool declares one.
    pub output: Option<Value>,
    /// The operation of its source that the tool calls.
    pub operation: Operation,
    /// Whether a call may be repeated after a crash.
    pub repeat: Repeat,
    /// What the tool's source declares about repeating, even if it is not trusted to: only people are shown it.
    pub declared_repeat: Repeat,
    /// The description that the tool's owner gives of itself; used only for search.
    pub about_owner: Option<Arc<str>>,
}

/// The operation of its source that a tool calls. Only MCP servers have operations other than tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// A tool.
    #[default]
    Tool,
    /// Lists resources.
    ListResources,
    /// Reads a resource.
    ReadResource,
    /// Lists prompts.
    ListPrompts,
    /// Gets a prompt.
    GetPrompt,
}

impl Operation {
    /// All operations.
    pub const ALL: [Self; 5] =
        [Self::Tool, Self::ListResources, Self::ReadResource, Self::ListPrompts, Self::GetPrompt];

    /// Returns the name in `$api()`. An operation other than `Tool` also has this name in its id.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::ListResources => "resources_list",
            Self::ReadResource => "resources_read",
            Self::ListPrompts => "prompts_list",
            Self::GetPrompt => "prompts_get",
        }
    }

    /// Returns the namespace and the method below `MCP.<server>`; `None` for a tool, which is there under its own name.
    pub fn namespace_and_method(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Tool => None,
            Self::ListResources => Some(("resources", "list")),
            Self::ReadResource => Some(("resources", "read")),
            Self::ListPrompts => Some(("prompts", "list")),
            Self::GetPrompt => Some(("prompts", "get")),
        }
    }
}

/// Whether a call may be repeated after a crash between dispatch and result. Only trusted sources may declare anything
/// but `Never`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Repeat {
    /// Never repeat; the outcome stays unknown.
    #[default]
    Never,
    /// Repeat with the same idempotency key; the tool executes such a call once.
    WithKey,
    /// Always repeat; the tool adds something and destroys nothing, and a second call changes nothing.
    Additive,
    /// Always repeat; the tool only reads.
    Always,
}

impl Repeat {
    /// Whether the tool can destroy nothing, so that a call needs no approval.
    pub fn is_harmless(self) -> bool {
        match self {
            Self::Additive | Self::Always => true,
            Self::Never | Self::WithKey => false,
        }
    }
}

impl ToolSpec {
    /// Returns the definition of a tool with a schema of its input, which must not be called twice.
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
            declared_repeat: Repeat::Never,
        }
    }

    /// Returns the hash of the definition. Approvals are bound to it, so they do not cover a tool that was changed.
    pub fn hash(&self) -> ToolHash {
        let definition = json!([
            self.id.as_str(),
            self.label,
            self.description,
            self.parameters,
            self.output,
            self.operation.as_str()
        ]);
        ToolHash(Sha256::digest(definition.to_string()).into())
    }
}

/// SHA-256 of a tool's definition.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ToolHash(pub [u8; 32]);

/// SHA-256 of any content, such as a call's input.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentHash(pub [u8; 32]);

impl ContentHash {
    /// Hashes the bytes as they are. JSON is not normalised.
    pub fn of(content: &[u8]) -> Self {
        Self(Sha256::digest(content).into())
    }

    /// Hashes the parts as if they were one text.
    pub fn of_parts<'a>(parts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut hasher = Sha256::new();
        parts.into_iter().for_each(|part| hasher.update(part));
        Self(hasher.finalize().into())
    }
}

/// Writes the bytes as hexadecimal digits, without an allocation.
pub(crate) fn write_hex(bytes: &[u8; 32], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut digits = [0; 64];
    hex::encode_to_slice(bytes, &mut digits).map_err(|_| fmt::Error)?;
    f.write_str(std::str::from_utf8(&digits).map_err(|_| fmt::Error)?)
}

impl fmt::Display for ToolHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Debug for ToolHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ToolHash({self})")
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContentHash({self})")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{BadToolId, Operation, Source, ToolId, ToolSpec};

    #[test]
    fn an_operation_is_named_after_its_namespace_and_method() {
        for operation in Operation::ALL {
            let path = operation.namespace_and_method();
            let name = path.map_or("tool".to_owned(), |(namespace, method)| format!("{namespace}_{method}"));
            assert_eq!(operation.as_str(), name);
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
    fn an_id_has_three_visible_parts() {
        let id = ToolId::parse("mcp:git hub:create.issue-2").unwrap();
        assert_eq!((id.source(), id.owner(), id.name()), (Source::Mcp, "git hub", "create.issue-2"));
        for good in ["plugin:a:é", "client:日本:読む", "mcp:a:x y", "openclaw:core:a/b"] {
            assert!(ToolId::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "mcp", "mcp:github", "mcp::x", "mcp:github:", "host:a:b", "MCP:a:b"] {
            assert!(matches!(ToolId::parse(bad), Err(BadToolId::Parts(_))), "{bad}");
        }
        for bad in ["mcp:evil:mcp:docs:wipe", "mcp:a:b:", "mcp:a::b", "openclaw:core:a:b", "mcp:a::"] {
            assert!(matches!(ToolId::parse(bad), Err(BadToolId::Colon(_))), "{bad}");
        }
    }

    #[test]
    fn ids_with_invisible_characters_are_rejected() {
        let invisible = [
            '\0',
            '\n',
            '\u{1b}',
            '\u{7f}',
            '\u{9b}',
            '\u{a0}',
            '\u{ad}',
            '\u{61c}',
            '\u{115f}',
            '\u{180e}',
            '\u{2003}',
            '\u{200b}',
            '\u{200d}',
            '\u{200f}',
            '\u{2028}',
            '\u{202e}',
            '\u{2060}',
            '\u{2066}',
            '\u{2800}',
            '\u{3000}',
            '\u{3164}',
            '\u{fe0f}',
            '\u{feff}',
            '\u{fffb}',
            '\u{e0041}',
        ];
        for letter in invisible {
            for text in [format!("mcp:a:wi{letter}pe"), format!("mcp:d{letter}ocs:wipe"), format!("mcp:a:{letter}")] {
                let refused = ToolId::parse(&text).unwrap_err();
                assert!(matches!(refused, BadToolId::Invisible(_)), "{text:?}");
                assert!(!refused.to_string().contains(letter), "{refused}");
            }
        }
        for text in ["mcp:a: wipe", "mcp:a:wipe ", "mcp: docs:wipe"] {
            assert!(matches!(ToolId::parse(text), Err(BadToolId::Invisible(_))), "{text:?}");
        }
    }
}
