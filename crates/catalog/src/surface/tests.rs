//! Tests of the tools that the model is shown, and of the check of the final payload.

use contract::config::ToolsConfig;
use contract::error::ErrorCode;
use contract::limits::{MAX_IDENTIFIER_BYTES, MAX_TOOL_DESCRIPTION_BYTES};
use contract::tool::{ToolId, ToolSpec};
use serde_json::{Value, json};

use super::{Origin, Surface, SurfaceError, SurfaceViolation};
use crate::Catalog;

fn tool(id: &str) -> ToolSpec {
    ToolSpec::new(ToolId::parse(id).unwrap(), "Does it.", json!({"type": "object"}))
}

fn tools() -> Vec<ToolSpec> {
    vec![tool("mcp:docs:read"), tool("openclaw:core:read"), tool("openclaw:core:exec")]
}

fn config(value: &Value) -> ToolsConfig {
    ToolsConfig::resolve(value).unwrap()
}

fn direct() -> Surface {
    Surface::Direct(vec![tool("openclaw:core:exec"), tool("openclaw:core:read"), tool("mcp:docs:read")])
}

#[test]
fn the_surface_follows_the_configuration() {
    let code_mode = json!({"codeMode": true});
    let both = json!({"codeMode": true, "toolSearch": true});
    let unavailable = Err(SurfaceError::RuntimeUnavailable);
    let cases = [
        (json!({}), true, Ok(direct())),
        (json!({"codeMode": {"timeoutMs": 500}}), true, Ok(direct())),
        (json!({"codeMode": false}), false, Ok(direct())),
        (code_mode.clone(), true, Ok(Surface::CodeMode)),
        (code_mode, false, unavailable.clone()),
        (both.clone(), true, Ok(Surface::CodeMode)),
        (both, false, unavailable),
        (json!({"toolSearch": true}), true, Ok(Surface::ToolSearchCode)),
        (json!({"toolSearch": true}), false, Ok(Surface::ToolSearchTools(Origin::NoRuntime))),
        (json!({"toolSearch": {"mode": "tools"}}), true, Ok(Surface::ToolSearchTools(Origin::Configured))),
        (json!({"toolSearch": {"mode": "tools"}}), false, Ok(Surface::ToolSearchTools(Origin::Configured))),
    ];
    for (value, runtime_available, expected) in cases {
        assert_eq!(Surface::choose(&config(&value), tools(), runtime_available), expected, "{value}");
        // Without tools there is nothing to show and no error. Control tools do not count as tools.
        for none in [vec![], vec![tool("openclaw:core:wait"), tool("openclaw:core:tool_call")]] {
            assert_eq!(Surface::choose(&config(&value), none, runtime_available), Ok(Surface::None), "{value}");
        }
    }
    assert_eq!(SurfaceError::RuntimeUnavailable.code(), ErrorCode::RuntimeUnavailable);
}

#[test]
fn a_fallback_is_reported() {
    let surfaces = [
        (Surface::None, false),
        (direct(), false),
        (Surface::ToolSearchCode, false),
        (Surface::ToolSearchTools(Origin::Configured), false),
        (Surface::ToolSearchTools(Origin::NoRuntime), true),
        (Surface::CodeMode, false),
    ];
    for (surface, has_note) in surfaces {
        assert_eq!(surface.note().is_some(), has_note, "{surface:?}");
    }
}

#[test]
fn control_tools_take_what_the_contract_says() {
    let config = config(&json!({"codeMode": true}));
    let catalog = Catalog::new(tools()).unwrap();
    let shown = |surface: Surface| {
        let visible = surface.visible_tools(&config, &catalog);
        let names: Vec<&str> = visible.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, surface.names());
        assert_eq!(surface.verify(&names), Ok(()));
        assert!(visible.iter().all(|tool| !tool.description.is_empty()));
        let fields = |schema: &Value| {
            let properties = schema["properties"].as_object().unwrap();
            properties
                .iter()
                .map(|(name, field)| format!("{name}: {}", field["type"].as_str().unwrap()))
                .collect::<Vec<_>>()
        };
        let each = visible.iter().map(|tool| json!([tool.name, fields(&tool.parameters), tool.parameters["required"]]));
        Value::Array(each.collect())
    };
    assert_eq!(
        shown(Surface::CodeMode),
        json!([
            ["exec", ["code: string", "command: string", "language: string"], null],
            ["wait", ["runId: string"], ["runId"]]
        ])
    );
    assert_eq!(shown(Surface::ToolSearchCode), json!([["tool_search_code", ["code: string"], ["code"]]]));
    assert_eq!(
        shown(Surface::ToolSearchTools(Origin::Configured)),
        json!([
            ["tool_search", ["query: string", "limit: integer"], ["query"]],
            ["tool_describe", ["id: string"], ["id"]],
            ["tool_call", ["id: string", "args: object"], ["id"]],
        ])
    );
    assert_eq!(shown(Surface::None), json!([]));
}

#[test]
fn the_languages_offered_are_those_allowed() {
    let catalog = Catalog::new(tools()).unwrap();
    for (languages, expected) in [
        (json!(["javascript", "typescript"]), json!(["javascript", "typescript"])),
        (json!(["typescript"]), json!(["typescript"])),
        (json!(["javascript"]), json!(["javascript"])),
    ] {
        let config = config(&json!({"codeMode": {"enabled": true, "languages": languages}}));
        let visible = Surface::CodeMode.visible_tools(&config, &catalog);
        let language = &visible[0].parameters["properties"]["language"];
        assert_eq!(language["enum"], expected);
        let is_default = language["description"].as_str().unwrap().contains("javascript when left out");
        assert_eq!(is_default, expected[0] == "javascript");
    }
}

#[test]
fn direct_tools_have_unique_names() {
    let long = "x".repeat(100);
    let ids = [
        "mcp:docs:read",
        "client:app:read",
        "openclaw:core:read",
        "plugin:a:read",
        "plugin:a:docs__read",
        "mcp:a.b:c d",
        &format!("mcp:s:{long}"),
        &format!("mcp:s:{long}y"),
    ];
    let surface = Surface::choose(&config(&json!({})), ids.iter().map(|id| tool(id)).collect(), true).unwrap();
    let expected = [
        ("read", "openclaw:core:read".to_owned()),
        ("docs__read", "plugin:a:docs__read".to_owned()),
        ("read2", "plugin:a:read".to_owned()),
        ("a_b__c_d", "mcp:a.b:c d".to_owned()),
        ("docs__read2", "mcp:docs:read".to_owned()),
        (&format!("s__{}", &long[..61]), format!("mcp:s:{long}")),
        (&format!("s__{}2", &long[..53]), format!("mcp:s:{long}y")),
        ("read3", "client:app:read".to_owned()),
    ];
    assert_eq!(surface.names(), expected.each_ref().map(|(name, _)| *name));
    for (name, id) in expected {
        assert!(name.len() <= MAX_IDENTIFIER_BYTES, "{name}");
        assert_eq!(surface.direct_tool(name).map(|tool| tool.id.as_str()), Some(id.as_str()));
    }
    assert_eq!(surface.direct_tool("wait"), None);
    assert_eq!(Surface::CodeMode.direct_tool("exec"), None);
}

#[test]
fn direct_tools_are_cleaned_and_bounded() {
    let mut hostile = tool("mcp:s:a");
    hostile.description = format!("One.\r\n\tTwo.\u{0}\u{202e}\n{}", "x".repeat(1 << 20));
    hostile.parameters = json!("no schema");
    let mut untyped = tool("mcp:s:b");
    untyped.parameters = json!({"properties": {"q": true}, "required": ["q"]});
    let surface = Surface::Direct(vec![hostile, untyped]);
    let visible = surface.visible_tools(&config(&json!({})), &Catalog::new(vec![]).unwrap());
    assert!(visible[0].description.starts_with("One.\n Two.\nxxx"));
    assert_eq!(visible[0].description.len(), MAX_TOOL_DESCRIPTION_BYTES);
    assert_eq!(visible[0].parameters, json!({"type": "object", "properties": {}}));
    assert_eq!(visible[1].parameters, json!({"type": "object", "properties": {"q": true}, "required": ["q"]}));
}

#[test]
fn a_payload_has_exactly_the_surfaces_tools() {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let violation = |extra: &[&str], missing: &[&str], repeated: &[&str]| {
        Err(SurfaceViolation { extra: names(extra), missing: names(missing), repeated: names(repeated) })
    };
    let cases: [(Surface, &[&str], _); 9] = [
        (Surface::CodeMode, &["wait", "exec"], Ok(())),
        (Surface::CodeMode, &["exec"], violation(&[], &["wait"], &[])),
        (Surface::CodeMode, &["exec", "wait", "read"], violation(&["read"], &[], &[])),
        (Surface::CodeMode, &["exec", "exec", "wait"], violation(&[], &[], &["exec"])),
        (Surface::CodeMode, &[], violation(&[], &["exec", "wait"], &[])),
        (Surface::ToolSearchCode, &["exec", "exec"], violation(&["exec"], &["tool_search_code"], &[])),
        (Surface::None, &[], Ok(())),
        (Surface::None, &["exec"], violation(&["exec"], &[], &[])),
        (direct(), &["read", "exec", "docs__read"], Ok(())),
    ];
    for (surface, payload, expected) in cases {
        assert_eq!(surface.verify(payload), expected, "{surface:?} {payload:?}");
    }
    let error = Surface::CodeMode.verify(&["wait", "wait", "a\u{0}b", "c"]).unwrap_err();
    let expected =
        "the request's tools are not those of this run; extra: `a b`, `c`; missing: `exec`; more than once: `wait`";
    assert_eq!(error.to_string(), expected);
    let many: Vec<String> = (0..10_000).map(|number| format!("{}{number}", "x".repeat(1000))).collect();
    let error = Surface::CodeMode.verify(&many.iter().map(String::as_str).collect::<Vec<_>>()).unwrap_err();
    assert!(error.to_string().len() < 1024, "{error}");
}
