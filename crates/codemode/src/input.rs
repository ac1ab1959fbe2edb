//! Reads the input of `exec` and `wait` as the contract defines it. Invalid input is a failed result, never a protocol
//! error.

use contract::cell::Language;
use contract::error::ErrorCode;
use contract::frame::Failure;
use contract::ids::RunId;
use serde_json::Value;

use crate::failure::failure;

/// A cell to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecInput {
    pub source: String,
    pub language: Language,
}

impl ExecInput {
    pub fn javascript(source: impl Into<String>) -> Self {
        Self { source: source.into(), language: Language::JavaScript }
    }

    /// Reads `{ code?, command?, language? }`. The source is under one of the names `code` and `command`, or under both with
    /// the same text.
    pub fn parse(input: &Value) -> Result<Self, Failure> {
        let text = |name: &str| match input.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.trim().is_empty() => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str())),
            Some(_) => Err(invalid(format!("`{name}` must be a string"))),
        };
        let source = match (text("code")?, text("command")?) {
            (Some(code), Some(command)) if code != command => {
                return Err(invalid(
                    "`code` and `command` differ; pass one of them, or the same text in both".to_owned(),
                ));
            }
            (Some(source), _) | (None, Some(source)) => source.to_owned(),
            (None, None) => {
                return Err(invalid("`code` is empty; pass the cell's JavaScript or TypeScript source".to_owned()));
            }
        };
        let language = match input.get("language") {
            None | Some(Value::Null) => Language::JavaScript,
            Some(given) => given.as_str().and_then(Language::parse).ok_or_else(|| {
                failure(ErrorCode::UnsupportedLanguage, "`language` must be \"javascript\" or \"typescript\"")
            })?,
        };
        Ok(Self { source, language })
    }
}

/// Reads the input of `wait`, `{ runId }`. `run_id` is accepted too.
pub(crate) fn wait_input(input: &Value) -> Result<RunId, Failure> {
    let given = input.get("runId").or_else(|| input.get("run_id")).and_then(Value::as_str).map(str::trim);
    given
        .filter(|run_id| !run_id.is_empty())
        .map(RunId::from)
        .ok_or_else(|| invalid("`runId` is missing; pass the one that `exec` returned".to_owned()))
}

/// Returns the language of an input of `exec`, by default JavaScript; `None` if the given one is unknown.
pub(crate) fn language(input: &Value) -> Option<Language> {
    match input.get("language") {
        None | Some(Value::Null) => Some(Language::JavaScript),
        Some(language) => language.as_str().and_then(Language::parse),
    }
}

/// Returns the input with the source under both names, `code` and `command`, so that a hook can read either. A name whose
/// value is null or blank is overwritten; one with another value that is no string stays as it is.
pub(crate) fn fill_both_names(input: &Value) -> Value {
    let mut input = input.clone();
    if let Some(fields) = input.as_object_mut() {
        let given = |fields: &serde_json::Map<String, Value>, name: &str| {
            let is_given =
                |value: &&Value| !value.is_null() && value.as_str().is_none_or(|text| !text.trim().is_empty());
            fields.get(name).filter(is_given).cloned()
        };
        match (given(fields, "code"), given(fields, "command")) {
            (Some(code), None) => drop(fields.insert("command".to_owned(), code)),
            (None, Some(command)) => drop(fields.insert("code".to_owned(), command)),
            (Some(_), Some(_)) | (None, None) => {}
        }
    }
    input
}

/// Copies the source to the other name if a hook changed it under one name only.
pub(crate) fn sync_names(before: &Value, mut after: Value) -> Value {
    let changed = |name: &str| before.get(name) != after.get(name);
    let follow = match (changed("code"), changed("command")) {
        (true, false) => Some(("command", after.get("code").cloned())),
        (false, true) => Some(("code", after.get("command").cloned())),
        (true, true) | (false, false) => None,
    };
    if let (Some((name, Some(value))), Some(fields)) = (follow, after.as_object_mut()) {
        fields.insert(name.to_owned(), value);
    }
    after
}

fn invalid(message: String) -> Failure {
    failure(ErrorCode::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use contract::cell::Language;
    use contract::error::ErrorCode;
    use serde_json::json;

    use super::{ExecInput, fill_both_names, sync_names};

    #[test]
    fn exec_input_is_read_as_the_contract_defines_it() {
        let good = [
            (json!({"code": "return 1"}), Language::JavaScript),
            (json!({"command": "return 1"}), Language::JavaScript),
            (json!({"code": "return 1", "command": "return 1", "language": "typescript"}), Language::TypeScript),
            (json!({"code": "return 1", "command": "", "language": null}), Language::JavaScript),
        ];
        for (input, language) in good {
            let expected = ExecInput { source: "return 1".to_owned(), language };
            assert_eq!(ExecInput::parse(&input), Ok(expected), "{input}");
        }
        let bad = [
            (json!({}), ErrorCode::InvalidInput),
            (json!({"code": "  "}), ErrorCode::InvalidInput),
            (json!({"code": 1}), ErrorCode::InvalidInput),
            (json!({"code": "a", "command": "b"}), ErrorCode::InvalidInput),
            (json!({"code": "a", "language": "bash"}), ErrorCode::UnsupportedLanguage),
            (json!({"code": "a", "language": 3}), ErrorCode::UnsupportedLanguage),
            (json!("return 1"), ErrorCode::InvalidInput),
        ];
        for (input, code) in bad {
            assert_eq!(ExecInput::parse(&input).unwrap_err().code, Some(code), "{input}");
        }
    }

    #[test]
    fn the_source_is_copied_to_both_names() {
        let both = json!({"code": "a", "command": "a"});
        for input in [json!({"code": "a"}), json!({"command": "a"}), json!({"code": "a", "command": " "}), both.clone()]
        {
            assert_eq!(fill_both_names(&input), both, "{input}");
        }
        assert_eq!(fill_both_names(&json!({"code": "a", "command": "b"})), json!({"code": "a", "command": "b"}));
        assert_eq!(fill_both_names(&json!("a")), json!("a"));
    }

    #[test]
    fn a_source_rewritten_under_one_name_is_copied_to_the_other() {
        let before = json!({"code": "a", "command": "a"});
        let after = json!({"code": "b", "command": "b"});
        for rewritten in [json!({"code": "b", "command": "a"}), json!({"code": "a", "command": "b"}), after.clone()] {
            assert_eq!(sync_names(&before, rewritten.clone()), after, "{rewritten}");
        }
        // Two different rewrites stay different, and are refused because both must match.
        let differ = json!({"code": "b", "command": "c"});
        assert_eq!(sync_names(&before, differ.clone()), differ);
    }
}
