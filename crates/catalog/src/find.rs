//! Finding tools of one catalog: by what somebody means, by what there is, and by names that are nearly right.

use std::collections::BTreeMap;
use std::sync::Arc;

use contract::tool::{Source, ToolSpec};
use serde_json::Value;

use crate::search::{Document, Index, Meaning, Weights, Why, near};
use crate::view::View;
use crate::{Catalog, guest_view};

/// What is shown of an id that does not exist.
const MAX_SHOWN_CHARS: usize = 200;

/// So many names are offered for one that does not exist.
const MAX_NEAR: usize = 3;

impl Catalog {
    /// The best matches first; without a query, what there is, one tool of each source in turn.
    pub fn search(&self, view: View, query: &str, limit: usize) -> Vec<Value> {
        let found = self.find(query, limit, |tool| view.shows(tool));
        found.into_iter().map(|tool| guest_view::hit_in(view, tool, None)).collect()
    }

    /// The same among what MCP servers offer, each with the way a cell calls it.
    pub fn search_mcp(&self, query: &str, limit: usize) -> Vec<Value> {
        let found = self.find(query, limit, |tool| tool.id.source() == Source::Mcp);
        found.into_iter().map(|tool| guest_view::hit_in(View::ToolSearch, tool, self.called(tool))).collect()
    }

    /// The tools themselves, for those who do not need them as a cell does.
    pub fn find(&self, query: &str, limit: usize, shown: impl Fn(&ToolSpec) -> bool) -> Vec<&ToolSpec> {
        if query.chars().all(char::is_whitespace) {
            return self.by_source(limit, shown);
        }
        let is_shown = |position: usize| self.tools.get(position).is_some_and(&shown);
        let hits = self.index().rank(query, limit, is_shown);
        hits.into_iter().filter_map(|hit| self.tools.get(hit.position)).collect()
    }

    /// Ids that may have been meant by one that this view does not have.
    fn near(&self, view: View, id: &str) -> Vec<&str> {
        let ids = self.tools.iter().filter(|tool| view.shows(tool)).map(|tool| tool.id.as_str());
        near(id, ids, MAX_NEAR)
    }

    /// What to say of an id that this view does not have. Unknown and denied tools answer alike; `search` is what the
    /// asker has to look for tools with.
    pub fn unknown(&self, view: View, id: &str, search: &str) -> String {
        let shown: String = id.chars().take(MAX_SHOWN_CHARS).collect();
        let near: Vec<String> = self.near(view, &shown).into_iter().map(|id| format!("`{id}`")).collect();
        let meant = if near.is_empty() { String::new() } else { format!(" did you mean {}?", near.join(" or ")) };
        format!("unknown tool `{shown}`;{meant} {search} finds the tools there are")
    }

    /// What spoke for this tool in a search for that.
    pub fn explain(&self, query: &str, id: &str) -> Option<Why> {
        self.index().explain(query, self.position(id)?)
    }

    /// The index of all tools, made when it is first needed.
    pub fn index(&self) -> &Arc<Index> {
        self.index.get_or_init(|| {
            let documents = self.tools.iter().map(Document::of).collect();
            Arc::new(match &self.former {
                Some(former) => former.updated(documents),
                None => Index::new(documents, self.meaning.then(Meaning::shipped).flatten(), Weights::SHIPPED),
            })
        })
    }

    /// With searches that go by words alone: the table of meanings is not even read.
    pub fn without_meaning(self) -> Self {
        Self { meaning: false, ..self }
    }

    /// Takes over what the former catalog has read of tools that have not changed.
    pub fn after(self, former: &Self) -> Self {
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

    /// `MCP.<server>.<method>`.
    fn called(&self, tool: &ToolSpec) -> Option<String> {
        let (identifier, server) = self.servers.iter().find(|(_, server)| server.name == tool.id.owner())?;
        let path = server.path_to(self.position(tool.id.as_str())?)?;
        Some(format!("MCP.{identifier}.{path}"))
    }
}
