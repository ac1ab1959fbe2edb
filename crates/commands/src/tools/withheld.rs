//! Tools that servers have and runs do not, and what in the configuration is the reason.

use catalog::Catalog;
use catalog::policy::{Decision, Policy};
use client_config::{ConfigFile, KeyPath, Places, ServerEntry, display, own_files};
use contract::tool::ToolSpec;
use executor::ToolSource;
use serde_json::Value;

use super::names::{find_tool, short_name};
use crate::servers::FilteredTools;

/// The tools that a run does not have although they exist.
#[derive(Debug, Default)]
pub(super) struct WithheldTools {
    policy: Policy,
    /// Tools that the policy does not allow.
    refused: Vec<ToolSpec>,
    /// Tools that the entry of their server leaves out.
    left_out: Vec<(ToolSpec, ServerEntry)>,
}

impl WithheldTools {
    pub(super) fn new(policy: Policy) -> Self {
        Self { policy, refused: Vec::new(), left_out: Vec::new() }
    }

    /// Adds the tools of a source that the policy does not allow.
    pub(super) fn add(&mut self, tools: Vec<ToolSpec>) {
        let policy = &self.policy;
        self.refused.extend(tools.into_iter().filter(|tool| policy.explain(&tool.id) != Decision::Allowed));
    }

    /// Adds the tools of a server that its entry leaves out, or that the policy does not allow.
    pub(super) fn add_server(&mut self, source: &dyn ToolSource, offered: &FilteredTools, entry: &ServerEntry) {
        let offered = offered.tools();
        let is_offered = |tool: &ToolSpec| offered.iter().any(|one| one.id == tool.id);
        let left_out = source.tools().into_iter().filter(|tool| !is_offered(tool));
        self.left_out.extend(left_out.map(|tool| (tool, entry.clone())));
        self.add(offered);
    }

    /// Returns why runs do not have the tool that the user typed; `None` if there is no such tool.
    pub(super) fn explain(&self, typed: &str, places: &Places) -> Option<String> {
        let all = self.refused.iter().chain(self.left_out.iter().map(|(tool, _)| tool)).cloned().collect();
        let catalog = Catalog::new(all).ok()?;
        let id = &find_tool(&catalog, typed).ok()?.id;
        let name = short_name(id);
        if let Some((_, entry)) = self.left_out.iter().find(|(tool, _)| tool.id == *id) {
            return Some(format!(
                "`{name}` is left out by the lists of tools in the entry of server `{}` (`{}`); change `enabledTools` or \
                 `disabledTools` there to use it",
                display::plain(&entry.name),
                entry.origin
            ));
        }
        match self.policy.explain(id) {
            Decision::Allowed => None,
            Decision::Denied { origin, pattern } => {
                let setting = format!("{origin}.deny");
                let file = place_in_files(places, &setting, Some(pattern.as_str()));
                Some(format!(
                    "the policy denies `{name}`: the pattern `{pattern}` in `{setting}`{file}; remove it there to use the \
                     tool"
                ))
            }
            Decision::NotAllowed { origin } => {
                let file = place_in_files(places, origin, None);
                Some(format!(
                    "the policy denies `{name}`: it is not in the allow list of `{origin}`{file}; add `{}` there to \
                     use the tool",
                    display::plain(id.as_str())
                ))
            }
        }
    }
}

/// Returns the first file that has the setting, and the item in its list, with the line; nothing if it is not found.
fn place_in_files(places: &Places, setting: &str, item: Option<&str>) -> String {
    let found = own_files(places).into_iter().find_map(|(file, source)| {
        let file = ConfigFile::open(&file, source).ok()??;
        let path = KeyPath::parse(setting).ok()?;
        let value = file.shown(&path)?;
        let path = match (item, &value) {
            (None, _) => path,
            (Some(item), Value::Array(items)) => path.item(items.iter().position(|one| one == item)?),
            (Some(_), _) => return None,
        };
        Some(format!("{}:{}", display::path(&file.file), file.position(&path).line))
    });
    found.map(|place| format!(" (`{place}`)")).unwrap_or_default()
}
