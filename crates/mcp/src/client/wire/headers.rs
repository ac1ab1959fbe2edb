//! The HTTP headers that repeat parts of a message for newer servers, so that proxies need not parse the body.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

/// The first revision with these headers.
const SINCE: &str = "2026-07-28";

pub(super) fn standard(
    message: &Value,
    version: Option<&str>,
    promoted: Vec<(String, String)>,
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
    headers.extend(promoted.into_iter().map(|(name, value)| (format!("mcp-param-{name}"), encoded(&value))));
    headers
}

/// Returns the value itself if a header can carry it, or else its base64 encoding.
fn encoded(value: &str) -> String {
    let plain = value.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    let looks_wrapped = value.starts_with("=?base64?") && value.ends_with("?=");
    if plain && value.trim() == value && !looks_wrapped {
        return value.to_owned();
    }
    format!("=?base64?{}?=", BASE64_STANDARD.encode(value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{encoded, standard};

    #[test]
    fn headers_repeat_the_message_only_since_the_revision_that_defines_them() {
        let call = json!({"method": "tools/call", "params": {"name": "größe"}});
        assert_eq!(standard(&call, Some("2025-11-25"), Vec::new()), []);
        assert_eq!(standard(&call, None, Vec::new()), []);
        let promoted = vec![("Region".to_owned(), "eu".to_owned())];
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected = [
            pair("mcp-method", "tools/call"),
            pair("mcp-name", "=?base64?Z3LDtsOfZQ==?="),
            pair("mcp-param-Region", "eu"),
        ];
        assert_eq!(standard(&call, Some("2026-07-28"), promoted), expected);
        let list = json!({"method": "tools/list", "params": {"name": "no"}});
        assert_eq!(standard(&list, Some("2026-07-28"), Vec::new()), [pair("mcp-method", "tools/list")]);
        assert_eq!(standard(&json!({"id": 1, "result": {}}), Some("2026-07-28"), Vec::new()), []);
        for (value, wrapped) in [("a b", false), (" a", true), ("a\n", true), ("=?base64?YQ==?=", true), ("", false)] {
            assert_eq!(encoded(value) != value, wrapped, "{value:?}");
        }
    }
}
