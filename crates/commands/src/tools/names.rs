//! Finds the tool that a user means, however they write its name.

use catalog::search::near;
use catalog::{Catalog, mcp_identifier};
use client_config::{LoadedConfig, Places, ServerEntry, display};
use contract::tool::{Source, ToolId, ToolSpec};

use crate::hint;
use crate::servers::unknown_server;

/// How many tools an error names.
const MAX_NAMED: usize = 5;

/// Returns the tool with this name: `files.read_text_file`, `MCP.files.readTextFile`, `mcp:files:read_text_file`,
/// `myplug.greet`, or its own name if only one tool has exactly that, also as `tools.greet`.
pub(super) fn find_tool<'a>(catalog: &'a Catalog, typed: &str) -> Result<&'a ToolSpec, String> {
    let found = find_written(catalog, typed, written(typed));
    let Some(name) = in_tools(typed).filter(|_| found.is_err()) else { return found };
    // In a cell, `tools` has the tools that are not a server's.
    let is_in_tools = |tool: &&ToolSpec| tool.id.source() != Source::Mcp && tool.id.name() == name;
    match catalog.tools().iter().filter(is_in_tools).collect::<Vec<_>>().as_slice() {
        [only] => Ok(only),
        _ => find_written(catalog, typed, name),
    }
}

fn find_written<'a>(catalog: &'a Catalog, typed: &str, wanted: &str) -> Result<&'a ToolSpec, String> {
    let whole = catalog.tools().iter().find(|tool| whole_names(catalog, tool).iter().any(|name| name == wanted));
    if let Some(tool) = whole {
        return Ok(tool);
    }
    let has_name = |tool: &&ToolSpec| own_names(catalog, tool).iter().any(|name| name == wanted);
    let found: Vec<&ToolSpec> = catalog.tools().iter().filter(has_name).collect();
    match found.as_slice() {
        [only] => Ok(only),
        [] => Err(unknown(catalog, typed)),
        several => {
            let names = several.iter().take(MAX_NAMED).map(|tool| format!("`{}`", short_name(&tool.id)));
            let more = if several.len() > MAX_NAMED { ", …" } else { "" };
            let names = names.collect::<Vec<_>>().join(", ");
            Err(format!("several tools are named `{}`: {names}{more}; write one of these", display::plain(typed)))
        }
    }
}

/// Whose tool a name stands for, as far as the name itself says.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum NamedOwner<'a> {
    Server(&'a ServerEntry),
    /// A plugin, or Cellmate itself: no server is needed.
    Local,
    /// The name does not say: only the tool's own name was typed.
    Any,
    /// The name is not of a server: it is of a plugin, or else it is wrong for this reason.
    NoServer(String),
}

/// Returns whose tool the name stands for. Fails if it begins with a server that cannot be used.
pub(super) fn named_owner<'a>(
    loaded: &'a LoadedConfig,
    typed: &str,
    places: &Places,
) -> Result<NamedOwner<'a>, String> {
    let wanted = written(typed);
    if [Source::Plugin, Source::Openclaw].iter().any(|source| wanted.starts_with(&format!("{}:", source.as_str()))) {
        return Ok(NamedOwner::Local);
    }
    let Some(owner) = owner(wanted) else { return Ok(NamedOwner::Any) };
    let is_named = |server: &&ServerEntry| {
        let rest = wanted.strip_prefix("mcp:").unwrap_or(wanted);
        let begins = |name: &str| rest.strip_prefix(name).is_some_and(|rest| rest.starts_with(['.', ':']));
        begins(&server.name) || begins(&mcp_identifier(&server.name, "server"))
    };
    // Of two names that fit, the longer one is meant: a server's name may contain a dot.
    if let Some(server) = loaded.servers.iter().filter(is_named).max_by_key(|server| server.name.len()) {
        return match server.enabled {
            true => Ok(NamedOwner::Server(server)),
            false => Err(format!("server `{}` is disabled in `{}`", display::plain(&server.name), server.origin)),
        };
    }
    if let Some(problem) = loaded.problems.iter().find(|problem| problem.server.as_deref() == Some(owner)) {
        return Err(problem.to_string());
    }
    if in_tools(typed).is_some() {
        return Ok(NamedOwner::Any);
    }
    Ok(NamedOwner::NoServer(unknown_server(owner, loaded, places)))
}

/// Returns what was typed without decoration: `await MCP.files.read()` is a way to write `files.read`.
fn written(typed: &str) -> &str {
    let name = typed.trim();
    let name = name.strip_prefix("await ").map_or(name, str::trim_start);
    let name = name.strip_suffix("()").unwrap_or(name);
    name.strip_prefix("MCP.").unwrap_or(name)
}

/// Returns the name after `tools.`, as cells call tools of plugins and of Cellmate.
fn in_tools(typed: &str) -> Option<&str> {
    written(typed).strip_prefix("tools.").filter(|name| !name.is_empty())
}

/// Returns the part of a name that stands for the server.
fn owner(name: &str) -> Option<&str> {
    match name.strip_prefix("mcp:") {
        Some(rest) => rest.split_once(':').map(|(owner, _)| owner),
        None => name.split_once(['.', ':']).map(|(owner, _)| owner),
    }
}

/// Returns the names that identify a tool among all: its id, `server.tool`, and the function that cells call.
fn whole_names(catalog: &Catalog, tool: &ToolSpec) -> Vec<String> {
    let mut names = vec![tool.id.as_str().to_owned(), format!("{}.{}", tool.id.owner(), tool.id.name())];
    names.extend(catalog.called(tool).map(|call| call.trim_start_matches("MCP.").to_owned()));
    names
}

/// Returns the names of a tool that others may have, too: its own, with and without its server, and that of its function.
fn own_names(catalog: &Catalog, tool: &ToolSpec) -> Vec<String> {
    let (owner, name) = (tool.id.owner(), tool.id.name());
    let mut names = vec![name.to_owned(), format!("{owner}:{name}")];
    // The function of a generated tool is in a group, such as `resources.read`: its name includes that of the group.
    let function = catalog.called(tool).and_then(|call| Some(call.strip_prefix("MCP.")?.split_once('.')?.1.to_owned()));
    names.extend(function);
    names
}

fn unknown(catalog: &Catalog, typed: &str) -> String {
    let ids = catalog.tools().iter().map(|tool| tool.id.as_str());
    let similar = near(written(typed), ids, 3).into_iter();
    let names = similar.map(|id| ToolId::parse(id).map_or_else(|_| display::plain(id), |id| short_name(&id)));
    let meant = suggestion(names.collect());
    format!(
        "no tool `{}`;{meant} `{}` lists all, and `{}` finds one",
        display::plain(typed),
        hint::command("tools list"),
        hint::command("tools search")
    )
}

fn suggestion(names: Vec<String>) -> String {
    match names.as_slice() {
        [] => String::new(),
        names => format!(" did you mean `{}`?", names.join("` or `")),
    }
}

/// Returns the name with which people call a tool: `server.tool`, or the id of a tool that is not a server's.
pub(super) fn short_name(id: &ToolId) -> String {
    match id.source() {
        Source::Mcp => format!("{}.{}", display::plain(id.owner()), display::plain(id.name())),
        Source::Openclaw | Source::Plugin | Source::Client => display::plain(id.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use catalog::Catalog;
    use contract::tool::{Operation, ToolId, ToolSpec};
    use serde_json::json;

    use super::find_tool;

    fn catalog() -> Catalog {
        let tool = |id: &str| ToolSpec::new(ToolId::parse(id).unwrap(), "", json!({}));
        let ids = ["mcp:files:read_text_file", "mcp:files:list_directory", "mcp:my-notes:list_directory", "mcp:a.b:c"];
        Catalog::new(ids.map(tool).to_vec()).unwrap()
    }

    #[test]
    fn a_tool_is_found_by_each_of_its_names() {
        let catalog = catalog();
        for (typed, id) in [
            ("mcp:files:read_text_file", "mcp:files:read_text_file"),
            ("files.read_text_file", "mcp:files:read_text_file"),
            ("files:read_text_file", "mcp:files:read_text_file"),
            ("MCP.files.readTextFile", "mcp:files:read_text_file"),
            ("MCP.files.readTextFile()", "mcp:files:read_text_file"),
            ("MCP.files.read_text_file", "mcp:files:read_text_file"),
            ("read_text_file", "mcp:files:read_text_file"),
            ("readTextFile", "mcp:files:read_text_file"),
            ("my-notes.list_directory", "mcp:my-notes:list_directory"),
            ("MCP.myNotes.listDirectory", "mcp:my-notes:list_directory"),
            ("a.b.c", "mcp:a.b:c"),
        ] {
            assert_eq!(find_tool(&catalog, typed).map(|tool| tool.id.as_str()), Ok(id), "{typed}");
        }
    }

    #[test]
    fn a_bare_name_means_the_tool_with_exactly_that_name() {
        let tool =
            |id: &str, operation| ToolSpec { operation, ..ToolSpec::new(ToolId::parse(id).unwrap(), "", json!({})) };
        let tools = vec![
            tool("openclaw:core:read", Operation::Tool),
            tool("plugin:myplug:greet", Operation::Tool),
            tool("mcp:git:resources_read", Operation::ReadResource),
            tool("mcp:slow:resources_read", Operation::ReadResource),
        ];
        let catalog = Catalog::new(tools).unwrap();
        let found = |typed: &str| find_tool(&catalog, typed).map(|tool| tool.id.as_str());
        assert_eq!(found("read"), Ok("openclaw:core:read"));
        assert_eq!(found("greet"), Ok("plugin:myplug:greet"));
        for typed in ["plugin:myplug:greet", "myplug.greet", "tools.greet", "await tools.greet()"] {
            assert_eq!(found(typed), Ok("plugin:myplug:greet"), "{typed}");
        }
        assert_eq!(found("MCP.git.resources.read"), Ok("mcp:git:resources_read"));
        for several in ["resources_read", "resources.read"] {
            assert!(found(several).unwrap_err().starts_with("several tools are named"), "{several}");
        }
    }

    #[test]
    fn an_unknown_or_ambiguous_name_is_answered_with_names_that_work() {
        let catalog = catalog();
        let error = |typed: &str| find_tool(&catalog, typed).map(|tool| tool.id.as_str()).unwrap_err();
        let several = "several tools are named `list_directory`: `files.list_directory`, `my-notes.list_directory`; write \
                       one of these";
        assert_eq!(error("list_directory"), several);
        let meant = error("files.lst_directory");
        assert!(meant.starts_with("no tool `files.lst_directory`; did you mean `files.list_directory`"), "{meant}");
        let nothing = "no tool `zzzz`; `cellmate tools list` lists all, and `cellmate tools search` finds one";
        assert_eq!(error("zzzz"), nothing);
        for wrong in ["", "directory", "MCP.files", "files."] {
            assert!(find_tool(&catalog, wrong).is_err(), "{wrong}");
        }
    }
}
