//! The JSON Schema of a manifest, for editors and authors of plugins.

use contract::config::schema::{closed, described, patterns};
use contract::limits::{
    Bound, MAX_HOOK_PATTERNS, MAX_IDENTIFIER_BYTES, MAX_PLUGIN_NAMESPACES, MAX_PLUGIN_TOOLS,
    MAX_TOOL_DESCRIPTION_BYTES, PLUGIN_CALL_TIMEOUT_MS, PLUGIN_HOOK_TIMEOUT_MS,
};
use serde_json::{Map, Value, json};

use super::fields::{
    MAX_ARGUMENT_BYTES, MAX_ARGUMENTS, MAX_ID_BYTES, MAX_NAME_BYTES, MAX_TEXT_BYTES, MAX_VARIABLE_BYTES, MAX_VARIABLES,
    RESERVED_IDS,
};
use super::namespace::{MAX_POSITIONS, TOOL_MARKER};
use super::read::CORE_NAMES;

/// The place of the schema of values in a scope, which nest.
const SCOPE_VALUE: &str = "#/$defs/scopeValue";

/// Returns the schema of `cellmate.plugin.json`. Lengths are in bytes, which the reader checks; the schema, which counts
/// characters, is therefore never stricter.
pub fn schema() -> Value {
    let keys = [
        ("$schema", described(json!({"type": "string"}), "This schema, for editors.")),
        ("id", described(identifier(&RESERVED_IDS), "The owner in the ids of the tools: `plugin:<id>:<tool>`.")),
        ("name", text("The name that people see.", MAX_TEXT_BYTES)),
        (
            "version",
            described(
                json!({"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9.+-]*$", "maxLength": MAX_ID_BYTES}),
                "The version.",
            ),
        ),
        ("description", text("What the plugin does, in a sentence or two.", MAX_TEXT_BYTES)),
        ("command", command()),
        (
            "env",
            described(
                json!({
                    "type": "array",
                    "maxItems": MAX_VARIABLES,
                    "items": {
                        "type": "string",
                        "pattern": "^[A-Za-z_][A-Za-z0-9_]*$",
                        "not": {"pattern": "^(LD_|DYLD_|CELLMATE_)"},
                        "maxLength": MAX_VARIABLE_BYTES,
                    },
                }),
                "Environment variables that the plugin needs beside the usual ones.",
            ),
        ),
        ("configSchema", json_schema("JSON Schema of the plugin's settings, `plugins.entries.<id>.config`.")),
        (
            "tools",
            described(json!({"type": "array", "maxItems": MAX_PLUGIN_TOOLS, "items": tool()}), "The plugin's tools."),
        ),
        (
            "hooks",
            described(
                object([
                    (
                        "before_tool_call",
                        hook("Sees calls before they are made; can block or change them, or ask a person."),
                    ),
                    ("after_tool_call", hook("Sees calls and their results; cannot change them.")),
                ]),
                "Hooks on the calls of all tools.",
            ),
        ),
        (
            "namespaces",
            described(
                json!({"type": "array", "maxItems": MAX_PLUGIN_NAMESPACES, "items": namespace()}),
                "Globals of cells whose functions call the plugin's tools.",
            ),
        ),
    ];
    let mut schema = object(keys);
    if let Some(fields) = schema.as_object_mut() {
        fields.shift_insert(0, "$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
        fields.shift_insert(1, "title".to_owned(), json!("Cellmate plugin manifest"));
        fields.insert("$defs".to_owned(), json!({"scopeValue": scope_value()}));
        fields.insert("required".to_owned(), json!(["id", "name", "version", "description", "command"]));
        fields.insert(
            "anyOf".to_owned(),
            json!([
                {"required": ["tools"], "properties": {"tools": {"minItems": 1}}},
                {"required": ["hooks"], "properties": {"hooks": {"minProperties": 1}}},
            ]),
        );
    }
    schema
}

fn object<const N: usize>(keys: [(&str, Value); N]) -> Value {
    closed(keys.into_iter().map(|(key, schema)| (key.to_owned(), schema)).collect::<Map<_, _>>())
}

fn with_required(mut schema: Value, names: &[&str]) -> Value {
    if let Some(fields) = schema.as_object_mut() {
        fields.insert("required".to_owned(), json!(names));
    }
    schema
}

fn text(about: &str, bytes: usize) -> Value {
    described(json!({"type": "string", "pattern": "\\S", "maxLength": bytes}), about)
}

fn identifier(reserved: &[&str]) -> Value {
    json!({
        "type": "string",
        "pattern": "^[a-z]([a-z0-9-]*[a-z0-9])?$",
        "maxLength": MAX_ID_BYTES,
        "not": {"enum": reserved},
    })
}

fn json_schema(about: &str) -> Value {
    described(json!({"type": "object"}), about)
}

fn command() -> Value {
    let about = "The program and its arguments, not a shell command. The program is found in `PATH`, or is a path below \
                 the plugin's folder, such as `./run.sh`. The working directory is the plugin's folder.";
    let items = json!({"type": "string", "maxLength": MAX_ARGUMENT_BYTES});
    let program = json!({
        "type": "string",
        "pattern": "^[^/]+(/[^/]+)*$",
        "not": {"pattern": "^\\.\\.(/|$)|/\\.{1,2}(/|$)|^\\s*$"},
    });
    described(
        json!({
            "type": "array", "minItems": 1, "maxItems": MAX_ARGUMENTS, "prefixItems": [program], "items": items,
        }),
        about,
    )
}

fn milliseconds(bound: &Bound, about: &str) -> Value {
    let (from, to) = (bound.range.start(), bound.range.end());
    described(json!({"type": "integer", "minimum": from, "maximum": to, "default": bound.default}), about)
}

fn tool() -> Value {
    let name = json!({
        "type": "string", "pattern": "^[A-Za-z0-9_.-]+$", "maxLength": MAX_NAME_BYTES, "not": {"enum": CORE_NAMES},
    });
    let effects = json!({"enum": ["reads", "repeatable", "changes"], "default": "changes"});
    let keys = [
        ("name", described(name, "The tool's name, unique in the plugin and not that of a core tool.")),
        ("description", text("What the tool does, for models.", MAX_TOOL_DESCRIPTION_BYTES)),
        ("title", described(json!({"type": "string", "maxLength": MAX_TEXT_BYTES}), "A short name for people.")),
        (
            "inputSchema",
            json_schema("JSON Schema of the input, which is an object; without it, the tool takes no input."),
        ),
        ("outputSchema", json_schema("JSON Schema of `details` in the result; a result that differs is an error.")),
        (
            "effects",
            described(
                effects,
                "`reads`: changes nothing, needs no approval and may be repeated after a crash. `repeatable`: executes \
                 calls with the same idempotency key once. `changes`: is never repeated.",
            ),
        ),
        ("timeoutMs", milliseconds(&PLUGIN_CALL_TIMEOUT_MS, "Time limit of a call.")),
    ];
    with_required(object(keys), &["name", "description"])
}

fn hook(about: &str) -> Value {
    let mut tools = patterns("Tools whose calls the hook sees.");
    if let Some(fields) = tools.as_object_mut() {
        fields.insert("maxItems".to_owned(), json!(MAX_HOOK_PATTERNS));
    }
    let keys = [
        ("tools", tools),
        ("cells", described(json!({"type": "boolean", "default": false}), "Whether the hook also sees cells.")),
        ("timeoutMs", milliseconds(&PLUGIN_HOOK_TIMEOUT_MS, "Time limit, the start of the plugin included.")),
    ];
    let mut schema = described(object(keys), about);
    if let Some(fields) = schema.as_object_mut() {
        fields.insert(
            "anyOf".to_owned(),
            json!([
                {"required": ["tools"], "properties": {"tools": {"minItems": 1}}},
                {"required": ["cells"], "properties": {"cells": {"const": true}}},
            ]),
        );
    }
    schema
}

fn namespace() -> Value {
    let global = json!({"type": "string", "pattern": "^[A-Za-z_$][A-Za-z0-9_$]*$", "maxLength": MAX_IDENTIFIER_BYTES});
    let tools = json!({"type": "array", "minItems": 1, "maxItems": MAX_PLUGIN_TOOLS, "items": {"type": "string"}});
    let keys = [
        ("id", described(identifier(&RESERVED_IDS), "Identifies the namespace among those of all plugins.")),
        ("globalName", described(global, "The global of cells.")),
        ("description", text("What the namespace is for; part of the description of `exec`.", MAX_TEXT_BYTES)),
        ("prompt", described(json!({"type": "string", "maxLength": MAX_TEXT_BYTES}), "How to use it, for models.")),
        (
            "requiredToolNames",
            described(tools, "Tools of this plugin that the functions call; a run that lacks one lacks the namespace."),
        ),
        (
            "createScope",
            described(
                json!({"type": "boolean", "default": false}),
                "Whether the plugin creates the scope with `namespaces/createScope`, instead of `scope`.",
            ),
        ),
        ("scope", described(scope(), "Values and functions. A function is `{\"$tool\": NAME, \"input\": MAPPING}`.")),
    ];
    let mut schema = with_required(object(keys), &["id", "globalName", "description", "requiredToolNames"]);
    if let Some(fields) = schema.as_object_mut() {
        let created = json!({"properties": {"createScope": {"const": true}}, "required": ["createScope"]});
        fields.insert("oneOf".to_owned(), json!([created, {"required": ["scope"]}]));
    }
    schema
}

fn scope_value() -> Value {
    let function = with_required(
        object([
            (TOOL_MARKER, described(json!({"type": "string"}), "The tool that the function calls.")),
            ("input", mapping()),
        ]),
        &[TOOL_MARKER],
    );
    json!({
        "anyOf": [
            function,
            {"type": ["null", "boolean", "number", "string"]},
            {"type": "array", "items": {"$ref": SCOPE_VALUE}},
            scope(),
        ],
    })
}

/// An object of a scope that is not a function.
fn scope() -> Value {
    json!({"type": "object", "not": {"required": [TOOL_MARKER]}, "additionalProperties": {"$ref": SCOPE_VALUE}})
}

fn mapping() -> Value {
    let position = json!({"type": "integer", "minimum": 0, "maximum": MAX_POSITIONS - 1});
    let names = json!({
        "type": "array",
        "maxItems": MAX_POSITIONS,
        "items": {"type": ["string", "null"], "minLength": 1, "maxLength": MAX_NAME_BYTES},
    });
    let about = "How the arguments become the tool's input. Without it, the first argument is the input.";
    described(
        object([
            ("spread", described(position, "The argument whose fields are copied.")),
            ("positional", described(names, "A field for each argument, by position; `null` leaves one out.")),
            ("constants", described(json!({"type": "object"}), "Fields that a cell cannot change.")),
        ]),
        about,
    )
}
