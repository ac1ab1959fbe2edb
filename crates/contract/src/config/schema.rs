//! A JSON Schema of the settings, for editors and for `cellmate config`.
//!
//! Keys, ranges and defaults of numbers come from the tables that the readers use. The tests check that the readers know
//! exactly the keys of each object here.

use std::ops::RangeInclusive;

use serde_json::{Map, Value, json};

use super::openclaw::keys::{self, ForeignKey};
use super::{RootAccess, code_mode, groups, models, profiles, store, tool_search};
use crate::cell::Language;
use crate::limits::{
    Bound, FETCH_CHARS, GATEWAY_NUMBERS, MAX_FALLBACK_MODELS, MAX_FETCH_BYTES, MAX_FETCH_REDIRECTS, MAX_FETCH_SECONDS,
    MAX_FILE_ROOTS, MAX_LIVE_RUNS, MAX_MODEL_CALLS, MAX_PATTERN_BYTES, MAX_PRIVATE_HOSTS, MAX_SHELL_READABLE,
    MAX_TURNS, PROVIDER_TIMEOUT_SECONDS, SHELL_TIMEOUT_SECONDS,
};

/// What each number means. The key alone does not tell where it applies, but no two meanings differ.
const NUMBERS: [(&str, &str); 28] = [
    ("timeoutMs", "Time limit of a cell until its first result, and of its code in each later wait."),
    ("maxWaitMs", "Longest time that one wait for pending tool calls takes."),
    ("memoryLimitBytes", "Heap size limit of a cell."),
    ("maxOutputBytes", "Size limit of output and return value in one result; larger ones are stored."),
    ("maxStoredOutputBytes", "Size limit of a run's output and return value that are stored."),
    ("maxMediaBlocks", "Images and sounds that one result shows; further ones are stored."),
    ("maxMediaBytes", "Size limit of the images and sounds that one result shows."),
    ("maxSnapshotBytes", "Size limit of a suspended cell's compressed snapshot."),
    ("maxPendingToolCalls", "Tool calls of a cell that run at once; further calls queue."),
    ("snapshotTtlSeconds", "How long a cell may stay suspended."),
    ("searchDefaultLimit", "Tools that a search returns if it names no limit."),
    ("maxSearchLimit", "Most tools that a search returns."),
    ("maxLiveRuns", "Most live runs in the whole store."),
    ("codeTimeoutMs", "Time limit of a Tool Search cell."),
    ("keepRunsSeconds", "How long ended runs are kept."),
    ("keepTranscriptsSeconds", "How long transcripts, and values of sessions that are not written again, are kept."),
    ("maxWaitingRuns", "Suspended runs that one agent may have at once."),
    ("maxStoredBytes", "Bytes that one agent may store: suspended cells, journals, outputs, session values and turns."),
    ("maxOpenApprovals", "Pending approvals that one agent may have at once."),
    ("maxModelCalls", "Requests to models in one turn."),
    ("maxTurns", "Another name of `maxModelCalls`."),
    ("timeoutSeconds", "How long the provider may send nothing, in seconds."),
    ("holdSeconds", "How long a request is held open while its turn waits, in seconds."),
    ("clientToolTtlSeconds", "How long a call of a client's tool may stay without a result, in seconds."),
    ("clientToolWaitMs", "How long calls of client tools are collected before they are sent together."),
    ("keepAliveSeconds", "How often a waiting stream sends a sign of life, in seconds."),
    ("abandonedSeconds", "How long a turn continues after its client has disconnected, in seconds."),
    ("maxConcurrentTurns", "Most turns that run at once."),
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
        ("workspaceOnly", flag("Whether an agent's `workspace` is its only root.")),
    ]);
    let shell = &SHELL_TIMEOUT_SECONDS.range;
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
        ("timeoutSec", within(shell, "Time limit of a command, in seconds; older name of `timeoutSeconds`.")),
        ("timeoutSeconds", within(shell, "Time limit of a command, in seconds.")),
        ("applyPatch", apply_patch()),
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
        ("maxChars", within(&FETCH_CHARS.range, "Most characters of a page that are returned.")),
        ("maxCharsCap", within(&FETCH_CHARS.range, "Upper limit of `maxChars`.")),
        ("maxResponseBytes", within(&(1..=MAX_FETCH_BYTES as u64), "Most bytes of a response that are read.")),
        ("timeoutSeconds", within(&(1..=MAX_FETCH_SECONDS), "Time limit of a fetch, in seconds.")),
        ("maxRedirects", within(&(0..=MAX_FETCH_REDIRECTS as u64), "Most redirects that are followed.")),
    ]);
    [described(fs, "The file tools."), described(with(exec, keys::EXEC), "The shell."), web(with(fetch, keys::FETCH))]
}

/// Returns the schemas of the same objects in an agent's `tools`, where they can only restrict.
fn agent_core_tools() -> [Value; 3] {
    let forbidden = Value::Bool(false);
    let fs = object(&[
        ("enabled", flag("`false`: the agent has no file tools.")),
        ("roots", forbidden.clone()),
        ("workspaceOnly", flag("Whether the agent's `workspace` is its only root.")),
    ]);
    let exec = object(&[
        ("enabled", flag("`false`: the agent has no shell.")),
        ("unconfined", forbidden),
        ("timeoutSec", from(1, NOT_PER_AGENT)),
        ("timeoutSeconds", from(1, NOT_PER_AGENT)),
        ("applyPatch", apply_patch()),
    ]);
    let fetch = object(&[
        ("enabled", flag("`false`: the agent cannot fetch pages.")),
        ("maxChars", from(0, NOT_PER_AGENT)),
        ("maxCharsCap", from(0, NOT_PER_AGENT)),
        ("maxResponseBytes", from(0, NOT_PER_AGENT)),
        ("timeoutSeconds", from(0, NOT_PER_AGENT)),
        ("maxRedirects", from(0, NOT_PER_AGENT)),
    ]);
    [described(fs, "The file tools."), described(with(exec, keys::EXEC), "The shell."), web(with(fetch, keys::FETCH))]
}

const NOT_PER_AGENT: &str = "Not used here: all agents share this setting.";

fn apply_patch() -> Value {
    let apply_patch =
        object(&[("enabled", described(json!({"type": "boolean"}), "`false`: there is no `apply_patch`."))]);
    described(with(apply_patch, keys::APPLY_PATCH), "The tool `apply_patch`.")
}

fn web(fetch: Value) -> Value {
    let web = object(&[("fetch", described(fetch, "The tool that fetches pages."))]);
    described(with(web, keys::WEB), "Tools that access the web.")
}

/// Returns the schema of `agents`: OpenClaw's shapes, and settings of single agents by id.
pub fn agents() -> Value {
    let id = ("id", described(json!({"type": "string", "minLength": 1}), "The agent's id."));
    let default = ("default", flag("Whether it is the agent of clients that name none."));
    let listed = required(agent(&[id, default.clone()]), "id");
    let shapes = [
        ("list", described(json!({"type": "array", "items": listed}), "Agents, as OpenClaw writes them.")),
        (
            "entries",
            described(
                json!({"type": "object", "additionalProperties": agent(std::slice::from_ref(&default))}),
                "Agents by id, as newer versions of OpenClaw write them.",
            ),
        ),
        ("defaults", described(agent(&[]), "Settings of all agents.")),
    ];
    let mut properties: Map<String, Value> = shapes.into_iter().map(|(key, schema)| (key.to_owned(), schema)).collect();
    properties.extend(foreign(keys::AGENTS));
    let schema = json!({"type": "object", "properties": properties, "additionalProperties": agent(&[default])});
    described(schema, "Settings of single agents, by id.")
}

/// Returns the schema of one agent. It may have other keys: OpenClaw adds some with every version.
fn agent(more: &[(&str, Value)]) -> Value {
    let mut code_mode_numbers = code_mode_numbers();
    // It counts the runs of all agents.
    code_mode_numbers.insert(MAX_LIVE_RUNS.key.to_owned(), Value::Bool(false));
    let [fs, exec, web] = agent_core_tools();
    let tools = scope(&[("fs", fs), ("exec", exec), ("web", web)], code_mode_numbers);
    let workspace = json!({"type": "string", "minLength": 1});
    let own = [
        ("tools", tools),
        (
            "workspace",
            described(workspace, "Folder that file tools and shell may use if `tools.fs.roots` is not given."),
        ),
        ("sandbox", sandbox()),
        ("model", model_choice()),
        ("instructions", described(json!({"type": "string"}), "Text that the agent's turns begin with.")),
        ("maxOutputTokens", from(1, "Most tokens of one response of the model.")),
    ];
    let limits: Vec<(String, Value)> = numbers(&[&MAX_MODEL_CALLS, &MAX_TURNS]).into_iter().collect();
    let limits: Vec<(&str, Value)> = limits.iter().map(|(key, schema)| (key.as_str(), schema.clone())).collect();
    let own = own.iter().chain(&limits).chain(more).map(|(key, schema)| ((*key).to_owned(), schema.clone()));
    let properties: Map<String, Value> = own.chain(foreign(keys::AGENT)).collect();
    json!({"type": "object", "description": "An agent.", "properties": properties})
}

/// Returns the schema of an agent's `model`.
fn model_choice() -> Value {
    let name = json!({"type": "string", "minLength": 1});
    let fallbacks = json!({"type": "array", "maxItems": MAX_FALLBACK_MODELS, "items": name});
    let choice = json!({"type": "object", "properties": {
        "primary": described(name.clone(), "The model, as `provider/model`."),
        "fallbacks": described(fallbacks, "Models that are used in this order if it fails."),
    }});
    described(json!({"anyOf": [name, choice]}), "The model of the agent's turns, as `provider/model`.")
}

/// Returns the schema of an agent's `sandbox`.
fn sandbox() -> Value {
    let mode = json!({"enum": ["off", "non-main", "all"], "default": "off"});
    let mode = described(mode, "Whether `tools.sandbox.tools` applies; nothing runs in a container.");
    let access = json!({"enum": ["none", "ro", "rw"]});
    let access =
        described(access, "If `mode` is not `off`: `ro` denies tools that can write files, `none` all file tools.");
    let own = [("mode".to_owned(), mode), ("workspaceAccess".to_owned(), access)];
    let properties: Map<String, Value> = own.into_iter().chain(foreign(keys::SANDBOX)).collect();
    described(json!({"type": "object", "properties": properties}), "OpenClaw's sandbox.")
}

/// Returns the schema of `models`.
pub fn models() -> Value {
    let text = |text: &str| described(json!({"type": "string", "minLength": 1}), text);
    let secret = json!({"anyOf": [{"type": "string", "minLength": 1}, {"type": "object"}]});
    let apis: Vec<&str> = models::ModelApi::WORDS.iter().map(|(word, _)| *word).chain(keys::FOREIGN_APIS).collect();
    let model = [
        ("id", text("The model's id at the provider.")),
        ("name", text("A name to show.")),
        ("contextWindow", from(1, "Most tokens of a request and its response.")),
        ("maxTokens", from(1, "Most tokens of a response.")),
    ];
    let model = required(open(&model, keys::MODEL), "id");
    let quirks: Vec<(&str, Value)> = models::QUIRKS.iter().map(|(key, about)| (*key, flag(about))).collect();
    let headers = json!({"type": "object", "additionalProperties": secret});
    let timeout = numbers(&[&PROVIDER_TIMEOUT_SECONDS]).remove(PROVIDER_TIMEOUT_SECONDS.key).unwrap_or_default();
    let provider = [
        ("baseUrl", text("Address of the API.")),
        ("apiKey", described(secret, "Key of the API; write it as `${secret:NAME}` or `${VARIABLE}`.")),
        ("api", described(json!({"enum": apis}), "The API that the provider speaks.")),
        ("headers", described(headers, "Further headers of requests; write secrets as `${secret:NAME}`.")),
        ("models", described(json!({"type": "array", "items": model}), "What is known about single models.")),
        ("timeoutSeconds", timeout),
        ("stream", described(json!({"type": "boolean", "default": true}), "Whether responses are streamed.")),
        ("quirks", described(object(&quirks), "How the provider differs from the vendor of its API.")),
        ("extra", described(json!({"type": "object"}), "Further fields of every request, such as `temperature`.")),
        ("allowPrivate", flag("Whether a public name may resolve to an address of a private network.")),
    ];
    let provider = required(open(&provider, keys::MODEL_PROVIDER), "baseUrl");
    let providers = json!({"type": "object", "additionalProperties": provider});
    let models = open(&[("providers", described(providers, "Providers of models by id."))], keys::MODELS);
    described(models, "Providers of models, which turns of the gateway use.")
}

/// Returns the schema of `gateway`.
pub fn gateway() -> Value {
    let numbers: Vec<(String, Value)> = numbers(&GATEWAY_NUMBERS).into_iter().collect();
    let numbers: Vec<(&str, Value)> = numbers.iter().map(|(key, schema)| (key.as_str(), schema.clone())).collect();
    described(open(&numbers, keys::GATEWAY), "How the gateway serves turns of agents.")
}

/// Returns an object that may have other keys too: OpenClaw adds some with every version.
fn open(properties: &[(&str, Value)], table: &'static [ForeignKey]) -> Value {
    let own = properties.iter().map(|(key, schema)| ((*key).to_owned(), schema.clone()));
    let properties: Map<String, Value> = own.chain(foreign(table)).collect();
    json!({"type": "object", "properties": properties})
}

/// Returns the schema of `plugins`.
pub fn plugins() -> Value {
    let ids = |text: &str| described(json!({"type": "array", "items": {"type": "string", "minLength": 1}}), text);
    let config = described(json!({"type": "object"}), "The plugin's own settings.");
    let env = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let env = described(env, "Variables that its manifest names; write secrets as `${secret:NAME}`.");
    let enabled = described(json!({"type": "boolean"}), "Whether it is used.");
    let entry = object(&[("enabled", enabled), ("config", config), ("env", env)]);
    let entries = json!({"type": "object", "additionalProperties": with(entry, keys::PLUGIN_ENTRY)});
    let plugins = object(&[
        ("enabled", described(json!({"type": "boolean", "default": true}), "Whether any plugin is used.")),
        ("allow", ids("Plugins that may be used; an empty list allows none.")),
        ("deny", ids("Plugins that are not used.")),
        ("entries", described(entries, "Settings by plugin id.")),
    ]);
    described(with(plugins, keys::PLUGINS), "Which plugins are used, and their settings.")
}

/// Returns the schemas of keys that are accepted but not used.
fn foreign(table: &'static [ForeignKey]) -> impl Iterator<Item = (String, Value)> {
    table.iter().map(|key| (key.name.to_owned(), unused(key.reason)))
}

/// Returns the schema of a setting that is accepted but not used.
pub fn unused(reason: &str) -> Value {
    json!({"description": format!("{UNUSED}{reason}.")})
}

const UNUSED: &str = "Not used: ";

/// Adds keys that are accepted but not used to an object.
fn with(mut object: Value, table: &'static [ForeignKey]) -> Value {
    if let Some(properties) = object.get_mut("properties").and_then(Value::as_object_mut) {
        properties.extend(foreign(table));
    }
    object
}

fn required(mut object: Value, key: &str) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.insert("required".to_owned(), json!([key]));
    }
    object
}

fn object(properties: &[(&str, Value)]) -> Value {
    closed(properties.iter().map(|(key, schema)| ((*key).to_owned(), schema.clone())).collect())
}

fn flag(text: &str) -> Value {
    described(json!({"type": "boolean", "default": false}), text)
}

fn from(least: u64, text: &str) -> Value {
    described(json!({"type": "integer", "minimum": least}), text)
}

/// Returns the schema of a number that is moved into its range.
fn within(range: &RangeInclusive<u64>, text: &str) -> Value {
    described(json!({"type": "integer", "minimum": range.start(), "maximum": range.end()}), text)
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
    let quotas = described(
        closed(numbers(&store::QUOTAS)),
        "Quotas of one agent; over MCP, each principal is an agent of its own.",
    );
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
    properties.extend(foreign(keys::TOOLS));
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
        (
            "enabled",
            described(
                json!({"anyOf": [{"type": "boolean"}, {"const": "auto"}]}),
                "Whether the model calls tools through `exec` and `wait`. OpenClaw's `auto` counts as not given.",
            ),
        ),
        ("executor", unused("cells always run in the QuickJS sandbox")),
        ("runtime", described(json!({"const": "quickjs-wasi"}), "OpenClaw's key; `quickjs-wasi` is its only value.")),
        ("mode", described(json!({"const": "only"}), "OpenClaw's key; `only` is its only value.")),
        (
            "languages",
            described(
                json!({"type": "array", "items": {"enum": words}, "minItems": 1}),
                "Languages that a cell may be written in; all by default.",
            ),
        ),
    ];
    properties.extend(more.into_iter().map(|(key, schema)| (key.to_owned(), schema)));
    let code_mode = json!({"anyOf": [{"type": "boolean"}, {"const": "auto"}, closed(properties)]});
    described(code_mode, "Code mode: the tools `exec` and `wait`, and limits of cells.")
}

fn code_mode_numbers() -> Map<String, Value> {
    numbers(&code_mode::NUMBERS)
}

fn tool_search() -> Value {
    let mut properties = numbers(&tool_search::NUMBERS);
    let mode = described(json!({"enum": ["code", "tools", "directory"], "default": "code"}), MODE);
    properties.insert("mode".to_owned(), mode);
    let enabled = described(json!({"type": "boolean"}), "Whether the model finds tools through search controls.");
    properties.insert("enabled".to_owned(), enabled);
    described(switch_or(closed(properties)), "Tool Search.")
}

const MODE: &str = "One tool for code, or three tools. OpenClaw's `directory` counts as not given.";

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

    use super::{UNUSED, agents, gateway, models, plugins, store, tools};
    use crate::config::error::Problem;
    use crate::config::{AgentsConfig, ConfigError, GatewayConfig, ModelsConfig, PluginsConfig, StoreConfig};

    /// Returns the errors that an otherwise empty configuration has with this value in this section.
    fn errors(section: &str, value: &Value) -> Vec<ConfigError> {
        match section {
            "tools" => AgentsConfig::resolve(value, &Value::Null).err().unwrap_or_default(),
            "agents" => AgentsConfig::resolve(&Value::Null, value).err().unwrap_or_default(),
            "plugins" => PluginsConfig::resolve(value).err().unwrap_or_default(),
            "models" => ModelsConfig::resolve(value).err().unwrap_or_default(),
            "gateway" => GatewayConfig::resolve(value).err().unwrap_or_default(),
            _ => StoreConfig::resolve(value).err().unwrap_or_default(),
        }
    }

    /// A step into a list.
    const ITEM: &str = "[]";

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
        let items = schema["items"].is_object().then(|| (ITEM.to_owned(), &schema["items"]));
        for (key, below) in named.map(|(key, below)| (key.clone(), below)).chain(chosen).chain(items) {
            path.push(key);
            objects(below, path, each);
            path.pop();
        }
    }

    #[test]
    fn the_schema_has_exactly_the_keys_that_are_read() {
        let mut closed = 0;
        let sections = [
            ("tools", tools()),
            ("agents", agents()),
            ("plugins", plugins()),
            ("models", models()),
            ("gateway", gateway()),
            ("store", store()),
        ];
        for (section, schema) in sections {
            objects(&schema, &mut Vec::new(), &mut |path, object| {
                if object["additionalProperties"] != json!(false) {
                    return;
                }
                closed += 1;
                let unknown: Map<String, Value> = [("zz".to_owned(), json!(1))].into_iter().collect();
                let nest = |inner: Value, key: &String| match key.as_str() {
                    ITEM => {
                        let mut item = inner;
                        item["id"] = json!("x");
                        json!([item])
                    }
                    key => json!({(key): inner}),
                };
                let value = path.iter().rev().fold(Value::Object(unknown), nest);
                let known = errors(section, &value).into_iter().find_map(|error| match error.problem {
                    Problem::UnknownKey { known, .. } if error.path.ends_with(".zz") => Some(known),
                    _ => None,
                });
                let mut known = known.unwrap_or_else(|| panic!("{section} {path:?} accepts any key"));
                let is_unused =
                    |schema: &Value| schema["description"].as_str().is_some_and(|about| about.starts_with(UNUSED));
                let properties = object["properties"].as_object().unwrap().iter();
                let mut listed: Vec<&str> =
                    properties.filter(|(_, schema)| !is_unused(schema)).map(|(key, _)| key.as_str()).collect();
                known.sort_unstable();
                known.dedup();
                listed.sort_unstable();
                assert_eq!(listed, known, "{section} {path:?}");
            });
        }
        let of_scope = 7 + 5;
        assert_eq!(
            closed,
            5 * of_scope + 1 + 2 + 1 + 2,
            "objects of `tools`, of four kinds of agents, of a root, of `plugins`, of `quirks` and of `store`"
        );
    }

    #[test]
    fn every_setting_is_described() {
        for schema in [tools(), agents(), plugins(), models(), gateway(), store()] {
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
