//! Tool groups in policies, such as `group:fs` and `bundle-mcp`.
//!
//! The set is closed, so that a misspelt group is an error and not a deny list that denies nothing. The names and
//! members are those of the first implementation. A group contains only tools of its sources, so that no MCP server or
//! client joins `group:fs` by naming a tool `read`.

use crate::tool::{Source, ToolId};

/// The prefix of every group name except [`BUNDLE_MCP`].
pub(super) const PREFIX: &str = "group:";

/// All MCP tools, under the name of the first implementation's plugin for them.
const BUNDLE_MCP: &str = "bundle-mcp";

/// A named set of tools.
#[derive(Debug, PartialEq, Eq)]
pub struct Group {
    name: &'static str,
    sources: &'static [Source],
    members: Members,
}

/// Which tools of a group's sources belong to it, by tool name.
#[derive(Debug, PartialEq, Eq)]
enum Members {
    All,
    Only(&'static [&'static str]),
    Except(&'static [&'static str]),
}

impl Group {
    pub fn find(name: &str) -> Option<&'static Self> {
        GROUPS.iter().find(|group| group.name == name)
    }

    pub fn names() -> impl Iterator<Item = &'static str> {
        GROUPS.iter().map(|group| group.name)
    }

    pub fn contains(&self, id: &ToolId) -> bool {
        self.sources.contains(&id.source())
            && match self.members {
                Members::All => true,
                Members::Only(names) => names.contains(&id.name()),
                Members::Except(names) => !names.contains(&id.name()),
            }
    }

    const fn new(name: &'static str, sources: &'static [Source], members: Members) -> Self {
        Self { name, sources, members }
    }

    const fn core(name: &'static str, members: &'static [&'static str]) -> Self {
        Self::new(name, &[Source::Openclaw], Members::Only(members))
    }
}

static GROUPS: [Group; 16] = [
    // Without tools that access the machine, as in the first implementation; `group:fs`, `group:runtime` and
    // `openclaw:*` include them.
    Group::new(
        "group:openclaw",
        &[Source::Openclaw],
        Members::Except(&["read", "write", "edit", "apply_patch", "ls", "find", "grep", "exec", "process", "canvas"]),
    ),
    // MCP servers count as plugins; `plugin:*` is the rest.
    Group::new("group:plugins", &[Source::Plugin, Source::Mcp], Members::All),
    Group::new("group:mcp", &[Source::Mcp], Members::All),
    Group::new("group:client", &[Source::Client], Members::All),
    Group::new(BUNDLE_MCP, &[Source::Mcp], Members::All),
    // `ls`, `find` and `grep` are not in the first implementation's group, but read files too.
    Group::core("group:fs", &["read", "write", "edit", "apply_patch", "ls", "find", "grep"]),
    Group::core("group:runtime", &["exec", "process", "code_execution"]),
    Group::core("group:web", &["web_search", "web_fetch", "x_search"]),
    Group::core("group:memory", &["memory_search", "memory_get"]),
    Group::core(
        "group:sessions",
        &[
            "sessions",
            "sessions_list",
            "sessions_history",
            "sessions_search",
            "sessions_send",
            "sessions_spawn",
            "sessions_yield",
            "subagents",
            "session_status",
        ],
    ),
    Group::core("group:ui", &["browser", "canvas"]),
    Group::core("group:messaging", &["message"]),
    Group::core("group:automation", &["heartbeat_respond", "cron", "gateway"]),
    Group::core("group:nodes", &["nodes", "computer"]),
    Group::core("group:agents", &["agents_list", "get_goal", "create_goal", "update_goal", "update_plan"]),
    Group::core("group:media", &["image", "image_generate", "music_generate", "video_generate", "tts"]),
];

#[cfg(test)]
mod tests {
    use super::{Group, PREFIX};
    use crate::tool::ToolId;

    #[test]
    fn a_group_contains_only_tools_of_its_sources_and_names() {
        let cases = [
            ("group:openclaw", "openclaw:core:cron", true),
            ("group:openclaw", "openclaw:other:anything", true),
            ("group:openclaw", "openclaw:core:exec", false),
            ("group:openclaw", "openclaw:core:read", false),
            ("group:openclaw", "plugin:a:cron", false),
            ("group:plugins", "plugin:a:x", true),
            ("group:plugins", "mcp:a:x", true),
            ("group:plugins", "openclaw:a:x", false),
            ("group:plugins", "client:a:x", false),
            ("group:mcp", "mcp:a:x", true),
            ("group:mcp", "plugin:a:x", false),
            ("bundle-mcp", "mcp:a:x", true),
            ("bundle-mcp", "plugin:bundle-mcp:x", false),
            ("group:client", "client:a:x", true),
            ("group:client", "mcp:a:x", false),
            ("group:fs", "openclaw:core:read", true),
            ("group:fs", "openclaw:core:apply_patch", true),
            ("group:fs", "openclaw:core:ls", true),
            ("group:fs", "openclaw:core:find", true),
            ("group:fs", "openclaw:core:grep", true),
            ("group:openclaw", "openclaw:core:grep", false),
            ("group:fs", "openclaw:core:exec", false),
            ("group:fs", "mcp:evil:read", false),
            ("group:fs", "client:evil:read", false),
            ("group:fs", "plugin:evil:read", false),
            ("group:runtime", "openclaw:core:exec", true),
            ("group:runtime", "openclaw:core:Exec", false),
        ];
        for (group, id, expected) in cases {
            let id = ToolId::parse(id).unwrap();
            assert_eq!(Group::find(group).unwrap().contains(&id), expected, "{group} {id:?}");
        }
    }

    #[test]
    fn group_names_are_unique_and_matched_exactly() {
        let mut names: Vec<&str> = Group::names().collect();
        assert!(names.iter().all(|name| name.starts_with(PREFIX) || *name == "bundle-mcp"));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 16);
        for unknown in ["", "group:", "fs", "group:FS", "group:*", "group:bundle-mcp"] {
            assert!(Group::find(unknown).is_none(), "{unknown}");
        }
    }
}
