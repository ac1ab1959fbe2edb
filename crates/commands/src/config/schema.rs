//! `cellmate config schema`: a JSON Schema of the whole configuration, for editors.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use client_config::{Client, KeyPath, LONGEST_TIME_LIMIT, SHORTEST_TIME_LIMIT};
use contract::config::openclaw;
use contract::config::schema::{agents, closed, described, gateway, models, patterns, plugins, store, tools, unused};
use contract::spelling::nearest;
use serde_json::{Map, Value, json};

use crate::render;

#[derive(Debug, Args)]
pub(super) struct SchemaArguments {
    /// Print the schema on one line.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &SchemaArguments) -> ExitCode {
    let schema = schema();
    if arguments.json {
        render::print_json(&schema)
    } else {
        render::print(&render::pretty(&schema.to_string()))
    }
    if !arguments.json {
        render::print("\n");
    }
    ExitCode::SUCCESS
}

/// Returns the keys of a configuration's top level.
pub(super) fn sections() -> Vec<String> {
    properties().into_iter().map(|(key, _)| key).collect()
}

/// Returns the keys of a server's entry.
pub(super) fn server_keys() -> Vec<String> {
    let server = server();
    server.get("properties").and_then(Value::as_object).into_iter().flatten().map(|(key, _)| key.clone()).collect()
}

/// Returns the path that is probably meant by one with an unknown key: with the known key that is most similar.
pub(super) fn meant(path: &KeyPath) -> Option<KeyPath> {
    let schema = schema();
    let mut here = &schema;
    let mut known = KeyPath::root();
    let mut steps = path.keys_or_positions();
    for key in steps.by_ref() {
        let Some(key) = key else {
            // The position in a list does not matter for what is below it.
            (here, known) = (below(here, None)?, known.item(0));
            continue;
        };
        match below(here, Some(key)) {
            Some(below) => (here, known) = (below, known.child(key)),
            None => {
                let keys = options(here).filter_map(|option| option.get("properties")?.as_object());
                let meant = nearest(key, keys.flatten().map(|(key, _)| key.as_str()))?;
                return Some(known.child(meant));
            }
        }
    }
    None
}

/// Returns the section that is probably meant, if the first key of a path is the name of none.
pub(super) fn misspelt_section(path: &KeyPath) -> Option<String> {
    let first = path.keys_or_positions().next()??;
    let sections = sections();
    let is_known = sections.iter().any(|section| section == first);
    let meant = || nearest(first, sections.iter().map(String::as_str)).map(str::to_owned);
    (!is_known).then(meant).flatten()
}

/// Returns the default of a setting, if it has one.
pub(super) fn default_of(path: &KeyPath) -> Option<Value> {
    let schema = schema();
    at(&schema, path)?.get("default").cloned()
}

/// Whether a setting is a switch or an object with the same switch as its key `enabled`, such as `tools.codeMode`.
pub(super) fn is_switch_or_object(path: &KeyPath) -> bool {
    let schema = schema();
    at(&schema, path).is_some_and(|setting| {
        let is_switch = |option: &Value| option.get("type").is_some_and(|kind| kind == "boolean");
        options(setting).any(is_switch) && below(setting, Some("enabled")).is_some()
    })
}

/// Whether the last key of a path is one of the schema, and neither a name that the user chose nor an item of a list.
pub(super) fn is_fixed_key(path: &KeyPath) -> bool {
    let schema = schema();
    let mut steps: Vec<Option<&str>> = path.keys_or_positions().collect();
    let Some(Some(last)) = steps.pop() else { return false };
    let names = |option: &Value| option.get("properties").is_some_and(|properties| properties.get(last).is_some());
    steps.into_iter().try_fold(&schema, below).is_some_and(|parent| options(parent).any(names))
}

/// Whether a setting is a list, and nothing else.
pub(super) fn is_list(path: &KeyPath) -> bool {
    let schema = schema();
    at(&schema, path).and_then(|setting| setting.get("type")).is_some_and(|kind| kind == "array")
}

/// Returns the schema of the value at a path.
fn at<'s>(schema: &'s Value, path: &KeyPath) -> Option<&'s Value> {
    path.keys_or_positions().try_fold(schema, below)
}

/// Returns the schema of a key of an object; `None` for the key is an item of a list.
pub(super) fn below<'s>(schema: &'s Value, key: Option<&str>) -> Option<&'s Value> {
    options(schema).find_map(|option| {
        let Some(key) = key else { return option.get("items") };
        let named = option.get("properties").and_then(|properties| properties.get(key));
        named.or_else(|| option.get("additionalProperties").filter(|any| any.is_object()))
    })
}

/// Returns the schema itself, and those that it allows a value to match instead.
fn options(schema: &Value) -> impl Iterator<Item = &Value> {
    let options = schema.get("anyOf").and_then(Value::as_array).into_iter().flatten();
    std::iter::once(schema).chain(options)
}

/// Returns the schema of a configuration file.
pub(super) fn schema() -> Value {
    let mut schema = closed(properties().into_iter().collect());
    if let Some(fields) = schema.as_object_mut() {
        fields.shift_insert(0, "$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
        fields.shift_insert(1, "title".to_owned(), json!("Cellmate configuration"));
    }
    schema
}

/// Returns the sections of a configuration: ours, and those of OpenClaw that are accepted but not used.
fn properties() -> Vec<(String, Value)> {
    let foreign = openclaw::sections().map(|(key, reason)| (key.to_owned(), unused(reason)));
    own_properties().into_iter().chain(foreign).collect()
}

fn own_properties() -> Vec<(String, Value)> {
    let named = |about: &str| described(json!({"type": "object", "additionalProperties": server()}), about);
    let clients: Vec<&str> = Client::ALL.into_iter().map(Client::name).chain(["claude"]).collect();
    let inputs = json!({
        "type": "array",
        "items": {"type": "object", "properties": {"id": {"type": "string"}, "default": {"type": "string"}}},
    });
    let mcp =
        json!({"type": "object", "properties": {"servers": named("MCP servers by name, as OpenClaw writes them.")}});
    let sections = [
        ("$schema", described(json!({"type": "string"}), "This schema, for editors.")),
        ("mcpServers", named("MCP servers by name.")),
        ("servers", named("MCP servers by name, as VS Code writes them.")),
        ("mcp_servers", named("MCP servers by name, as Codex writes them.")),
        ("context_servers", named("MCP servers by name, as Zed writes them.")),
        ("mcp", described(mcp, "MCP servers, as OpenClaw and opencode write them.")),
        ("inputs", described(inputs, "Values that `${input:id}` refers to, as in VS Code's file.")),
        (
            "imports",
            described(json!({"type": "array", "items": {"enum": clients}}), "Clients whose servers are also used."),
        ),
        (
            "trustedProjects",
            described(json!({"type": "array", "items": {"type": "string"}, "deprecated": true}), "Ignored."),
        ),
        ("tools", tools()),
        ("agents", agents()),
        ("plugins", plugins()),
        ("models", models()),
        ("gateway", gateway()),
        ("approvals", approvals()),
        ("store", store()),
    ];
    sections.into_iter().map(|(key, schema)| (key.to_owned(), schema)).collect()
}

fn approvals() -> Value {
    let ask = json!({"anyOf": [{"enum": ["changes", "never"]}, patterns("Tools whose calls need approval, besides those that may change something.")], "default": "changes"});
    let keys = [
        (
            "ask",
            described(
                ask,
                "Which calls need approval: those that may change something, none, or those and the calls of these tools.",
            ),
        ),
        ("pass", patterns("Tools whose calls never need approval.")),
        (
            "nonInteractive",
            described(json!({"type": "boolean", "default": false}), "Lets programs approve without a terminal."),
        ),
    ];
    let own = keys.into_iter().map(|(key, schema)| (key.to_owned(), schema));
    let foreign = openclaw::approvals_keys().map(|(key, reason)| (key.to_owned(), unused(reason)));
    let keys: Map<String, Value> = own.chain(foreign).collect();
    described(closed(keys), "Which calls need approval.")
}

/// Returns the schema of a server's entry. Other keys are allowed: entries of other clients work unchanged.
fn server() -> Value {
    let text = |about: &str| described(json!({"type": "string"}), about);
    let texts = |about: &str| {
        let value = json!({"type": ["string", "number", "boolean", "null"]});
        described(json!({"type": ["object", "null"], "additionalProperties": value}), about)
    };
    let words = |about: &str| described(json!({"type": "array", "items": {"type": "string"}}), about);
    let flag = |default: bool, about: &str| described(json!({"type": "boolean", "default": default}), about);
    let number = |limit: Duration| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    let (shortest, longest) = (number(SHORTEST_TIME_LIMIT), number(LONGEST_TIME_LIMIT));
    let milliseconds =
        |about: &str| described(json!({"type": "number", "minimum": shortest, "maximum": longest}), about);
    let command =
        json!({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}, {"type": "object"}]});
    let oauth = json!({
        "anyOf": [{"const": false}, {"type": "object", "properties": {
            "clientId": text("The registered client."),
            "clientSecret": text("Its secret; write it as `${secret:NAME}` or `${VARIABLE}`."),
            "scopes": described(json!({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}), "Scopes to request."),
            "callbackPort": described(json!({"type": "integer", "minimum": 1, "maximum": 65535}), "Port of the redirect."),
            "callbackUrl": text("Local URL of the redirect."),
        }}],
    });
    let keys = [
        ("command", described(command, "Program that is started, or the whole command line.")),
        ("args", words("Its arguments.")),
        ("env", texts("Its environment variables; write secrets as `${secret:NAME}` or `${VARIABLE}`.")),
        ("envFile", text("File with more environment variables.")),
        ("cwd", text("Its working directory.")),
        ("type", text("Transport: `stdio` or `http`.")),
        ("url", text("URL of an HTTP server.")),
        ("headers", texts("HTTP headers; write secrets as `${secret:NAME}` or `${VARIABLE}`.")),
        ("bearer_token_env_var", text("Environment variable that holds a bearer token.")),
        ("oauth", described(oauth, "How to log in, if the server needs more than it says itself; `false`: never.")),
        (
            "startupTimeoutMs",
            milliseconds("Time limit from the start to the list of tools: 30 s, or 5 min if the command may download."),
        ),
        ("callTimeoutMs", milliseconds("Time limit of a call.")),
        ("enabledTools", words("Only these tools are offered: names, or globs.")),
        ("disabledTools", words("These tools are not offered: names, or globs.")),
        (
            "toolFilter",
            described(json!({"type": "object"}), "OpenClaw's `include` and `exclude`: lists of names or globs."),
        ),
        ("enabled", flag(true, "Whether the server is used.")),
        ("disabled", flag(false, "The opposite of `enabled`.")),
        ("trusted", flag(false, "Rely on what the server says about its tools, such as that they only read.")),
    ];
    let keys: Map<String, Value> = keys.into_iter().map(|(key, schema)| (key.to_owned(), schema)).collect();
    json!({"type": "object", "properties": keys})
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use catalog::arguments::check;
    use client_config::{KeyPath, parse_value};
    use contract::config::error::Problem;
    use serde_json::{Value, json};

    use super::{approvals, default_of, meant, openclaw, own_properties, schema};
    use crate::policy;

    #[test]
    fn the_schema_has_exactly_the_keys_of_approvals() {
        let errors = policy::errors(&json!({"approvals": {"zz": 1}}));
        let known = errors.into_iter().find_map(|error| match error.problem {
            Problem::UnknownKey { known, .. } => Some(known),
            Problem::Value { .. } => None,
        });
        let listed = approvals()["properties"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let foreign: Vec<&str> = openclaw::approvals_keys().map(|(key, _)| key).collect();
        assert_eq!(listed, [known.unwrap(), foreign].concat());
    }

    #[test]
    fn defaults_are_found_by_path() {
        let default = |key: &str| default_of(&KeyPath::parse(key).unwrap());
        assert_eq!(default("tools.codeMode.timeoutMs"), Some(json!(10_000)));
        assert_eq!(default("agents.ada.tools.codeMode.timeoutMs"), Some(json!(10_000)));
        assert_eq!(default("agents.list[1].tools.codeMode.timeoutMs"), Some(json!(10_000)));
        assert_eq!(default("mcpServers.files.enabled"), Some(json!(true)));
        assert_eq!(default("approvals.ask"), Some(json!("changes")));
        assert_eq!((default("tools.deny"), default("nothing.here")), (None, None));
    }

    #[test]
    fn the_key_that_is_meant_is_found_by_path() {
        let meant_by = |key: &str| meant(&KeyPath::parse(key).unwrap()).map(|path| path.to_string());
        assert_eq!(meant_by("tools.codeMode.timeoutms").as_deref(), Some("tools.codeMode.timeoutMs"));
        assert_eq!(meant_by("tols.codeMode").as_deref(), Some("tools"));
        assert_eq!(meant_by("agents.ada.tool").as_deref(), Some("agents.ada.tools"));
        assert_eq!(meant_by("mcpServers.a.trustd").as_deref(), Some("mcpServers.a.trusted"));
        for known in ["tools.codeMode.timeoutMs", "tools.deny[3]", "mcpServers.zz", "zzzzzzzzzzzzzzz"] {
            assert_eq!(meant_by(known), None, "{known}");
        }
    }

    #[test]
    fn wrong_values_and_keys_do_not_validate() {
        let schema = schema();
        let cases = [
            json!({"tols": {}}),
            json!({"tools": {"codeMode": {"timeoutMs": "fast"}}}),
            json!({"tools": {"codeMode": {"timeoutms": 1000}}}),
            json!({"approvals": {"ask": "nevr"}}),
            json!({"mcpServers": {"s": {"command": 7}}}),
            json!({"imports": ["emacs"]}),
        ];
        for wrong in cases {
            assert!(check(&schema, &wrong).is_err(), "{wrong}");
        }
    }

    /// Returns the `json5` and `json` blocks of a document that are configurations: objects with a known section.
    fn examples(text: &str) -> Vec<Value> {
        let blocks = text.split("```").skip(1).step_by(2);
        let bodies = blocks.filter_map(|block| {
            let (language, body) = block.split_once('\n')?;
            ["json5", "json", "jsonc"].contains(&language.trim()).then_some(body)
        });
        let known: Vec<String> = own_properties().into_iter().map(|(key, _)| key).collect();
        // A catalog of canned tools also has `tools`, as a list.
        let is_configuration = |value: &Value| {
            !value["tools"].is_array()
                && value.as_object().is_some_and(|fields| fields.keys().any(|key| known.contains(key)))
        };
        bodies.filter_map(|body| parse_value(body).ok()).filter(is_configuration).collect()
    }

    #[test]
    fn every_example_in_the_documentation_validates() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let (mut seen, schema) = (0, schema());
        let folders = [".", "docs/guide", "docs/guide/clients", "docs/reference", "docs/cookbook"];
        for entry in
            folders.iter().map(|folder| root.join(folder)).flat_map(|folder| std::fs::read_dir(folder).unwrap())
        {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "md") {
                continue;
            }
            for example in examples(&std::fs::read_to_string(&path).unwrap()) {
                seen += 1;
                assert_eq!(check(&schema, &example).map_err(|error| error.to_string()), Ok(()), "{}", path.display());
            }
        }
        assert!(seen >= 5, "{seen} examples were found");
    }
}
