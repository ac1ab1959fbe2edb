//! The input of `exec` and `wait`, read as the contract defines it. Bad input is a failed result, never a protocol
//! error.

use contract::cell::Language;
use contract::error::ErrorCode;
use contract::frame::Failure;
use serde_json::Value;

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

    /// Reads `{ code?, command?, language? }`: one of `code` and `command`, or both with the same text.
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
            Some(given) => given.as_str().and_then(Language::parse).ok_or_else(|| Failure {
                code: Some(ErrorCode::UnsupportedLanguage),
                message: "`language` must be \"javascript\" or \"typescript\"".to_owned(),
                place: None,
            })?,
        };
        Ok(Self { source, language })
    }
}

/// Reads `{ runId }`; `run_id` is accepted too.
pub(crate) fn wait_input(input: &Value) -> Result<&str, Failure> {
    let given = input.get("runId").or_else(|| input.get("run_id")).and_then(Value::as_str).map(str::trim);
    given
        .filter(|run_id| !run_id.is_empty())
        .ok_or_else(|| invalid("`runId` is missing; pass the one that `exec` returned".to_owned()))
}

fn invalid(message: String) -> Failure {
    Failure { code: Some(ErrorCode::InvalidInput), message, place: None }
}

#[cfg(test)]
mod tests {
    use contract::cell::Language;
    use contract::error::ErrorCode;
    use serde_json::json;

    use super::ExecInput;

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
}
