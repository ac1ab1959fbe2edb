//! Two catalogs: one with only the tool that cells call, one as large as a real one.

use catalog::Catalog;
use contract::tool::{ToolId, ToolSpec};
use serde_json::json;

use crate::Result;

pub(crate) const ECHO: &str = "openclaw:bench:echo";

pub(crate) fn small() -> Result<Catalog> {
    Ok(Catalog::new(vec![spec(ECHO, "Returns its input.")?])?)
}

/// 500 tools: half of them ordinary ones, half behind ten MCP servers.
pub(crate) fn large() -> Result<Catalog> {
    const SUBJECTS: [&str; 10] =
        ["issue", "branch", "invoice", "calendar", "mailbox", "deployment", "metric", "document", "contact", "ticket"];
    const VERBS: [&str; 5] = ["create", "list", "update", "delete", "search"];
    let mut tools = Vec::with_capacity(500);
    for owner in 0..10 {
        for subject in SUBJECTS {
            for verb in VERBS {
                let (source, group) = if owner < 5 { ("plugin", "suite") } else { ("mcp", "server") };
                let id = format!("{source}:{group}{owner}:{verb}_{subject}_{owner}");
                let description = format!(
                    "{verb} a {subject} in workspace {owner}. Takes the {subject}'s name and filters; answers with the \
                     matching records, newest first, at most `limit` of them. Fails where the {subject} is locked."
                );
                tools.push(spec(&id, &description)?);
            }
        }
    }
    Ok(Catalog::new(tools)?)
}

fn spec(id: &str, description: &str) -> Result<ToolSpec> {
    let parameters = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "What it is called, as shown to people."},
            "filters": {"type": "object", "properties": {"state": {"enum": ["open", "closed"]}, "since": {"type": "string"}}},
            "labels": {"type": "array", "items": {"type": "string"}},
            "limit": {"type": "integer", "minimum": 1, "maximum": 100},
        },
        "required": ["name"],
    });
    Ok(ToolSpec::new(ToolId::parse(id)?, description, parameters))
}
