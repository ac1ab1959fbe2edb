//! The namespaces of a manifest: values and call markers, and how a call's arguments become a tool's input.

use std::sync::Arc;

use catalog::{InputMapping, ScopeValue};
use contract::config::reader::{self, ConfigReader};
use contract::config::{ConfigError, Path};
use contract::limits::{MAX_IDENTIFIER_BYTES, MAX_PLUGIN_TOOLS};
use serde_json::{Map, Value, json};

use super::fields::{MAX_NAME_BYTES, MAX_TEXT_BYTES, is_id, required, text};

/// The key that marks an object of a scope as a function.
pub(super) const TOOL_MARKER: &str = "$tool";

/// The most arguments that a mapping names.
pub(super) const MAX_POSITIONS: usize = 32;

/// A namespace that a plugin declares.
#[derive(Clone, Debug)]
pub struct NamespaceManifest {
    pub id: String,
    pub global_name: String,
    pub description: String,
    pub prompt: Option<String>,
    pub required_tool_names: Vec<String>,
    pub scope: ScopeManifest,
}

/// The origin of a namespace's scope.
#[derive(Clone, Debug)]
pub enum ScopeManifest {
    /// The scope is in the manifest, the same for every run.
    Fixed(ScopeValue),
    /// The plugin creates it for each agent and session, with `namespaces/createScope`.
    Created,
}

pub(super) fn read_namespace(reader: &mut ConfigReader<'_, '_>, own: &[&str]) -> Option<NamespaceManifest> {
    let id = required(reader, "id", "a namespace's id: lower-case letters, digits and `-`, at most 64", is_id);
    let expected = format!("a JavaScript identifier of at most {MAX_IDENTIFIER_BYTES} bytes");
    let global_name = required(reader, "globalName", &expected, is_identifier);
    let description = text(reader, "description", MAX_TEXT_BYTES);
    let prompt = match reader.field("prompt") {
        Some((Value::String(text), _, _)) if text.len() <= MAX_TEXT_BYTES => Some(text.clone()),
        Some((value, path, errors)) => {
            errors.push(ConfigError::wrong_value(&path, value, &format!("a text of at most {MAX_TEXT_BYTES} bytes")));
            None
        }
        None => None,
    };
    let tool = |value: &Value, path: &Path| match value.as_str().filter(|name| own.contains(name)) {
        Some(name) => Ok(name.to_owned()),
        None => Err(ConfigError::unknown_word(path, value, "the name of a tool of this plugin", own.iter().copied())),
    };
    let required_tool_names = reader.list("requiredToolNames", tool).unwrap_or_default();
    if required_tool_names.is_empty() || required_tool_names.len() > MAX_PLUGIN_TOOLS {
        let path = reader.path().child("requiredToolNames");
        reader.report(ConfigError::wrong_value(&path, &json!([]), "the names of the tools that the namespace calls"));
    }
    let is_created = reader.flag("createScope").unwrap_or(false);
    let path = reader.path().child("scope");
    let scope = match (reader.field("scope"), is_created) {
        (None, true) => Some(ScopeManifest::Created),
        (Some((value, path, errors)), false) => {
            fixed_scope(value, &path, &required_tool_names, errors).map(ScopeManifest::Fixed)
        }
        (found, _) => {
            let value = found.map_or(&Value::Null, |(value, _, _)| value).clone();
            let expected = "an object with values and functions, or `createScope: true` instead of it";
            reader.report(ConfigError::wrong_value(&path, &value, expected));
            None
        }
    };
    Some(NamespaceManifest {
        id: id?,
        global_name: global_name?,
        description: description?,
        prompt,
        required_tool_names,
        scope: scope?,
    })
}

fn is_identifier(text: &str) -> bool {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$'));
    let starts = text.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
    is_plain && starts && text.len() <= MAX_IDENTIFIER_BYTES
}

fn fixed_scope(value: &Value, path: &Path, tools: &[String], errors: &mut Vec<ConfigError>) -> Option<ScopeValue> {
    if !value.is_object() || value.get(TOOL_MARKER).is_some() {
        errors.push(ConfigError::wrong_value(path, value, "an object with values and functions"));
        return None;
    }
    let before = errors.len();
    let scope = scope_value(value, path, tools, errors);
    (errors.len() == before).then_some(scope)
}

/// Reads a scope that a plugin created. The error names the first thing that is wrong.
pub(crate) fn read_scope(value: &Value, tools: &[String]) -> Result<ScopeValue, String> {
    let mut errors = Vec::new();
    let scope = fixed_scope(value, &Path::root("scope"), tools, &mut errors);
    scope.ok_or_else(|| errors.first().map_or_else(|| "it is invalid".to_owned(), ToString::to_string))
}

/// Converts a JSON value. Its depth is limited by that of the message or manifest that it came in.
fn scope_value(value: &Value, path: &Path, tools: &[String], errors: &mut Vec<ConfigError>) -> ScopeValue {
    match value {
        Value::Object(fields) if fields.contains_key(TOOL_MARKER) => {
            function(value, path, tools, errors).unwrap_or(ScopeValue::Json(Value::Null))
        }
        Value::Object(fields) => {
            let entry =
                |(key, value): (&String, &Value)| (key.clone(), scope_value(value, &path.child(key), tools, errors));
            ScopeValue::Object(fields.iter().map(entry).collect())
        }
        Value::Array(items) => {
            let item = |(position, value): (usize, &Value)| scope_value(value, &path.item(position), tools, errors);
            ScopeValue::Array(items.iter().enumerate().map(item).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => ScopeValue::Json(value.clone()),
    }
}

fn function(value: &Value, path: &Path, tools: &[String], errors: &mut Vec<ConfigError>) -> Option<ScopeValue> {
    reader::object(value, path, errors, |reader| {
        let expected = "the name of a tool in `requiredToolNames`";
        let name = required(reader, TOOL_MARKER, expected, |name| tools.iter().any(|tool| tool == name));
        let input = match reader.field("input") {
            Some((value, path, errors)) => ArgumentMapping::read(value, &path, errors)?.into_input_mapping(),
            None => InputMapping::First,
        };
        Some(ScopeValue::Tool { name: name?, input })
    })
    .flatten()
}

/// How the arguments of a function become the tool's input: fields of one argument, then named arguments, then constants.
/// A later one replaces an earlier one of the same name, so a cell cannot change a constant.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ArgumentMapping {
    /// The position of the argument whose fields are copied.
    spread: Option<usize>,
    /// The name of each argument, by position; `None` for one that is left out.
    positional: Vec<Option<String>>,
    constants: Map<String, Value>,
}

impl ArgumentMapping {
    fn read(value: &Value, path: &Path, errors: &mut Vec<ConfigError>) -> Option<Self> {
        reader::object(value, path, errors, |reader| {
            let spread = match reader.field("spread") {
                None => None,
                Some((value, path, errors)) => {
                    let position =
                        value.as_u64().and_then(|at| usize::try_from(at).ok()).filter(|at| *at < MAX_POSITIONS);
                    if position.is_none() {
                        let expected = format!("the position of an argument, from 0 to {}", MAX_POSITIONS - 1);
                        errors.push(ConfigError::wrong_value(&path, value, &expected));
                    }
                    position
                }
            };
            let name = |value: &Value, path: &Path| match value {
                Value::Null => Ok(None),
                Value::String(name) if !name.is_empty() && name.len() <= MAX_NAME_BYTES => Ok(Some(name.clone())),
                _ => Err(ConfigError::wrong_value(path, value, "the name of a field of the tool's input, or `null`")),
            };
            let positional = reader.list("positional", name).unwrap_or_default();
            if positional.len() > MAX_POSITIONS {
                let path = reader.path().child("positional");
                reader.report(ConfigError::wrong_value(&path, &json!([]), &format!("at most {MAX_POSITIONS} names")));
            }
            let constants = match reader.field("constants") {
                Some((Value::Object(fields), _, _)) => fields.clone(),
                Some((value, path, errors)) => {
                    errors.push(ConfigError::wrong_value(&path, value, "an object with fields of the tool's input"));
                    Map::new()
                }
                None => Map::new(),
            };
            Self { spread, positional, constants }
        })
    }

    pub(super) fn apply(&self, arguments: &[Value]) -> Value {
        let mut input = Map::new();
        if let Some(Value::Object(fields)) = self.spread.and_then(|position| arguments.get(position)) {
            input.extend(fields.clone());
        }
        let named = self.positional.iter().zip(arguments);
        // `undefined` arrives as `null`.
        let given = named.filter(|(_, argument)| !argument.is_null());
        input.extend(given.filter_map(|(name, argument)| Some((name.clone()?, argument.clone()))));
        input.extend(self.constants.clone());
        Value::Object(input)
    }

    fn into_input_mapping(self) -> InputMapping {
        InputMapping::Custom(Arc::new(move |arguments| self.apply(arguments)))
    }
}

#[cfg(test)]
mod tests {
    use contract::config::Path;
    use serde_json::json;

    use super::{ArgumentMapping, read_scope};

    #[test]
    fn arguments_are_spread_then_named_then_constants_win() {
        let mapping =
            |value: serde_json::Value| ArgumentMapping::read(&value, &Path::root("input"), &mut Vec::new()).unwrap();
        let cases = [
            (json!({"positional": ["number", "patch"]}), json!([7, {"a": 1}]), json!({"number": 7, "patch": {"a": 1}})),
            (json!({"positional": ["number", "patch"]}), json!([7]), json!({"number": 7})),
            (json!({"positional": [null, "b"]}), json!([1, 2, 3]), json!({"b": 2})),
            (json!({"positional": ["a", "b"]}), json!([null, 2]), json!({"b": 2})),
            (json!({"spread": 0}), json!([{"a": 1}, 2]), json!({"a": 1})),
            (json!({"spread": 1, "positional": ["a"]}), json!([1, {"a": 2, "b": 3}]), json!({"a": 1, "b": 3})),
            (json!({"spread": 0, "constants": {"a": 9}}), json!([{"a": 1, "b": 2}]), json!({"a": 9, "b": 2})),
            (json!({"spread": 0}), json!(["text"]), json!({})),
            (json!({}), json!([]), json!({})),
        ];
        for (given, arguments, expected) in cases {
            let input = mapping(given.clone()).apply(arguments.as_array().unwrap());
            assert_eq!(input, expected, "{given} {arguments}");
        }
    }

    #[test]
    fn a_scope_calls_only_required_tools_and_has_no_other_markers() {
        let tools = ["list".to_owned()];
        assert!(read_scope(&json!({"a": {"b": [{"$tool": "list", "input": {"spread": 0}}]}, "n": 1}), &tools).is_ok());
        let wrong = [
            (json!({"f": {"$tool": "other"}}), "scope.f[\"$tool\"]"),
            (json!({"f": {"$tool": "list", "inptu": {}}}), "did you mean `input`"),
            (json!({"f": {"$tool": "list", "input": {"spread": 99}}}), "scope.f.input.spread"),
            (json!({"f": {"$tool": "list", "input": {"positional": [7]}}}), "scope.f.input.positional[0]"),
            (json!({"$tool": "list"}), "an object with values"),
            (json!([1]), "an object with values"),
        ];
        for (scope, expected) in wrong {
            let error = read_scope(&scope, &tools).unwrap_err();
            assert!(error.contains(expected), "{scope}: {error}");
        }
    }
}
