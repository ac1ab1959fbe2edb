//! A JSON Schema of the settings, for editors and for `cellmate config`.
//!
//! Keys, ranges and defaults of numbers come from the tables that the readers use. The tests check that the readers know
//! exactly the keys of each object here.

use serde_json::{Map, Value, json};

use super::{RootAccess, code_mode, groups, profiles, store, tool_search};
use crate::cell::Language;
use crate::limits::{Bound, MAX_FILE_ROOTS, MAX_LIVE_RUNS, MAX_PATTERN_BYTES, MAX_PRIVATE_HOSTS, MAX_SHELL_READABLE};

/// What each number means. The key alone does not tell where it applies, but no two meanings differ.
const NUMBERS: [(&str, &str); 16] = [
    ("timeoutMs", "Time limit of a cell until its first result, and of its code in each later wait."),
    ("maxWaitMs", "Longest time that one wait for pending tool calls takes."),
    ("memoryLimitBytes", "Heap size limit of a cell."),
    ("maxOutputBytes", "Size limit of a cell's output and return value."),
    ("maxSnapshotBytes", "Size limit of a suspended cell's compressed snapshot."),
    ("maxPendingToolCalls", "Tool calls of a cell that run at once; further calls queue."),
    ("snapshotTtlSeconds", "How long a cell may stay suspended."),
    ("searchDefaultLimit", "Tools that a search returns if it names no limit."),
    ("maxSearchLimit", "Most tools that a search returns."),
    ("maxLiveRuns", "Most live runs in the whole store."),
    ("codeTimeoutMs", "Time limit of a Tool Search cell."),
    ("keepRunsSeconds", "How long ended runs are kept."),
    ("keepTranscriptsSeconds", "How long transcripts are kept."),
    ("maxWaitingRuns", "Suspended runs that one principal may have at once."),
    ("maxStoredBytes", "Bytes that one principal may store."),
    ("maxOpenApprovals", "Pending approvals that one principal may have at once."),
];

/// Returns the schema of `tools`.
pub fn tools() -> Value {
    let custom = described(
        json!({"type": "object", "additionalProperties": patterns("Tools that the profile allows.")}),
        "Named allow lists, which `profile` may choose.",
    );
    let [fs, exec, web] = core_tools();
    scope(&[("profiles", custom), ("fs", fs), ("exec", exec), ("web", web)], code_mode_numbers())
}

/// Returns the schemas of `tools.fs`, `tools.exec` and `tools.web`.
fn core_tools() -> [Value; 3] {
    let object = |properties: &[(&str, Value)]| {
        closed(properties.iter().map(|(key, schema)| ((*key).to_owned(), schema.clone())).collect())
    };
    let flag = |text: &str| described(json!({"type": "boolean", "default": false}), text);
    let access = RootAccess::WORDS.map(|(word, _)| word);
    let path = json!({"type": "string", "minLength": 1});
    let path_item = path.clone();
    let root = object(&[
        ("path", described(path.clone(), "The folder: absolute, relative to the current folder, or with `~/`.")),
        ("access", described(json!({"enum": access, "default": "write"}), "What tools may do there.")),
    ]);
    let folders = json!({"type": "array", "maxItems": MAX_FILE_ROOTS, "items": {"anyOf": [path, root]}});
    let fs = object(&[
        ("enabled", flag("Whether runs have the file tools.")),
        ("roots", described(folders, "Folders that the file tools and the shell may use.")),
    ]);
    let exec = object(&[
        ("enabled", flag("Whether runs have the shell.")),
        ("unconfined", flag("Whether the shell may run on a system without Landlock.")),
        ("network", flag("Whether confined commands may use the network.")),
        (
            "readable",
            described(
                json!({"type": "array", "maxItems": MAX_SHELL_READABLE, "items": path_item}),
                "Folders and files outside the roots that confined commands may read.",
            ),
        ),
    ]);
    let host = json!({"type": "string", "minLength": 1});
    let fetch = object(&[
        ("enabled", flag("Whether runs can fetch pages.")),
        (
            "allowPrivate",
            described(
                json!({"type": "array", "maxItems": MAX_PRIVATE_HOSTS, "items": host}),
                "Hosts that may be fetched although they are on this machine or in a private network.",
            ),
        ),
    ]);
    let web = object(&[("fetch", described(fetch, "The tool that fetches pages."))]);
    [described(fs, "The file tools."), described(exec, "The shell."), described(web, "Tools that access the web.")]
}

/// Returns the schema of `agents`: settings of single agents, by id.
pub fn agents() -> Value {
    let mut numbers = code_mode_numbers();
    // It counts the runs of all agents.
    numbers.insert(MAX_LIVE_RUNS.key.to_owned(), Value::Bool(false));
    let agent = json!({
        "type": "object",
        "description": "An agent. Other keys than `tools` are ignored.",
        "properties": {"tools": scope(&[], numbers)},
    });
    described(json!({"type": "object", "additionalProperties": agent}), "Settings of single agents, by id.")
}

/// Returns the schema of `store`.
pub fn store() -> Value {
    let mut properties = numbers(&store::KEPT);
    let text = |text: &str| described(json!({"type": "string", "minLength": 1}), text);
    properties.insert(
        "url".to_owned(),
        text("Where runs are stored: a file, or `postgres://…`. Write a password as `${VARIABLE}`."),
    );
    properties.insert("keyFile".to_owned(), text("File of the keys that seal suspended cells."));
    let quotas = described(closed(numbers(&store::QUOTAS)), "Quotas of one principal.");
    properties.insert("perPrincipal".to_owned(), quotas);
    described(closed(properties), "Where runs are stored, for how long, and quotas.")
}

/// Returns the schema of a list of patterns.
pub fn patterns(description: &str) -> Value {
    let names: Vec<&str> = groups::Group::names().collect();
    let item = json!({
        "anyOf": [{"type": "string", "minLength": 1, "maxLength": MAX_PATTERN_BYTES}, {"enum": names}],
    });
    described(json!({"type": "array", "items": item}), description)
}

/// Returns an object that has no other keys than these.
pub fn closed(properties: Map<String, Value>) -> Value {
    json!({"type": "object", "properties": properties, "additionalProperties": false})
}

/// Adds a description to a schema.
pub fn described(mut schema: Value, description: &str) -> Value {
    if let Some(fields) = schema.as_object_mut() {
        fields.insert("description".to_owned(), Value::from(description));
    }
    schema
}

/// Returns the schema of `tools` or of an agent's `tools`.
fn scope(more: &[(&str, Value)], code_mode_numbers: Map<String, Value>) -> Value {
    let mut properties = rules();
    properties.insert("codeMode".to_owned(), code_mode(code_mode_numbers));
    properties.insert("toolSearch".to_owned(), tool_search());
    let meaning =
        described(json!({"type": "boolean", "default": true}), "Whether searches consider meanings of words.");
    let search = closed([("meaning".to_owned(), meaning)].into_iter().collect());
    properties.insert("search".to_owned(), described(search, "How tools are searched."));
    let by_provider = json!({"type": "object", "additionalProperties": closed(rules())});
    properties.insert(
        "byProvider".to_owned(),
        described(by_provider, "Rules for one provider, `<provider>` or `<provider>/<model>`."),
    );
    let sandbox = closed([("tools".to_owned(), described(closed(lists()), "More lists."))].into_iter().collect());
    properties.insert("sandbox".to_owned(), described(sandbox, "Additional lists for sandboxed runs."));
    properties.extend(more.iter().map(|(key, schema)| ((*key).to_owned(), schema.clone())));
    described(closed(properties), "Which tools runs have, and what cells may use.")
}

fn lists() -> Map<String, Value> {
    let lists = [
        ("allow", patterns("Only tools that match are offered. An empty list allows none.")),
        ("alsoAllow", patterns("Tools that are offered in addition to `allow` or a profile.")),
        ("deny", patterns("Tools that are never offered.")),
    ];
    lists.into_iter().map(|(key, schema)| (key.to_owned(), schema)).collect()
}

fn rules() -> Map<String, Value> {
    let names = profiles::BUILT_IN.map(|(name, _)| name);
    let profile = json!({"anyOf": [{"enum": names}, {"type": "string"}]});
    let mut rules = lists();
    let profile = described(profile, "A named allow list, built in or from `tools.profiles`.");
    rules.insert("profile".to_owned(), profile);
    rules
}

fn code_mode(numbers: Map<String, Value>) -> Value {
    let words = [Language::JavaScript, Language::TypeScript].map(Language::as_str);
    let mut properties = numbers;
    let more = [
        ("enabled", described(json!({"type": "boolean"}), "Whether the model calls tools through `exec` and `wait`.")),
        ("runtime", described(json!({"const": "quickjs-wasi"}), "The only runtime.")),
        ("mode", described(json!({"const": "only"}), "The only mode.")),
        (
            "languages",
            described(
                json!({"type": "array", "items": {"enum": words}, "minItems": 1}),
                "Languages that a cell may be written in; all by default.",
            ),
        ),
    ];
    properties.extend(more.into_iter().map(|(key, schema)| (key.to_owned(), schema)));
    described(switch_or(closed(properties)), "Code mode: the tools `exec` and `wait`, and limits of cells.")
}

fn code_mode_numbers() -> Map<String, Value> {
    numbers(&code_mode::NUMBERS)
}

fn tool_search() -> Value {
    let mut properties = numbers(&tool_search::NUMBERS);
    let mode = described(json!({"enum": ["code", "tools"], "default": "code"}), "One tool for code, or three tools.");
    properties.insert("mode".to_owned(), mode);
    let enabled = described(json!({"type": "boolean"}), "Whether the model finds tools through search controls.");
    properties.insert("enabled".to_owned(), enabled);
    described(switch_or(closed(properties)), "Tool Search.")
}

fn switch_or(object: Value) -> Value {
    json!({"anyOf": [{"type": "boolean"}, object]})
}

fn numbers(bounds: &[&Bound]) -> Map<String, Value> {
    let number = |bound: &&Bound| {
        let about = NUMBERS.iter().find(|(key, _)| *key == bound.key).map_or("", |(_, about)| about);
        let schema = json!({
            "type": "integer",
            "minimum": bound.range.start(),
            "maximum": bound.range.end(),
            "default": bound.default,
        });
        (bound.key.to_owned(), described(schema, about))
    };
    bounds.iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::{agents, store, tools};
    use crate::config::error::Problem;
    use crate::config::{AgentsConfig, ConfigError, StoreConfig};

    /// Returns the errors that an otherwise empty configuration has with this value in this section.
    fn errors(section: &str, value: &Value) -> Vec<ConfigError> {
        match section {
            "tools" => AgentsConfig::resolve(value, &Value::Null).err().unwrap_or_default(),
            "agents" => AgentsConfig::resolve(&Value::Null, value).err().unwrap_or_default(),
            _ => StoreConfig::resolve(value).err().unwrap_or_default(),
        }
    }

    /// Calls `each` with every object of a schema and the keys that lead to it; a key of the user's choice is `x`.
    fn objects(schema: &Value, path: &mut Vec<String>, each: &mut dyn FnMut(&[String], &Value)) {
        for option in schema["anyOf"].as_array().into_iter().flatten() {
            objects(option, path, each);
        }
        if schema["type"] == "object" {
            each(path, schema);
        }
        let named = schema["properties"].as_object().into_iter().flatten();
        let chosen =
            schema["additionalProperties"].is_object().then(|| (String::from("x"), &schema["additionalProperties"]));
        for (key, below) in named.map(|(key, below)| (key.clone(), below)).chain(chosen) {
            path.push(key);
            objects(below, path, each);
            path.pop();
        }
    }

    #[test]
    fn the_schema_has_exactly_the_keys_that_are_read() {
        let mut closed = 0;
        for (section, schema) in [("tools", tools()), ("agents", agents()), ("store", store())] {
            objects(&schema, &mut Vec::new(), &mut |path, object| {
                if object["additionalProperties"] != json!(false) {
                    return;
                }
                closed += 1;
                let unknown: Map<String, Value> = [("zz".to_owned(), json!(1))].into_iter().collect();
                let value = path.iter().rev().fold(Value::Object(unknown), |inner, key| json!({(key): inner}));
                let known = errors(section, &value).into_iter().find_map(|error| match error.problem {
                    Problem::UnknownKey { known, .. } if error.path.ends_with(".zz") => Some(known),
                    _ => None,
                });
                let mut known = known.unwrap_or_else(|| panic!("{section} {path:?} accepts any key"));
                let mut listed: Vec<&str> =
                    object["properties"].as_object().unwrap().keys().map(String::as_str).collect();
                known.sort_unstable();
                listed.sort_unstable();
                assert_eq!(listed, known, "{section} {path:?}");
            });
        }
        assert_eq!(closed, 2 * 7 + 4 + 2, "objects of `tools` twice, of the core tools, and of `store`");
    }

    #[test]
    fn every_setting_is_described() {
        for schema in [tools(), agents(), store()] {
            objects(&schema, &mut Vec::new(), &mut |path, object| {
                for (key, below) in object["properties"].as_object().into_iter().flatten() {
                    let about = below["description"].as_str().unwrap_or_default();
                    assert!(!about.is_empty() || *below == json!(false), "{path:?} {key}");
                }
            });
        }
    }

    #[test]
    fn defaults_are_within_their_ranges_and_accepted() {
        objects(&tools(), &mut Vec::new(), &mut |path, object| {
            for (key, below) in object["properties"].as_object().into_iter().flatten() {
                if below["default"].is_number() {
                    assert!(below["minimum"].as_u64() <= below["default"].as_u64(), "{path:?} {key}");
                    assert!(below["maximum"].as_u64() >= below["default"].as_u64(), "{path:?} {key}");
                }
            }
        });
    }
}
