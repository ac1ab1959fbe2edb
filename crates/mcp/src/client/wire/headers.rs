//! The HTTP headers `Mcp-Method`, `Mcp-Name` and `Mcp-Param-*`: they repeat parts of a request, so that proxies need
//! not parse its body.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

/// The first MCP revision with these headers. Revisions are dates, so they compare as text.
const SINCE: &str = "2026-07-28";

/// Returns the headers of a message, or none if it has no method or the revision does not define them.
/// `header_arguments` are the arguments that the tool's schema marks with `x-mcp-header`: header name and value.
pub(super) fn for_message(
    message: &Value,
    version: Option<&str>,
    header_arguments: Vec<(String, String)>,
) -> Vec<(String, String)> {
    let (Some(method), true) = (message.get("method").and_then(Value::as_str), version >= Some(SINCE)) else {
        return Vec::new();
    };
    let mut headers = vec![("mcp-method".to_owned(), method.to_owned())];
    let key = match method {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
        _ => "",
    };
    if let Some(name) = message.get("params").and_then(|params| params.get(key)).and_then(Value::as_str) {
        headers.push(("mcp-name".to_owned(), encoded(name)));
    }
    headers.extend(header_arguments.into_iter().map(|(name, value)| (format!("mcp-param-{name}"), encoded(&value))));
    headers
}

/// Returns the value itself if it is valid in a header and cannot be mistaken for an encoded one, or else
/// `=?base64?…?=`.
fn encoded(value: &str) -> String {
    let plain = value.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    let looks_encoded = value.starts_with("=?base64?") && value.ends_with("?=");
    if plain && value.trim() == value && !looks_encoded {
        return value.to_owned();
    }
    format!("=?base64?{}?=", BASE64_STANDARD.encode(value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{encoded, for_message};

    #[test]
    fn headers_are_sent_only_since_the_revision_that_defines_them() {
        let call = json!({"method": "tools/call", "params": {"name": "größe"}});
        assert_eq!(for_message(&call, Some("2025-11-25"), Vec::new()), []);
        assert_eq!(for_message(&call, None, Vec::new()), []);
        let arguments = vec![("Region".to_owned(), "eu".to_owned())];
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected = [
            pair("mcp-method", "tools/call"),
            pair("mcp-name", "=?base64?Z3LDtsOfZQ==?="),
            pair("mcp-param-Region", "eu"),
        ];
        assert_eq!(for_message(&call, Some("2026-07-28"), arguments), expected);
        let list = json!({"method": "tools/list", "params": {"name": "no"}});
        assert_eq!(for_message(&list, Some("2026-07-28"), Vec::new()), [pair("mcp-method", "tools/list")]);
        assert_eq!(for_message(&json!({"id": 1, "result": {}}), Some("2026-07-28"), Vec::new()), []);
        for (value, is_encoded) in [("a b", false), (" a", true), ("a\n", true), ("=?base64?YQ==?=", true), ("", false)]
        {
            assert_eq!(encoded(value) != value, is_encoded, "{value:?}");
        }
    }
}
