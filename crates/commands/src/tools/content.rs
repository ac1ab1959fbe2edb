//! The result of a tool call as text for people: text as it is, anything else in a line.

use contract::text;
use serde_json::Value;

use crate::render;
use crate::size::size;

/// The longest name or type of a block that is shown.
const MAX_NAME_CHARS: usize = 200;

/// Returns the result's content. Structured content is shown only if there is no other, because servers that send it
/// also send it as text.
pub(super) fn readable(result: &Value) -> String {
    let blocks = ["content", "contents"].iter().find_map(|name| result.get(name)?.as_array());
    let shown: Vec<String> = blocks.into_iter().flatten().map(block).collect();
    match (shown.as_slice(), result.get("structuredContent")) {
        ([], Some(structured)) => format!("{}\n", render::pretty(&structured.to_string())),
        ([], None) if blocks.is_some() => String::new(),
        ([], None) => format!("{}\n", render::pretty(&result.to_string())),
        (shown, _) => shown.iter().map(|text| format!("{}\n", text.trim_end_matches('\n'))).collect(),
    }
}

fn block(block: &Value) -> String {
    let field = |name: &str| block.get(name).and_then(Value::as_str);
    let resource = block.get("resource").unwrap_or(block);
    let of_resource = |name: &str| resource.get(name).and_then(Value::as_str);
    if let Some(text) = of_resource("text") {
        return render::printable(text);
    }
    let kind = field("type").unwrap_or("resource");
    let data = field("data").or_else(|| of_resource("blob"));
    let name = field("name").or_else(|| of_resource("uri")).or_else(|| field("uri"));
    match (kind, data) {
        (_, Some(data)) => {
            let mime = field("mimeType").or_else(|| of_resource("mimeType")).unwrap_or("unknown type");
            described(kind, &[name, Some(mime), Some(&size(decoded_bytes(data) as u64))])
        }
        ("resource_link", None) => described("link", &[field("title").or(name), field("uri"), field("mimeType")]),
        _ => render::pretty(&block.to_string()),
    }
}

/// Returns a line such as `[image: image/png, 12 kB]`.
fn described(kind: &str, parts: &[Option<&str>]) -> String {
    let mut shown: Vec<String> = parts.iter().flatten().map(|part| text::line(part, MAX_NAME_CHARS)).collect();
    shown.dedup();
    format!("[{}: {}]", text::line(kind, MAX_NAME_CHARS), shown.join(", "))
}

/// Returns how many bytes a base64 text stands for.
fn decoded_bytes(base64: &str) -> usize {
    let padding = base64.bytes().rev().take_while(|byte| *byte == b'=').count();
    (base64.len() / 4 * 3).saturating_sub(padding.min(2))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::readable;

    #[test]
    fn text_is_printed_once_and_other_content_is_described_in_a_line() {
        let link = json!({"type": "resource_link", "uri": "file:///a", "name": "a", "mimeType": "text/plain"});
        let cases = [
            (json!({"content": [{"type": "text", "text": "a\nb\n"}], "structuredContent": {"x": 1}}), "a\nb\n"),
            (
                json!({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "\u{1b}[31m"}]}),
                "a\n\\u{1b}[31m\n",
            ),
            (json!({"content": [], "structuredContent": {"x": 1}}), "{\n  \"x\": 1\n}\n"),
            (json!({"content": []}), ""),
            (
                json!({"content": [{"type": "image", "mimeType": "image/png", "data": "AAAA".repeat(1_000)}]}),
                "[image: image/png, 3 kB]\n",
            ),
            (
                json!({"content": [{"type": "audio", "mimeType": "audio/wav", "data": "AA=="}]}),
                "[audio: audio/wav, 1 byte]\n",
            ),
            (json!({"content": [link]}), "[link: a, file:///a, text/plain]\n"),
            (json!({"content": [{"type": "resource", "resource": {"uri": "u", "text": "inside"}}]}), "inside\n"),
            (
                json!({"content": [{"type": "resource", "resource": {"uri": "u", "blob": "AAAA"}}]}),
                "[resource: u, unknown type, 3 bytes]\n",
            ),
            (json!({"contents": [{"uri": "u", "text": "read"}]}), "read\n"),
            (json!({"messages": 1}), "{\n  \"messages\": 1\n}\n"),
            (json!({"content": [{"type": "new"}]}), "{\n  \"type\": \"new\"\n}\n"),
        ];
        for (result, expected) in cases {
            assert_eq!(readable(&result), expected, "{result}");
        }
    }
}
