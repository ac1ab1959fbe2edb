//! Search in one catalog: by query, by source, and by misspelt ids.

use std::collections::BTreeMap;
use std::sync::Arc;

use contract::tool::{Source, ToolSpec};
use serde_json::Value;

use crate::search::{Document, EmbeddingTable, Index, ScoreExplanation, Weights, near};
use crate::view::View;
use crate::{Catalog, declare, guest_view};

/// The maximum length of an unknown id in a message.
const MAX_SHOWN_CHARS: usize = 200;

/// The maximum number of suggestions for an unknown id.
const MAX_NEAR: usize = 3;

impl Catalog {
    /// Returns the best matches first; for an empty query, one tool of each source in turn.
    pub fn search(&self, view: View, query: &str, limit: usize) -> Vec<Value> {
        let found = self.find(query, limit, |tool| view.shows(tool));
        found.into_iter().map(|tool| guest_view::hit_in(view, tool, None)).collect()
    }

    /// Searches the tools of MCP servers only. Each hit has the expression with which a cell calls it.
    pub fn search_mcp(&self, query: &str, limit: usize) -> Vec<Value> {
        let found = self.find(query, limit, |tool| tool.id.source() == Source::Mcp);
        found.into_iter().map(|tool| guest_view::hit_in(View::ToolSearch, tool, self.called(tool))).collect()
    }

    /// Searches as [`Self::search`] does, but returns the tools themselves instead of their JSON for cells.
    pub fn find(&self, query: &str, limit: usize, shown: impl Fn(&ToolSpec) -> bool) -> Vec<&ToolSpec> {
        if query.chars().all(char::is_whitespace) {
            return self.by_source(limit, shown);
        }
        let is_shown = |position: usize| self.tools.get(position).is_some_and(&shown);
        let hits = self.index().rank(query, limit, is_shown);
        hits.into_iter().filter_map(|hit| self.tools.get(hit.position)).collect()
    }

    /// Returns tools with ids similar to one that this view does not have, as the caller writes them.
    fn near(&self, view: View, id: &str) -> Vec<String> {
        let ids = near(id, self.tools.iter().map(|tool| tool.id.as_str()), MAX_NEAR).into_iter();
        ids.filter_map(|id| self.get(id)).filter_map(|tool| self.written(view, tool)).collect()
    }

    /// Returns how a caller with this view writes a tool: its id or, for an MCP tool in a cell, `MCP.<server>.<method>`.
    fn written(&self, view: View, tool: &ToolSpec) -> Option<String> {
        if view.shows(tool) { Some(tool.id.as_str().to_owned()) } else { self.called(tool) }
    }

    /// Returns the message for an id that this view does not have. Unknown and denied tools get the same message;
    /// `search` is the function that the caller can search with.
    pub fn unknown_tool_message(&self, view: View, id: &str, search: &str) -> String {
        let shown: String = id.chars().take(MAX_SHOWN_CHARS).collect();
        if let Some(call) = self.get(id).filter(|tool| !view.shows(tool)).and_then(|tool| self.called(tool)) {
            return format!("`{shown}` is an MCP tool; call it as `{call}({{ … }})`");
        }
        let near: Vec<String> = self.near(view, &shown).into_iter().map(|name| format!("`{name}`")).collect();
        let meant = if near.is_empty() { String::new() } else { format!(" did you mean {}?", near.join(" or ")) };
        format!("unknown tool `{shown}`;{meant} use {search} to find tools")
    }

    /// Explains the score of this tool in a search for `query`.
    pub fn explain(&self, query: &str, id: &str) -> Option<ScoreExplanation> {
        self.index().explain(query, self.position(id)?)
    }

    /// Returns the index of all tools, built on first use.
    pub fn index(&self) -> &Arc<Index> {
        self.index.get_or_init(|| {
            let documents = self.tools.iter().map(Document::of).collect();
            Arc::new(match &self.former {
                Some(former) => former.updated(documents),
                None => Index::new(documents, self.meaning.then(EmbeddingTable::shipped).flatten(), Weights::SHIPPED),
            })
        })
    }

    /// Limits searches to matching words; the embedding table is not loaded.
    pub fn without_meaning(self) -> Self {
        Self { meaning: false, ..self }
    }

    /// Reuses the index of the former catalog for tools that have not changed.
    pub fn reusing_index_of(self, former: &Self) -> Self {
        let former = former.index.get().or(former.former.as_ref()).filter(|_| former.meaning == self.meaning);
        Self { former: former.map(Arc::clone), ..self }
    }

    fn by_source(&self, limit: usize, shown: impl Fn(&ToolSpec) -> bool) -> Vec<&ToolSpec> {
        let mut sources: BTreeMap<(Source, &str), Vec<&ToolSpec>> = BTreeMap::new();
        for tool in self.tools.iter().filter(|tool| shown(tool)) {
            sources.entry((tool.id.source(), tool.id.owner())).or_default().push(tool);
        }
        let longest = sources.values().map(Vec::len).max().unwrap_or_default();
        let turns = (0..longest).flat_map(|turn| sources.values().filter_map(move |tools| tools.get(turn).copied()));
        turns.take(limit).collect()
    }

    /// Returns the type of a tool's input on one line.
    pub fn signature(&self, tool: &ToolSpec) -> String {
        declare::signature(tool)
    }

    /// Returns the expression that calls a tool of an MCP server in a cell: `MCP.<server>.<method>`.
    pub fn called(&self, tool: &ToolSpec) -> Option<String> {
        let (identifier, server) = self.servers.iter().find(|(_, server)| server.name == tool.id.owner())?;
        let path = server.path_to(self.position(tool.id.as_str())?)?;
        Some(format!("MCP.{identifier}.{path}"))
    }
}
