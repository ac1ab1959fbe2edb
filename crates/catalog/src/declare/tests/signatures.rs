//! Signatures: inputs on one line, as search results show them.

use serde_json::{Value, json};

use crate::declare::render::signature;

fn edit(more: Value) -> Value {
    let text = json!({"type": "string"});
    let edits = json!({"type": "array", "items": {"type": "object", "properties": {"oldText": text, "newText": text},
        "required": ["oldText", "newText"]}});
    let mut properties = json!({"path": text, "edits": edits});
    for (name, schema) in more.as_object().unwrap() {
        properties[name] = schema.clone();
    }
    json!({"type": "object", "properties": properties, "required": ["path", "edits"]})
}

#[test]
fn a_comment_does_not_hide_the_rest_of_the_line() {
    let dry_run = json!({"dryRun": {"type": "boolean", "default": false, "description": "Only show the changes"}});
    assert_eq!(
        signature(&edit(dry_run)),
        "{ path: string; edits: { oldText: string; newText: string }[]; dryRun?: boolean; /* default false */ }"
    );
    let format = json!({"format": {"type": "string", "default": "*/ // evil"}});
    let shown = signature(&edit(format));
    assert!(shown.ends_with("/* default \"*\\/ // evil\" */ }"), "{shown}");
}

#[test]
fn a_short_input_has_no_line_breaks_and_no_line_comments() {
    let limit = json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 9}}});
    assert_eq!(signature(&limit), "{ n?: number /* integer, 1..9 */ }");
    assert_eq!(signature(&json!({})), "Record<string, unknown>");
}
