//! Reads a plugin's manifest. Its size is checked before it is parsed, and all problems are reported with their paths.

use std::collections::BTreeSet;
use std::path::Path as FilePath;
use std::time::Duration;

use catalog::convenience_name;
use contract::config::pattern::Pattern;
use contract::config::reader::{self, ConfigReader};
use contract::config::{ConfigError, Path};
use contract::json::measure;
use contract::limits::{
    Bound, MAX_HOOK_PATTERNS, MAX_MANIFEST_BYTES, MAX_MANIFEST_DEPTH, MAX_MANIFEST_VALUES, MAX_PLUGIN_NAMESPACES,
    MAX_PLUGIN_TOOLS, MAX_TOOL_DESCRIPTION_BYTES, MAX_TOOL_VALUES, PLUGIN_CALL_TIMEOUT_MS, PLUGIN_HOOK_TIMEOUT_MS,
};
use contract::schema_shape::{check_input_schema, check_schema};
use contract::tool::{Repeat, ToolId, ToolSpec, is_visible_name};
use serde_json::{Value, json};

use super::fields::{
    MAX_ARGUMENT_BYTES, MAX_ARGUMENTS, MAX_ID_BYTES, MAX_NAME_BYTES, MAX_SCHEMA_BYTES, MAX_TEXT_BYTES,
    MAX_VARIABLE_BYTES, MAX_VARIABLES, is_id, required, text,
};
use super::namespace::read_namespace;
use super::{Effects, HookManifest, Manifest, ManifestError, PluginTool, ROOT};

/// Names that are reserved for core tools and control tools. In cells a tool can be called by its name alone, which
/// would be ambiguous if a plugin's tool had the same name.
pub(super) const CORE_NAMES: [&str; 16] = [
    "exec",
    "wait",
    "read",
    "write",
    "edit",
    "apply_patch",
    "ls",
    "find",
    "grep",
    "process",
    "web_fetch",
    "web_search",
    "tool_search_code",
    "tool_search",
    "tool_describe",
    "tool_call",
];

impl Manifest {
    /// Reads a manifest from its text; `file` is named in errors.
    pub fn read(text: &[u8], file: &FilePath) -> Result<Self, ManifestError> {
        if text.len() > MAX_MANIFEST_BYTES {
            return Err(ManifestError::TooLong(file.to_owned()));
        }
        let size = measure(text);
        if size.values > MAX_MANIFEST_VALUES || size.depth > MAX_MANIFEST_DEPTH {
            return Err(ManifestError::TooComplex(file.to_owned()));
        }
        let value =
            serde_json::from_slice(text).map_err(|source| ManifestError::NotJson { file: file.to_owned(), source })?;
        Self::from_json(&value).map_err(|problems| ManifestError::Invalid { file: file.to_owned(), problems })
    }

    /// Reads a manifest that was parsed.
    pub(crate) fn from_json(value: &Value) -> Result<Self, Vec<ConfigError>> {
        let mut errors = Vec::new();
        let read = reader::object(value, &Path::root(ROOT), &mut errors, read_manifest).flatten();
        match read.filter(|_| errors.is_empty()) {
            Some(manifest) => Ok(manifest),
            None => Err(errors),
        }
    }
}

fn read_manifest(reader: &mut ConfigReader<'_, '_>) -> Option<Manifest> {
    // Editors find the manifest's schema by this key; it is not used here.
    let _schema = reader.field("$schema");
    let id =
        required(reader, "id", "a plugin's id: lower-case letters, digits and `-`, at most 64, not reserved", is_id);
    let name = text(reader, "name", MAX_TEXT_BYTES);
    let version =
        required(reader, "version", "a version, such as `1.0.0`: letters, digits, `.`, `-` and `+`", is_version);
    let description = text(reader, "description", MAX_TEXT_BYTES);
    let command = read_command(reader);
    let env = reader.list("env", read_variable).unwrap_or_default();
    check_length(reader, "env", env.len(), MAX_VARIABLES);
    let config_schema =
        reader.field("configSchema").and_then(|(value, path, errors)| read_schema(value, &path, errors));
    // An invalid id was reported above. This one is only used in the ids of tools, so that they can be checked, too.
    let owner = id.clone().unwrap_or_else(|| "invalid".to_owned());
    let errors_before = reader.error_count();
    let tools = read_tools(reader, &owner);
    let (before_tool_call, after_tool_call) = reader
        .object("hooks", |hooks| (read_hook(hooks, "before_tool_call"), read_hook(hooks, "after_tool_call")))
        .unwrap_or_default();
    let are_valid = reader.error_count() == errors_before;
    let namespaces = read_namespaces(reader, &tools);
    let has_tool_or_hook = !tools.is_empty() || before_tool_call.is_some() || after_tool_call.is_some();
    if !has_tool_or_hook && are_valid {
        let expected = "at least one tool or hook";
        let path = reader.path().child("tools");
        reader.report(ConfigError::wrong_value(&path, &json!([]), expected));
    }
    Some(Manifest {
        id: id?,
        name: name?,
        version: version?,
        description: description?,
        command: command?,
        env,
        tools,
        before_tool_call,
        after_tool_call,
        namespaces,
        config_schema,
    })
}

/// Reports a list that has more than `max` entries.
fn check_length(reader: &mut ConfigReader<'_, '_>, key: &'static str, found: usize, max: usize) {
    if found > max {
        let path = reader.path().child(key);
        reader.report(ConfigError::wrong_value(&path, &json!([]), &format!("at most {max} entries, not {found}")));
    }
}

fn is_version(text: &str) -> bool {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'+'));
    is_plain && text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric()) && text.len() <= MAX_ID_BYTES
}

/// Reads the command. It is never a shell string: a program and its arguments.
fn read_command(reader: &mut ConfigReader<'_, '_>) -> Option<Vec<String>> {
    let path = reader.path().child("command");
    let argument = |value: &Value, path: &Path| match value.as_str() {
        Some(text) if text.len() <= MAX_ARGUMENT_BYTES && !text.contains('\0') => Ok(text.to_owned()),
        _ => Err(ConfigError::wrong_value(path, value, &format!("a text of at most {MAX_ARGUMENT_BYTES} bytes"))),
    };
    let command = reader.list("command", argument);
    let program = command.as_ref().and_then(|command| command.first());
    if !program.is_some_and(|program| is_program(program)) {
        let expected = "a program and its arguments, each as one text: the program is found in `PATH`, or is a path below \
                        the plugin's folder, such as `./run.sh`";
        let found = program.map_or(Value::Null, |program| json!(program));
        reader.report(ConfigError::wrong_value(&path.item(0), &found, expected));
        return None;
    }
    check_length(reader, "command", command.as_ref().map_or(0, Vec::len), MAX_ARGUMENTS);
    command
}

fn is_program(program: &str) -> bool {
    let parts_are_plain = program.split('/').skip(1).all(|part| !matches!(part, "" | "." | ".."));
    let first = program.split('/').next().unwrap_or_default();
    !program.trim().is_empty() && first != ".." && !(first.is_empty() && program.contains('/')) && parts_are_plain
}

fn read_variable(value: &Value, path: &Path) -> Result<String, ConfigError> {
    let is_name = |text: &str| {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        is_plain && text.bytes().next().is_some_and(|byte| !byte.is_ascii_digit()) && text.len() <= MAX_VARIABLE_BYTES
    };
    // The variables of the dynamic loader decide which other code a process loads; those of Cellmate configure it.
    let is_reserved =
        |text: &str| text.starts_with("LD_") || text.starts_with("DYLD_") || text.starts_with("CELLMATE_");
    match value.as_str().filter(|text| is_name(text) && !is_reserved(text)) {
        Some(text) => Ok(text.to_owned()),
        None => Err(ConfigError::wrong_value(
            path,
            value,
            "the name of an environment variable, not of the loader or cellmate",
        )),
    }
}

/// Reads a JSON Schema. It must be an object.
fn read_schema(value: &Value, path: &Path, errors: &mut Vec<ConfigError>) -> Option<Value> {
    let schema = check_small_object(value, path).and_then(|()| check_schema(value, path));
    schema.map_err(|error| errors.push(error)).ok().map(|()| value.clone())
}

/// Reads the JSON Schema of a tool's input, which is an object.
fn read_input_schema(value: &Value, path: &Path, errors: &mut Vec<ConfigError>) -> Option<Value> {
    let schema = check_small_object(value, path).and_then(|()| check_input_schema(value, path));
    schema.map_err(|error| errors.push(error)).ok().map(|()| value.clone())
}

fn check_small_object(value: &Value, path: &Path) -> Result<(), ConfigError> {
    let text = value.to_string();
    let is_small = text.len() <= MAX_SCHEMA_BYTES && measure(text.as_bytes()).values <= MAX_TOOL_VALUES;
    if value.is_object() && is_small {
        return Ok(());
    }
    let expected =
        format!("a JSON Schema, which is an object of at most {MAX_SCHEMA_BYTES} bytes and {MAX_TOOL_VALUES} values");
    Err(ConfigError::wrong_value(path, value, &expected))
}

fn read_tools(reader: &mut ConfigReader<'_, '_>, owner: &str) -> Vec<PluginTool> {
    let Some((value, path, errors)) = reader.field("tools") else { return Vec::new() };
    let Value::Array(items) = value else {
        errors.push(ConfigError::wrong_value(&path, value, "a list of tools"));
        return Vec::new();
    };
    if items.len() > MAX_PLUGIN_TOOLS {
        errors.push(ConfigError::wrong_value(
            &path,
            value,
            &format!("at most {MAX_PLUGIN_TOOLS} tools, not {}", items.len()),
        ));
        return Vec::new();
    }
    let mut names = BTreeSet::new();
    let mut tools = Vec::new();
    for (position, item) in items.iter().enumerate() {
        let path = path.item(position);
        let Some(tool) = reader::object(item, &path, errors, |reader| read_tool(reader, owner)).flatten() else {
            continue;
        };
        let name = tool.spec.id.name();
        if !names.insert(convenience_name(name).unwrap_or_else(|| name.to_owned())) {
            let name = json!(name);
            errors.push(ConfigError::wrong_value(
                &path.child("name"),
                &name,
                "a name that no other tool of the plugin has",
            ));
        }
        tools.push(tool);
    }
    tools
}

fn read_tool(reader: &mut ConfigReader<'_, '_>, owner: &str) -> Option<PluginTool> {
    let expected = "a tool's name: letters, digits, `_`, `-` and `.`, at most 128, and not the name of a core tool";
    let name = required(reader, "name", expected, is_tool_name);
    let description = text(reader, "description", MAX_TOOL_DESCRIPTION_BYTES);
    let label = reader.field("title").and_then(|(value, path, errors)| optional_text(value, &path, errors));
    let parameters = match reader.field("inputSchema") {
        Some((value, path, errors)) => read_input_schema(value, &path, errors),
        None => Some(json!({"type": "object", "properties": {}, "additionalProperties": false})),
    };
    let output = reader.field("outputSchema").and_then(|(value, path, errors)| read_schema(value, &path, errors));
    let effects = match reader.choice("effects", &Effects::WORDS) {
        Some(effects) => effects,
        None => Effects::Changes,
    };
    let timeout = timeout(reader, &PLUGIN_CALL_TIMEOUT_MS);
    let id = ToolId::parse(&format!("plugin:{owner}:{}", name?)).ok()?;
    let repeat = match effects {
        Effects::Reads => Repeat::Always,
        Effects::Repeatable => Repeat::WithKey,
        Effects::Changes => Repeat::Never,
    };
    let spec =
        ToolSpec { label, output, repeat, declared_repeat: repeat, ..ToolSpec::new(id, description?, parameters?) };
    Some(PluginTool { spec, effects, timeout })
}

pub(super) fn is_tool_name(text: &str) -> bool {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'));
    let is_core = CORE_NAMES.iter().any(|core| convenience_name(core) == convenience_name(text));
    is_plain && !text.is_empty() && text.len() <= MAX_NAME_BYTES && is_visible_name(text) && !is_core
}

fn optional_text(value: &Value, path: &Path, errors: &mut Vec<ConfigError>) -> Option<String> {
    match value.as_str().filter(|text| text.len() <= MAX_TEXT_BYTES) {
        Some(text) => Some(text.to_owned()),
        None => {
            errors.push(ConfigError::wrong_value(path, value, &format!("a text of at most {MAX_TEXT_BYTES} bytes")));
            None
        }
    }
}

/// Reads a time limit. A number outside its range is an error, so that the plugin's author knows which limit applies.
fn timeout(reader: &mut ConfigReader<'_, '_>, bound: &Bound) -> Duration {
    let given = match reader.field(bound.key) {
        None => None,
        Some((value, path, errors)) => {
            let number = value.as_u64().filter(|number| bound.range.contains(number));
            if number.is_none() {
                let (from, to) = (bound.range.start(), bound.range.end());
                errors.push(ConfigError::wrong_value(&path, value, &format!("milliseconds from {from} to {to}")));
            }
            number
        }
    };
    Duration::from_millis(given.unwrap_or(bound.default))
}

fn read_hook(reader: &mut ConfigReader<'_, '_>, key: &'static str) -> Option<HookManifest> {
    reader.object(key, |reader| {
        let errors_before = reader.error_count();
        let tools = reader.list("tools", Pattern::read).unwrap_or_default();
        let are_valid = reader.error_count() == errors_before;
        check_length(reader, "tools", tools.len(), MAX_HOOK_PATTERNS);
        let cells = reader.flag("cells").unwrap_or(false);
        let timeout = timeout(reader, &PLUGIN_HOOK_TIMEOUT_MS);
        if tools.is_empty() && !cells && are_valid {
            let path = reader.path().child("tools");
            let expected = "patterns of the tools whose calls the hook sees, such as `[\"*\"]`, or `cells: true`";
            reader.report(ConfigError::wrong_value(&path, &json!([]), expected));
        }
        HookManifest { tools, cells, timeout }
    })
}

fn read_namespaces(reader: &mut ConfigReader<'_, '_>, tools: &[PluginTool]) -> Vec<super::NamespaceManifest> {
    let Some((value, path, errors)) = reader.field("namespaces") else { return Vec::new() };
    let Value::Array(items) = value else {
        errors.push(ConfigError::wrong_value(&path, value, "a list of namespaces"));
        return Vec::new();
    };
    if items.len() > MAX_PLUGIN_NAMESPACES {
        let expected = format!("at most {MAX_PLUGIN_NAMESPACES} namespaces, not {}", items.len());
        errors.push(ConfigError::wrong_value(&path, value, &expected));
        return Vec::new();
    }
    let tool_names: Vec<&str> = tools.iter().map(|tool| tool.spec.id.name()).collect();
    let read = |(position, item): (usize, &Value)| {
        reader::object(item, &path.item(position), errors, |reader| read_namespace(reader, &tool_names)).flatten()
    };
    items.iter().enumerate().filter_map(read).collect()
}
