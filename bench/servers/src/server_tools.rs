//! The servers' tools, with the shape and size of real ones.

use serde_json::{Value, json};

/// The names of the servers.
pub(crate) const SERVERS: [&str; 64] = [
    "accounting",
    "alerts",
    "analytics",
    "archive",
    "assets",
    "audit",
    "backups",
    "billing",
    "bookings",
    "browser",
    "builds",
    "calendar",
    "campaigns",
    "chat",
    "classroom",
    "clinic",
    "cluster",
    "contacts",
    "contracts",
    "courses",
    "crm",
    "dashboards",
    "deploys",
    "directory",
    "dispatch",
    "documents",
    "domains",
    "drive",
    "email",
    "events",
    "expenses",
    "feeds",
    "fleet",
    "forms",
    "forum",
    "grants",
    "helpdesk",
    "hiring",
    "identity",
    "inventory",
    "invoices",
    "kitchen",
    "ledger",
    "library",
    "mailing",
    "maps",
    "metrics",
    "music",
    "notes",
    "orders",
    "payments",
    "payroll",
    "photos",
    "projects",
    "registry",
    "releases",
    "reviews",
    "shipping",
    "store",
    "surveys",
    "tickets",
    "travel",
    "warehouse",
    "wiki",
];

/// The name of the server at this position. Larger fleets repeat the names with a number.
pub(crate) fn name(server: usize) -> String {
    let name = SERVERS.get(server % SERVERS.len()).copied().unwrap_or_default();
    if server < SERVERS.len() { name.to_owned() } else { format!("{name}{}", server / SERVERS.len() + 1) }
}

/// Number of tools of all servers together: the first 16 servers have 32 each, the others 31.
pub(crate) const TOOLS: usize = 2_000;

const VERBS: [Verb; 8] = [
    Verb {
        name: "get",
        does: Behaviour::Answer,
        reads: true,
        about: "Get one %s by its id, with everything that is known about it. Returns an error where there is none.",
    },
    Verb {
        name: "export",
        does: Behaviour::Work,
        reads: true,
        about: "Export a %s with its whole history into one file and return where that is. Takes a moment where much has happened to it.",
    },
    Verb {
        name: "update",
        does: Behaviour::Work,
        reads: false,
        about: "Change an existing %s. Fields that are left out stay as they are; the whole record is returned. Requires the right to edit.",
    },
    Verb {
        name: "watch",
        does: Behaviour::Hang,
        reads: true,
        about: "Wait for the next change of a %s and return it. Holds on until something happens.",
    },
    Verb {
        name: "list",
        does: Behaviour::Answer,
        reads: true,
        about: "List %s records, newest first, a page at a time. Pass the cursor of the last page to get the next.",
    },
    Verb {
        name: "search",
        does: Behaviour::Answer,
        reads: true,
        about: "Search %s records by words, owner, state and dates. Supports quotes for exact phrases and a minus before words that must not occur.",
    },
    Verb {
        name: "create",
        does: Behaviour::Answer,
        reads: false,
        about: "Create a new %s and return it with its id. The name must be unique within the workspace.",
    },
    Verb {
        name: "delete",
        does: Behaviour::Answer,
        reads: false,
        about: "Delete a %s for good. This cannot be undone; archive it where it may be needed again.",
    },
];

const NOUNS: [&str; 16] = [
    "record",
    "report",
    "comment",
    "attachment",
    "member",
    "template",
    "schedule",
    "label",
    "approval",
    "folder",
    "webhook",
    "permission",
    "version",
    "summary",
    "reminder",
    "category",
];

/// How long a working tool takes to answer, and how long a hanging one does.
const WORK_MS: u64 = 300;
const HANG_MS: u64 = 50_000;

struct Verb {
    name: &'static str,
    does: Behaviour,
    reads: bool,
    about: &'static str,
}

#[derive(Clone, Copy)]
enum Behaviour {
    Answer,
    Work,
    Hang,
}

/// The name of a tool that answers immediately, of the server at this position.
pub(crate) fn answering(server: usize) -> String {
    named("get", server)
}

/// The name of a tool that takes [`WORK_MS`] and only reads.
pub(crate) fn working_reader(server: usize) -> String {
    named("export", server)
}

/// The name of a tool that takes [`WORK_MS`] and must not be called twice.
pub(crate) fn working_writer(server: usize) -> String {
    named("update", server)
}

/// The name of a tool that does not answer for [`HANG_MS`].
pub(crate) fn hanging(server: usize) -> String {
    named("watch", server)
}

fn named(verb: &str, server: usize) -> String {
    format!("{verb}_{}", nouns(server).next().unwrap_or_default())
}

fn nouns(server: usize) -> impl Iterator<Item = &'static str> {
    NOUNS.iter().copied().cycle().skip(server * 4 % NOUNS.len()).take(4)
}

/// The tools of the server at this position, with the steps the scripted server takes for each.
pub(crate) fn tools(server: usize) -> Vec<Value> {
    let all = nouns(server).flat_map(|noun| VERBS.iter().map(move |verb| tool(server, verb, noun)));
    all.take(TOOLS / SERVERS.len() + usize::from(server < TOOLS % SERVERS.len())).collect()
}

fn tool(server: usize, verb: &Verb, noun: &str) -> Value {
    let owner = name(server);
    let answer = json!({"result": {
        "content": [{"type": "text", "text": format!("one {noun} of {owner}")}],
        "structuredContent": {"id": format!("{owner}-7"), "name": noun, "state": "open"},
    }});
    let does = match verb.does {
        Behaviour::Answer => json!([answer]),
        Behaviour::Work => json!([{"sleepMs": WORK_MS}, answer]),
        Behaviour::Hang => json!([{"sleepMs": HANG_MS}, answer]),
    };
    json!({
        "name": format!("{}_{noun}", verb.name),
        "title": format!("{} {noun} ({owner})", verb.name),
        "description": verb.about.replace("%s", noun),
        "inputSchema": schema(verb.name, noun),
        "annotations": {"readOnlyHint": verb.reads},
        "does": does,
    })
}

fn schema(verb: &str, noun: &str) -> Value {
    let workspace =
        json!({"type": "string", "description": "The workspace to look in; the caller's own where left out"});
    let id = json!({"type": "string", "description": format!("The id of the {noun}, as list and search return it")});
    let state = json!({"type": "string", "enum": ["open", "active", "closed", "archived"], "description": format!("Only a {noun} in this state")});
    let limit = json!({"type": "integer", "minimum": 1, "maximum": 200, "default": 50, "description": "How many to return at most"});
    let tags = json!({"type": "array", "items": {"type": "string"}, "description": "Labels, at most twenty"});
    let between = json!({"type": "object", "description": "First and last day, as ISO dates", "properties": {
        "from": {"type": "string", "format": "date"}, "to": {"type": "string", "format": "date"},
    }});
    let name = json!({"type": "string", "maxLength": 200, "description": format!("What the {noun} is called")});
    let (properties, required) = match verb {
        "get" | "delete" | "export" | "watch" => (json!({"id": id, "workspace": workspace}), json!(["id"])),
        "create" => {
            let body = json!({"type": "string", "description": "Text, in Markdown"});
            (json!({"name": name, "body": body, "tags": tags, "workspace": workspace}), json!(["name"]))
        }
        "update" => {
            (json!({"id": id, "name": name, "state": state, "tags": tags, "workspace": workspace}), json!(["id"]))
        }
        _ => {
            let query = json!({"type": "string", "description": "Words to look for"});
            let cursor = json!({"type": "string", "description": "Where the last page ended"});
            let all = json!({"query": query, "state": state, "between": between, "tags": tags, "limit": limit, "cursor": cursor, "workspace": workspace});
            (all, json!([]))
        }
    };
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{SERVERS, TOOLS, answering, hanging, tools, working_reader, working_writer};

    #[test]
    fn the_fleet_has_the_expected_number_of_tools_and_each_server_has_the_called_ones() {
        let names = |server: usize| -> BTreeSet<String> {
            tools(server).iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!((0..SERVERS.len()).map(|server| names(server).len()).sum::<usize>(), TOOLS);
        for (server, owner) in SERVERS.iter().enumerate() {
            for called in [answering(server), working_reader(server), working_writer(server), hanging(server)] {
                assert!(names(server).contains(&called), "{owner} has no {called}");
            }
        }
    }

    #[test]
    fn the_average_tool_is_as_large_as_those_of_real_servers() {
        let bytes: usize = (0..SERVERS.len()).flat_map(tools).map(|tool| tool.to_string().len()).sum();
        assert!((500..1_500).contains(&(bytes / TOOLS)), "{} bytes each", bytes / TOOLS);
    }
}
