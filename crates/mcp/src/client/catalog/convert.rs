//! Converts a call to a protocol request, and a protocol result to a tool result.

use contract::limits::MAX_CONTENT_VALUES;
use contract::tool::{Operation, ToolId};
use executor::ToolResult;
use serde_json::{Map, Value, json};

/// Returns the method and its parameters. Besides a tool's own arguments only the keys named here reach the server: a
/// cell must not set the protocol's `_meta`.
pub(crate) fn request(
    id: &ToolId,
    operation: Operation,
    input: &Value,
) -> Result<(&'static str, Map<String, Value>), String> {
    let empty = Map::new();
    let input = match input {
        Value::Object(input) => input,
        Value::Null => &empty,
        _ => return Err("it takes one object argument".to_owned()),
    };
    let (method, keys): (_, &[&str]) = match operation {
        Operation::Tool => {
            let params = [("name", json!(id.name())), ("arguments", json!(input))];
            return Ok(("tools/call", params.map(|(key, value)| (key.to_owned(), value)).into_iter().collect()));
        }
        Operation::ListResources => ("resources/list", &["cursor"]),
        Operation::ReadResource => ("resources/read", &["uri"]),
        Operation::ListPrompts => ("prompts/list", &["cursor"]),
        Operation::GetPrompt => ("prompts/get", &["name", "arguments"]),
    };
    let known = |key: &&str| input.get(*key).map(|value| ((*key).to_owned(), value.clone()));
    Ok((method, keys.iter().filter_map(known).collect()))
}

/// Returns the whole result as details, and its displayable part as content. A tool's own error is a normal result: the
/// cell reads `isError`.
pub(crate) fn returned(operation: Operation, result: Value) -> Result<ToolResult, String> {
    if !result.is_object() {
        return Err("its response is not a valid result".to_owned());
    }
    match result.get("resultType").and_then(Value::as_str) {
        None | Some("complete") => {}
        Some(_) => return Err("its response has an unknown result type".to_owned()),
    }
    Ok(ToolResult { content: shown_content(operation, &result), details: Some(result), ..ToolResult::default() })
}

/// Returns the content. It is a copy next to the result, so large content is omitted; the result itself stays whole.
fn shown_content(operation: Operation, result: &Value) -> Vec<Value> {
    let parts = ["content", "contents", "messages"].map(|key| result.get(key));
    if parts.into_iter().flatten().map(values).sum::<usize>() > MAX_CONTENT_VALUES {
        let text = format!("(content of more than {MAX_CONTENT_VALUES} JSON values is omitted here)");
        return vec![json!({"type": "text", "text": text})];
    }
    content(operation, result)
}

/// Counts the values, without keys. The recursion is bounded by the parser's depth limit.
fn values(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(values).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(values).sum::<usize>(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
    }
}

fn content(operation: Operation, result: &Value) -> Vec<Value> {
    let list = |key: &str| result.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    match operation {
        Operation::Tool => list("content"),
        Operation::ReadResource => {
            list("contents").into_iter().map(|resource| json!({"type": "resource", "resource": resource})).collect()
        }
        Operation::GetPrompt => list("messages").iter().filter_map(|message| message.get("content")).cloned().collect(),
        // A list is data, not content to display.
        Operation::ListResources | Operation::ListPrompts => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use contract::tool::{Operation, ToolId};
    use serde_json::{Map, Value, json};

    use super::{request, returned};

    fn check(operation: Operation, input: Value, expected: Result<(&'static str, Value), &str>) {
        let id = ToolId::parse("mcp:s:t").unwrap();
        let got = request(&id, operation, &input).map(|(method, params)| (method, Value::Object(params)));
        assert_eq!(got, expected.map_err(str::to_owned), "{operation:?} {input}");
    }

    #[test]
    fn a_call_becomes_the_request_of_its_operation() {
        let sly = json!({"cursor": "c", "uri": "u", "name": "n", "arguments": {"a": "b"}, "_meta": {"x": 1}});
        check(
            Operation::Tool,
            json!({"_meta": 1}),
            Ok(("tools/call", json!({"name": "t", "arguments": {"_meta": 1}}))),
        );
        check(Operation::Tool, Value::Null, Ok(("tools/call", json!({"name": "t", "arguments": {}}))));
        check(Operation::Tool, json!([1]), Err("it takes one object argument"));
        check(Operation::ListResources, sly.clone(), Ok(("resources/list", json!({"cursor": "c"}))));
        check(Operation::ReadResource, sly.clone(), Ok(("resources/read", json!({"uri": "u"}))));
        check(Operation::ListPrompts, Value::Object(Map::new()), Ok(("prompts/list", json!({}))));
        check(Operation::GetPrompt, sly, Ok(("prompts/get", json!({"name": "n", "arguments": {"a": "b"}}))));
    }

    #[test]
    fn a_result_is_kept_whole_and_its_content_is_extracted() {
        let text = json!({"type": "text", "text": "a"});
        let resource = json!({"uri": "u", "text": "a"});
        let cases = [
            (Operation::Tool, json!({"content": [text], "isError": true, "x": 1}), vec![text.clone()]),
            (Operation::Tool, json!({"content": "no list", "resultType": "complete"}), vec![]),
            (
                Operation::ReadResource,
                json!({"contents": [resource]}),
                vec![json!({"type": "resource", "resource": resource})],
            ),
            (Operation::GetPrompt, json!({"messages": [{"role": "user", "content": text}, 7]}), vec![text.clone()]),
            (Operation::ListResources, json!({"resources": [resource]}), vec![]),
        ];
        for (operation, result, content) in cases {
            let returned = returned(operation, result.clone()).unwrap();
            assert_eq!((returned.content, returned.details), (content, Some(result)));
        }
        assert!(returned(Operation::Tool, json!([])).is_err());
        assert!(returned(Operation::Tool, json!({"resultType": "input_required"})).is_err());
    }

    #[test]
    fn large_content_is_only_in_the_details() {
        let result = |count: usize| json!({"content": vec![json!({"type": "text"}); count]});
        let small = super::returned(Operation::Tool, result(4_000)).unwrap();
        assert_eq!((small.content.len(), small.details), (4_000, Some(result(4_000))));
        let large = super::returned(Operation::Tool, result(6_000)).unwrap();
        assert_eq!((large.content.len(), large.details), (1, Some(result(6_000))));
    }
}
