//! The tools that clients list: the control tools of code mode (`exec`, `wait`) or Tool Search, or the catalog's tools
//! themselves. Equal catalogs and limits give equal bytes, so that providers can cache the prompt.

use std::ops::Range;

use catalog::prompt::McpChannel;
use catalog::{Catalog, DirectTools, ExecHold, Surface, SurfaceError, VisibleTool};
use contract::config::{CodeMode, ToolSearchMode, ToolsConfig};
use contract::limits::{MAX_CONTROL_ANSWER_BYTES, MAX_DIRECT_BYTES, MAX_DIRECT_TOOLS, MAX_PAGE_BYTES, MAX_PAGE_TOOLS};
use contract::tool::{Repeat, ToolSpec};
use serde_json::{Value, json};

/// The size of a result's other parts than the cell's own value and output: pending calls and approvals.
const RESULT_OVERHEAD_BYTES: u64 = 32 << 10;

/// The maximum length of a prefix. Providers allow 64 characters for a tool's name, and clients add a prefix of their
/// own.
const MAX_PREFIX_BYTES: usize = 24;

/// The prefix of all tool names, for clients in which `exec` already names another tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolPrefix(String);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a tool prefix has at most {MAX_PREFIX_BYTES} letters, digits, `-`, `_` or `.`")]
pub struct BadPrefix;

/// A tool that the server offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    Exec,
    Wait,
    SearchCode,
    Search,
    Describe,
    Call,
    /// A tool of the catalog, by its id.
    Direct(String),
}

impl ToolPrefix {
    pub fn parse(text: &str) -> Result<Self, BadPrefix> {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if text.len() > MAX_PREFIX_BYTES || !text.chars().all(is_allowed) {
            return Err(BadPrefix);
        }
        Ok(Self(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name with the prefix.
    pub(crate) fn name(&self, tool: &str) -> String {
        format!("{}{tool}", self.0)
    }

    /// Returns the name without the prefix; `None` if it does not have it.
    pub(crate) fn strip<'a>(&self, name: &'a str) -> Option<&'a str> {
        name.strip_prefix(self.0.as_str())
    }
}

impl Tool {
    /// Finds the tool that this surface shows under a name, which is given without its prefix.
    pub(crate) fn find(surface: &Surface, name: &str) -> Option<Self> {
        match (surface, name) {
            (Surface::CodeMode, "exec") => Some(Self::Exec),
            (Surface::CodeMode, "wait") => Some(Self::Wait),
            (Surface::ToolSearchCode, "tool_search_code") => Some(Self::SearchCode),
            (Surface::ToolSearchTools(_), "tool_search") => Some(Self::Search),
            (Surface::ToolSearchTools(_), "tool_describe") => Some(Self::Describe),
            (Surface::ToolSearchTools(_), "tool_call") => Some(Self::Call),
            (Surface::Direct(tools), name) => tools.get(name).map(|tool| Self::Direct(tool.id.as_str().to_owned())),
            _ => None,
        }
    }

    /// Returns the name of a control, or the id of a tool of the catalog.
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Exec => "exec",
            Self::Wait => "wait",
            Self::SearchCode => "tool_search_code",
            Self::Search => "tool_search",
            Self::Describe => "tool_describe",
            Self::Call => "tool_call",
            Self::Direct(id) => id,
        }
    }
}

/// The tools of a surface as a client lists them.
#[derive(Debug)]
pub(crate) struct Listing {
    /// The tools as protocol JSON, in the order of [`Surface::names`].
    pub(crate) tools: Vec<Value>,
    pub(crate) pages: Vec<Range<usize>>,
    /// The tools as a model sees them, to count their size.
    pub(crate) visible: Vec<VisibleTool>,
}

/// Returns the tools that clients list. `hold_ms` is how long an `exec` waits for its pending calls before it returns.
pub(crate) fn listing(
    surface: &Surface,
    catalog: &Catalog,
    config: &ToolsConfig,
    hold_ms: u64,
    prefix: &ToolPrefix,
) -> Result<Listing, SurfaceError> {
    let visible = match surface {
        Surface::None => Vec::new(),
        Surface::CodeMode => code_mode_tools(catalog, &config.code_mode, hold_ms, prefix),
        Surface::ToolSearchCode => {
            catalog::tool_search_tools(ToolSearchMode::Code, &config.tool_search, catalog, prefix.as_str())
        }
        Surface::ToolSearchTools(_) => {
            catalog::tool_search_tools(ToolSearchMode::Tools, &config.tool_search, catalog, prefix.as_str())
        }
        Surface::Direct(_) => surface.visible_tools(config, catalog, ExecHold::default()),
    };
    let tools: Vec<Value> = match surface {
        Surface::Direct(direct) => direct_tools(direct, &visible, prefix),
        Surface::None | Surface::CodeMode | Surface::ToolSearchCode | Surface::ToolSearchTools(_) => {
            visible.iter().map(|shown| control(shown, &config.code_mode, prefix)).collect()
        }
    };
    let sizes: Vec<usize> = tools.iter().map(|tool| tool.to_string().len()).collect();
    let bytes = sizes.iter().sum();
    if tools.len() > MAX_DIRECT_TOOLS || bytes > MAX_DIRECT_BYTES {
        return Err(SurfaceError::TooManyDirectTools { tools: tools.len(), bytes });
    }
    Ok(Listing { tools, pages: pages(&sizes), visible })
}

/// Returns `exec` and `wait` as clients see them, whether or not they are shown.
pub(crate) fn code_mode_tools(
    catalog: &Catalog,
    config: &CodeMode,
    hold_ms: u64,
    prefix: &ToolPrefix,
) -> Vec<VisibleTool> {
    let (exec, wait) = (prefix.name(Tool::Exec.as_str()), prefix.name(Tool::Wait.as_str()));
    catalog::mcp_tools(config, catalog, McpChannel { exec: &exec, wait: &wait, hold_ms })
}

/// Divides definitions of these sizes into pages. No page is empty, but without definitions there is one empty page.
fn pages(sizes: &[usize]) -> Vec<Range<usize>> {
    let mut pages = Vec::new();
    let (mut start, mut bytes) = (0, 0_usize);
    for (at, size) in sizes.iter().enumerate() {
        let is_full = at - start == MAX_PAGE_TOOLS || bytes.saturating_add(*size) > MAX_PAGE_BYTES;
        if is_full && at > start {
            pages.push(start..at);
            (start, bytes) = (at, 0);
        }
        bytes = bytes.saturating_add(*size);
    }
    pages.push(start..sizes.len());
    pages
}

/// Returns a control tool as protocol JSON.
fn control(shown: &VisibleTool, config: &CodeMode, prefix: &ToolPrefix) -> Value {
    let name = shown.name.as_str();
    let title = match name {
        "exec" => "Run a cell",
        "wait" => "Wait for a cell",
        "tool_search_code" => "Find and call tools with code",
        "tool_search" => "Search for tools",
        "tool_describe" => "Describe a tool",
        _ => "Call a tool",
    };
    // The effects depend on the tools that are called; these hints describe the worst case.
    let only_reads = matches!(name, "tool_search" | "tool_describe");
    let result_bytes = match name {
        "exec" | "wait" => config.limits.output_bytes.saturating_add(RESULT_OVERHEAD_BYTES),
        _ => MAX_CONTROL_ANSWER_BYTES as u64,
    };
    let mut tool = json!({
        "name": prefix.name(name),
        "title": title,
        "description": shown.description,
        "inputSchema": shown.parameters,
        "annotations": {
            "title": title,
            "readOnlyHint": only_reads,
            "destructiveHint": !only_reads,
            "idempotentHint": only_reads,
            "openWorldHint": !only_reads,
        },
        // Claude Code hides tools behind its tool search unless `alwaysLoad` is set, and cuts long results.
        "_meta": {
            "anthropic/alwaysLoad": true,
            "anthropic/maxResultSizeChars": result_bytes,
        },
    });
    let output = match name {
        "tool_search_code" => Some(search_output()),
        // Clients require structured content from a tool with an output schema. Results of `exec` and `wait` with
        // images have none; a search returns a list, which older revisions of the protocol do not allow as structured
        // content.
        _ => None,
    };
    if let (Some(output), Some(fields)) = (output, tool.as_object_mut()) {
        fields.insert("outputSchema".to_owned(), output);
    }
    tool
}

/// Returns the tools of the catalog as protocol JSON: their own definitions, under unique names.
fn direct_tools(direct: &DirectTools, visible: &[VisibleTool], prefix: &ToolPrefix) -> Vec<Value> {
    direct.iter().zip(visible).map(|((name, tool), shown)| direct_tool(name, tool, shown, prefix)).collect()
}

fn direct_tool(name: &str, tool: &ToolSpec, shown: &VisibleTool, prefix: &ToolPrefix) -> Value {
    // `repeat` has what a trusted server declares; the declarations of others are ignored, because clients may not ask
    // the user about tools that only read.
    let only_reads = tool.repeat == Repeat::Always;
    let mut listed = json!({
        "name": prefix.name(name),
        "description": shown.description,
        "inputSchema": shown.parameters,
        "annotations": {
            "readOnlyHint": only_reads,
            "destructiveHint": tool.repeat == Repeat::Never,
            "idempotentHint": tool.repeat != Repeat::Never,
            "openWorldHint": true,
        },
    });
    if let Some(fields) = listed.as_object_mut() {
        if let Some(label) = &tool.label {
            fields.insert("title".to_owned(), json!(super::plain(label, MAX_TITLE_CHARS)));
        }
        // The protocol allows only schemas of objects.
        let output = tool.output.clone().filter(|schema| schema.get("type") == Some(&json!("object")));
        if let Some(output) = output {
            fields.insert("outputSchema".to_owned(), output);
        }
    }
    listed
}

/// The longest title of a tool that is shown directly.
const MAX_TITLE_CHARS: usize = 200;

fn search_output() -> Value {
    let text = json!({"type": "string"});
    let properties = json!({
        "ok": {"type": "boolean"},
        "value": {"description": "The value that the program returned."},
        "error": text,
        "code": text,
        "logs": {"type": "array", "items": text},
    });
    json!({"type": "object", "properties": properties, "required": ["ok"]})
}

#[cfg(test)]
mod tests {
    use catalog::{Catalog, DirectTools, Origin, Surface, SurfaceError};
    use contract::config::ToolsConfig;
    use contract::limits::{
        MAX_DIRECT_TOOLS, MAX_IDENTIFIER_BYTES, MAX_PAGE_BYTES, MAX_PAGE_TOOLS, MAX_TOOL_DESCRIPTION_BYTES,
    };
    use contract::tool::{Repeat, ToolId, ToolSpec};
    use serde_json::{Value, json};

    use super::{BadPrefix, Listing, Tool, ToolPrefix, listing, pages};

    fn tool(id: &str) -> ToolSpec {
        ToolSpec::new(ToolId::parse(id).unwrap(), "Does it.", json!({"type": "object"}))
    }

    fn direct(tools: Vec<ToolSpec>, prefix: &str) -> Result<Listing, SurfaceError> {
        let config = ToolsConfig::resolve(&json!({})).unwrap();
        let catalog = Catalog::new(tools.clone()).unwrap();
        let surface = Surface::Direct(DirectTools::new(tools, prefix.len()));
        listing(&surface, &catalog, &config, 1, &ToolPrefix::parse(prefix).unwrap())
    }

    #[test]
    fn a_tool_is_found_under_its_prefix_and_on_its_surface_only() {
        let prefix = ToolPrefix::parse("cell_").unwrap();
        let found = |surface: &Surface, name: &str| Tool::find(surface, prefix.strip(name)?);
        assert_eq!(found(&Surface::CodeMode, "cell_exec"), Some(Tool::Exec));
        assert_eq!(found(&Surface::CodeMode, &prefix.name("wait")), Some(Tool::Wait));
        for name in ["exec", "cell_", "cell_cell_exec", "cell_execs", "", "cell_tool_call"] {
            assert_eq!(found(&Surface::CodeMode, name), None, "{name}");
        }
        let search = Surface::ToolSearchTools(Origin::Configured);
        assert_eq!(found(&search, "cell_tool_describe"), Some(Tool::Describe));
        assert_eq!(found(&search, "cell_tool_search_code"), None);
        assert_eq!(found(&Surface::ToolSearchCode, "cell_tool_search_code"), Some(Tool::SearchCode));
        let direct = Surface::Direct(DirectTools::new(vec![tool("mcp:docs:exec")], 5));
        assert_eq!(found(&direct, "cell_docs__exec"), Some(Tool::Direct("mcp:docs:exec".to_owned())));
        for name in ["cell_exec", "cell_wait", "docs__exec", "cell_mcp:docs:exec"] {
            assert_eq!(found(&direct, name), None, "{name}");
        }
        assert_eq!(found(&Surface::None, "cell_exec"), None);
        assert_eq!(ToolPrefix::parse("a b"), Err(BadPrefix));
    }

    #[test]
    fn direct_tools_are_listed_with_their_own_definitions_and_trusted_hints() {
        let schema = json!({"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]});
        let mut reads = ToolSpec::new(ToolId::parse("mcp:docs:find").unwrap(), "Finds.", schema.clone());
        reads.label = Some("Find\u{202e}".to_owned());
        reads.output = Some(json!({"type": "object", "properties": {"hits": {}}}));
        reads.repeat = Repeat::Always;
        let mut writes = tool("mcp:docs:write");
        // The server is not trusted, so what it declares is not passed on.
        writes.declared_repeat = Repeat::Always;
        writes.output = Some(json!({"type": "array"}));
        let listed = direct(vec![reads, writes], "p_").unwrap().tools;
        assert_eq!(listed[0]["name"], "p_docs__find");
        assert_eq!((&listed[0]["inputSchema"], &listed[0]["title"]), (&schema, &json!("Find\\u{202e}")));
        assert_eq!(listed[0]["outputSchema"]["properties"], json!({"hits": {}}));
        assert_eq!(listed[0]["annotations"]["readOnlyHint"], true);
        assert_eq!(listed[1]["annotations"]["readOnlyHint"], false);
        assert_eq!(listed[1]["annotations"]["destructiveHint"], true);
        assert_eq!(listed[1].get("outputSchema"), None);
    }

    #[test]
    fn names_with_a_prefix_stay_short_and_unique() {
        let long = "x".repeat(100);
        let tools = vec![tool(&format!("mcp:s:{long}a")), tool(&format!("mcp:s:{long}b"))];
        let prefix = "p".repeat(24);
        let listed = direct(tools, &prefix).unwrap().tools;
        let names: Vec<&str> = listed.iter().filter_map(|tool| tool["name"].as_str()).collect();
        assert_ne!(names[0], names[1]);
        assert!(names.iter().all(|name| name.len() <= MAX_IDENTIFIER_BYTES), "{names:?}");
    }

    #[test]
    fn a_list_has_pages_of_bounded_number_and_size() {
        let ends = |sizes: &[usize]| pages(sizes).into_iter().map(|page| (page.start, page.end)).collect::<Vec<_>>();
        assert_eq!(ends(&[]), [(0, 0)]);
        assert_eq!(ends(&[1; MAX_PAGE_TOOLS]), [(0, MAX_PAGE_TOOLS)]);
        let more = [(0, MAX_PAGE_TOOLS), (MAX_PAGE_TOOLS, MAX_PAGE_TOOLS + 1)];
        assert_eq!(ends(&[1; MAX_PAGE_TOOLS + 1]), more);
        assert_eq!(ends(&[MAX_PAGE_BYTES, 1]), [(0, 1), (1, 2)]);
        assert_eq!(ends(&[1, MAX_PAGE_BYTES + 1, 1]), [(0, 1), (1, 2), (2, 3)]);
    }

    #[test]
    fn too_many_or_too_large_direct_tools_are_refused_with_advice() {
        let many = |count: usize| (0..count).map(|at| tool(&format!("mcp:s:t{at}"))).collect::<Vec<_>>();
        let listed = direct(many(MAX_DIRECT_TOOLS), "").unwrap();
        assert_eq!((listed.tools.len(), listed.pages.len()), (MAX_DIRECT_TOOLS, MAX_DIRECT_TOOLS / MAX_PAGE_TOOLS));
        let error = direct(many(MAX_DIRECT_TOOLS + 1), "").unwrap_err();
        assert!(error.to_string().contains("--surface code"), "{error}");
        let large = |at: usize| {
            let mut large = tool(&format!("mcp:s:t{at}"));
            large.description = "x".repeat(MAX_TOOL_DESCRIPTION_BYTES);
            let values: Vec<Value> = (0..200).map(|_| json!("y".repeat(200))).collect();
            large.parameters = json!({"type": "object", "properties": {"q": {"enum": values}}});
            large
        };
        let error = direct((0..90).map(large).collect(), "").unwrap_err();
        assert!(matches!(error, SurfaceError::TooManyDirectTools { tools: 90, .. }), "{error}");
    }
}
