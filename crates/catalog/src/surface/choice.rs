//! Which surface a run gets: decided from the settings, the operator's choice and the size of the catalog.
//!
//! The decision is pure, and every entry point uses this one.

use contract::config::ToolsConfig;
use contract::limits::{MAX_AUTO_DIRECT_BYTES, MAX_AUTO_DIRECT_TOOLS};

use crate::prompt::ExecHold;

/// The surface that an operator asks for, instead of the configured one: the value of `--surface`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SurfaceChoice {
    /// Code mode: `exec` and `wait`.
    Code,
    /// Tool Search: one tool that takes code, or three that take arguments.
    Search,
    /// The tools themselves.
    Direct,
    /// The tools themselves if they are few and small, else code mode.
    Auto,
}

/// The kind of program that shows the tools to a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EntryPoint {
    /// A host program with its own agents. It follows the contract: code mode is off unless it is switched on, and a
    /// run without tools shows nothing.
    #[default]
    Contract,
    /// The MCP server, and programs that use the crate `cellmate`. Without a setting they show code mode, and they show
    /// its controls even if there are no tools, so that the model learns why there are none.
    Mcp,
}

/// What an entry point wants to show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SurfaceOptions {
    pub entry: EntryPoint,
    /// Replaces the settings `tools.codeMode` and `tools.toolSearch`.
    pub wanted: Option<SurfaceChoice>,
    /// Bytes that the entry point puts before each name. Names of direct tools leave room for them.
    pub prefix_bytes: usize,
    pub exec_hold: ExecHold,
}

/// Why a run has its surface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChosenBy {
    /// `--surface`.
    Operator,
    /// `tools.codeMode` or `tools.toolSearch`.
    Settings,
    /// Nothing is configured.
    Default,
    /// `auto`: the catalog is small enough to be shown directly.
    SmallCatalog,
    /// `auto`: the catalog is too large to be shown directly, or empty.
    OtherCatalog,
    /// The run has no tools.
    NoTools,
    /// An allow list is explicitly empty.
    EmptyAllowList,
}

impl ChosenBy {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Settings => "settings",
            Self::Default => "default",
            Self::SmallCatalog => "small-catalog",
            Self::OtherCatalog => "other-catalog",
            Self::NoTools => "no-tools",
            Self::EmptyAllowList => "empty-allow-list",
        }
    }
}

/// The catalog as the decision sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CatalogSize {
    pub(super) tools: usize,
    /// The size of all definitions, as [`super::VisibleTool::bytes`] counts it.
    pub(super) bytes: usize,
    /// Whether the policy has an allow list that is explicitly empty.
    pub(super) is_closed: bool,
}

impl CatalogSize {
    fn is_small(self) -> bool {
        (1..=MAX_AUTO_DIRECT_TOOLS).contains(&self.tools) && self.bytes <= MAX_AUTO_DIRECT_BYTES
    }
}

/// A surface without its details.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SurfaceKind {
    None,
    Direct,
    Search,
    Code,
}

pub(super) fn decide(config: &ToolsConfig, options: &SurfaceOptions, size: CatalogSize) -> (SurfaceKind, ChosenBy) {
    if size.is_closed {
        return (SurfaceKind::None, ChosenBy::EmptyAllowList);
    }
    if size.tools == 0 && options.entry == EntryPoint::Contract {
        return (SurfaceKind::None, ChosenBy::NoTools);
    }
    let (kind, by) = match options.wanted {
        Some(SurfaceChoice::Code) => (SurfaceKind::Code, ChosenBy::Operator),
        Some(SurfaceChoice::Search) => (SurfaceKind::Search, ChosenBy::Operator),
        Some(SurfaceChoice::Direct) => (SurfaceKind::Direct, ChosenBy::Operator),
        Some(SurfaceChoice::Auto) if size.is_small() => (SurfaceKind::Direct, ChosenBy::SmallCatalog),
        Some(SurfaceChoice::Auto) => (SurfaceKind::Code, ChosenBy::OtherCatalog),
        None => configured(config, options.entry),
    };
    match kind {
        // There is no tool to show, and no control that could say why.
        SurfaceKind::Direct if size.tools == 0 => (SurfaceKind::None, ChosenBy::NoTools),
        SurfaceKind::None | SurfaceKind::Direct | SurfaceKind::Search | SurfaceKind::Code => (kind, by),
    }
}

fn configured(config: &ToolsConfig, entry: EntryPoint) -> (SurfaceKind, ChosenBy) {
    let is_off = config.code_mode.switch == Some(false);
    match (config.code_mode.enabled, config.tool_search.enabled, entry) {
        (true, _, _) => (SurfaceKind::Code, ChosenBy::Settings),
        (false, true, _) => (SurfaceKind::Search, ChosenBy::Settings),
        (false, false, _) if is_off => (SurfaceKind::Direct, ChosenBy::Settings),
        (false, false, EntryPoint::Contract) => (SurfaceKind::Direct, ChosenBy::Default),
        (false, false, EntryPoint::Mcp) => (SurfaceKind::Code, ChosenBy::Default),
    }
}
