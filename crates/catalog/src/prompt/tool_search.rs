//! The descriptions of Tool Search's control tools.

use contract::config::ToolSearch;

use super::amount::{count, time};
use super::servers;
use crate::Catalog;

pub fn tool_search_code(config: &ToolSearch, catalog: &Catalog) -> String {
    format!(
        "\
Runs a short JavaScript program that finds and calls this run's {tools}. `code` is the body of an async function:
  const hits = await openclaw.tools.search(\"create a calendar event\");
  const tool = await openclaw.tools.describe(hits[0].id); // tool.parameters is its input's JSON Schema
  return await openclaw.tools.call(tool.id, {{ title: \"Planning\" }});
MCP tools (mcp:<server>:<tool>) are called by id in the same way. A search returns at most {default} tools, or {{ \
limit }} up to {max}. `return` passes a JSON value back; console.log, console.warn and console.error are returned as \
logs. A failed call rejects. There are no modules, files, network, processes or timers. It takes at most {time}.\
{unavailable}",
        tools = count(catalog.len(), "tool"),
        default = config.search.default,
        max = config.search.max,
        time = time(config.code_timeout_ms),
        unavailable = servers::unavailable(catalog),
    )
}

/// Clients may give the tools a prefix, with which the descriptions name them.
pub fn tool_search(config: &ToolSearch, catalog: &Catalog, prefix: &str) -> String {
    format!(
        "\
Searches this run's {} by keywords, best matches first: at most {}, or `limit` up to {}. Each result has an id, a \
name, a description and a source. `{prefix}tool_describe` then returns its input schema, and `{prefix}tool_call` \
calls it.{unavailable}",
        count(catalog.len(), "tool"),
        config.search.default,
        config.search.max,
        unavailable = servers::unavailable(catalog),
    )
}

pub fn tool_describe(prefix: &str) -> String {
    format!("Returns one tool by its id from `{prefix}tool_search`, with `parameters`: the JSON Schema of its input.")
}

pub fn tool_call(prefix: &str) -> String {
    format!(
        "Calls one tool by its id, with `args` that match its schema from `{prefix}tool_describe`. Policy and \
         approvals apply as to every call."
    )
}
