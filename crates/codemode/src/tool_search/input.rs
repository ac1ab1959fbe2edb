//! The input of the structured tools. Fields are accepted under several names, because models use them.

use contract::config::SearchLimits;
use contract::error::ErrorCode;
use contract::frame::Failure;
use serde_json::{Map, Value};

use crate::bridge;
use crate::failure::failure;

const ID_NAMES: [&str; 3] = ["id", "toolId", "name"];
const ARGUMENT_NAMES: [&str; 2] = ["args", "input"];

/// Reads `{ query, limit? }` or `{ query, options: { limit? } }`.
pub(super) fn search<'a>(input: &'a Value, limits: &SearchLimits) -> Result<(&'a str, usize), Failure> {
    let query = input.get("query").and_then(Value::as_str);
    let query = query.ok_or_else(|| invalid("`query` is missing; describe what the tool should do"))?;
    let asked = given(input, "limit").or_else(|| given(input.get("options")?, "limit"));
    let limit = bridge::search_limit(asked, limits).map_err(invalid)?;
    Ok((query, limit))
}

/// Reads `{ id }`.
pub(super) fn describe(input: &Value) -> Result<&str, Failure> {
    id(input).map(|(_, id)| id)
}

/// Reads `{ id, args? }`. Small models write the arguments beside the id; without `args` the other fields are used.
pub(super) fn call(input: &Value) -> Result<(&str, Value), Failure> {
    let (id_name, id) = id(input)?;
    let named = ARGUMENT_NAMES.iter().find_map(|name| given(input, name));
    let arguments = named.cloned().unwrap_or_else(|| Value::Object(others(input, id_name)));
    Ok((id, arguments))
}

fn id(input: &Value) -> Result<(&'static str, &str), Failure> {
    ID_NAMES
        .into_iter()
        .find_map(|name| Some((name, input.get(name)?.as_str().filter(|id| !id.trim().is_empty())?)))
        .ok_or_else(|| invalid("`id` is missing; pass a tool's id from `tool_search`"))
}

fn others(input: &Value, id_name: &str) -> Map<String, Value> {
    let fields = input.as_object().cloned().unwrap_or_default();
    fields.into_iter().filter(|(name, _)| name != id_name && !ARGUMENT_NAMES.contains(&name.as_str())).collect()
}

fn given<'a>(input: &'a Value, name: &str) -> Option<&'a Value> {
    input.get(name).filter(|value| !value.is_null())
}

fn invalid(message: &str) -> Failure {
    failure(ErrorCode::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use contract::config::SearchLimits;
    use serde_json::json;

    use super::{call, describe, search};

    #[test]
    fn fields_are_read_under_all_their_names() {
        let limits = SearchLimits { default: 8, max: 20 };
        for (input, expected) in [
            (json!({"query": "a b"}), ("a b", 8)),
            (json!({"query": "", "limit": 3, "options": {"limit": 4}}), ("", 3)),
            (json!({"query": "a", "limit": null, "options": {"limit": 99}}), ("a", 20)),
        ] {
            assert_eq!(search(&input, &limits), Ok(expected), "{input}");
        }
        for input in [json!({"id": "a:b:c"}), json!({"toolId": "a:b:c"}), json!({"name": "a:b:c", "id": " "})] {
            assert_eq!(describe(&input), Ok("a:b:c"), "{input}");
        }
        for (input, arguments) in [
            (json!({"id": "a:b:c", "args": {"n": 1}}), json!({"n": 1})),
            (json!({"toolId": "a:b:c", "input": {"n": 1}}), json!({"n": 1})),
            (json!({"id": "a:b:c", "n": 1, "name": "x"}), json!({"n": 1, "name": "x"})),
            (json!({"name": "a:b:c", "args": null}), json!({})),
            (json!({"id": "a:b:c", "args": [1]}), json!([1])),
        ] {
            assert_eq!(call(&input), Ok(("a:b:c", arguments)), "{input}");
        }
    }

    #[test]
    fn a_missing_or_invalid_field_is_named() {
        let limits = SearchLimits { default: 8, max: 20 };
        let message = |failed: contract::frame::Failure| failed.message;
        for (input, expected) in [
            (json!({}), "`query` is missing; describe what the tool should do"),
            (json!({"query": 1}), "`query` is missing; describe what the tool should do"),
            (json!({"query": "a", "limit": 0}), "`limit` must be a whole number above 0"),
            (json!({"query": "a", "options": {"limit": "5"}}), "`limit` must be a whole number above 0"),
        ] {
            assert_eq!(search(&input, &limits).map_err(message), Err(expected.to_owned()), "{input}");
        }
        let missing = "`id` is missing; pass a tool's id from `tool_search`".to_owned();
        for input in [json!({}), json!("a:b:c"), json!({"id": 1}), json!({"id": ""})] {
            assert_eq!(call(&input).map_err(message), Err(missing.clone()), "{input}");
        }
    }
}
