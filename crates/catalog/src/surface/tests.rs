//! What the model sees, and which payloads may be sent.

use contract::config::ToolsConfig;
use contract::error::ErrorCode;
use contract::limits::{
    MAX_AUTO_DIRECT_BYTES, MAX_AUTO_DIRECT_TOOLS, MAX_IDENTIFIER_BYTES, MAX_TOOL_DESCRIPTION_BYTES,
};
use contract::tool::{ToolId, ToolSpec};
use serde_json::{Value, json};

use super::{
    ChosenBy, ChosenSurface, DirectTools, EntryPoint, ExecHold, Origin, Surface, SurfaceChoice, SurfaceConditions,
    SurfaceError, SurfaceOptions, SurfaceReport, SurfaceViolation,
};
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
    Surface::Direct(DirectTools::new(tools(), 0))
}

/// Chooses the surface of a run that follows the contract.
fn by_contract(config: &ToolsConfig, tools: Vec<ToolSpec>, runtime_available: bool) -> Result<Surface, SurfaceError> {
    let conditions =
        SurfaceConditions { options: &SurfaceOptions::default(), runtime_available, allows_nothing: false };
    Surface::choose(config, tools, &conditions).map(|chosen| chosen.surface)
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
        assert_eq!(by_contract(&config(&value), tools(), runtime_available), expected, "{value}");
        // Without tools, there is nothing to hide and no reason to fail. Control tools do not count as tools.
        for none in [vec![], vec![tool("openclaw:core:wait"), tool("openclaw:core:tool_call")]] {
            assert_eq!(by_contract(&config(&value), none, runtime_available), Ok(Surface::None), "{value}");
        }
    }
    assert_eq!(SurfaceError::RuntimeUnavailable.code(), ErrorCode::RuntimeUnavailable);
}

/// The settings of the table below: `tools.codeMode` absent, off and on; `tools.toolSearch` off and on.
const SETTINGS: [(&str, &str); 8] = [
    ("nothing", "{}"),
    ("code null", r#"{"codeMode": {"timeoutMs": 500}}"#),
    ("code off", r#"{"codeMode": false}"#),
    ("code off", r#"{"codeMode": {"enabled": false}}"#),
    ("code on", r#"{"codeMode": true}"#),
    ("search on", r#"{"toolSearch": true}"#),
    ("code off, search on", r#"{"codeMode": false, "toolSearch": true}"#),
    ("code on, search on", r#"{"codeMode": true, "toolSearch": {"mode": "tools"}}"#),
];

/// Returns a letter for a surface: `c`ode, `s`earch, `t`ools of search, `d`irect, `-` none, `!` no runtime.
fn letter(chosen: &Result<ChosenSurface, SurfaceError>) -> char {
    match chosen.as_ref().map(|chosen| &chosen.surface) {
        Ok(Surface::CodeMode) => 'c',
        Ok(Surface::ToolSearchCode) => 's',
        Ok(Surface::ToolSearchTools(_)) => 't',
        Ok(Surface::Direct(_)) => 'd',
        Ok(Surface::None) => '-',
        Err(_) => '!',
    }
}

#[test]
fn settings_flag_runtime_and_tools_decide_together() {
    use EntryPoint::{Contract, Mcp};
    use SurfaceChoice::{Auto, Code, Direct, Search};
    // A column for each entry of SETTINGS; with tools and a runtime, without a runtime, without tools.
    let table: [(EntryPoint, Option<SurfaceChoice>, [&str; 3]); 10] = [
        (Contract, None, ["ddddcssc", "dddd!tt!", "--------"]),
        (Mcp, None, ["ccddcssc", "!!dd!tt!", "cc--cssc"]),
        (Contract, Some(Code), ["cccccccc", "!!!!!!!!", "--------"]),
        (Mcp, Some(Code), ["cccccccc", "!!!!!!!!", "cccccccc"]),
        (Contract, Some(Search), ["ssssssst", "tttttttt", "--------"]),
        (Mcp, Some(Search), ["ssssssst", "tttttttt", "ssssssst"]),
        (Contract, Some(Direct), ["dddddddd", "dddddddd", "--------"]),
        (Mcp, Some(Direct), ["dddddddd", "dddddddd", "--------"]),
        (Contract, Some(Auto), ["dddddddd", "dddddddd", "--------"]),
        (Mcp, Some(Auto), ["dddddddd", "dddddddd", "cccccccc"]),
    ];
    for (entry, wanted, expected) in table {
        let options = SurfaceOptions { entry, wanted, ..SurfaceOptions::default() };
        let row = |tools: &[ToolSpec], runtime_available: bool, allows_nothing: bool| -> String {
            let conditions = SurfaceConditions { options: &options, runtime_available, allows_nothing };
            let choose = |(_, settings): &(&str, &str)| {
                let config = config(&serde_json::from_str(settings).unwrap());
                letter(&Surface::choose(&config, tools.to_vec(), &conditions))
            };
            SETTINGS.iter().map(choose).collect()
        };
        let [with_tools, without_runtime, without_tools] = expected;
        assert_eq!(row(&tools(), true, false), with_tools, "{options:?}");
        assert_eq!(row(&tools(), false, false), without_runtime, "{options:?}, no runtime");
        assert_eq!(row(&[], true, false), without_tools, "{options:?}, no tools");
        // An allow list that is explicitly empty shows nothing, whatever else is wanted.
        for runtime_available in [true, false] {
            assert_eq!(row(&tools(), runtime_available, true), "--------", "{options:?}, empty allow list");
            assert_eq!(row(&[], runtime_available, true), "--------", "{options:?}, empty allow list, no tools");
        }
    }
}

#[test]
fn auto_shows_only_small_catalogs_directly_and_reports_what_the_other_way_costs() {
    let options =
        SurfaceOptions { entry: EntryPoint::Mcp, wanted: Some(SurfaceChoice::Auto), ..SurfaceOptions::default() };
    let many = |count: usize| -> Vec<ToolSpec> { (0..count).map(|at| tool(&format!("mcp:s:t{at:04}"))).collect() };
    let mut long = tool("mcp:s:long");
    long.description = "x".repeat(MAX_AUTO_DIRECT_BYTES);
    let mut fits = tool("mcp:s:fits");
    fits.description = "x".repeat(MAX_AUTO_DIRECT_BYTES - 200);
    let cases = [
        (many(1), 'd', ChosenBy::SmallCatalog),
        (many(MAX_AUTO_DIRECT_TOOLS), 'd', ChosenBy::SmallCatalog),
        (many(MAX_AUTO_DIRECT_TOOLS + 1), 'c', ChosenBy::OtherCatalog),
        (vec![fits], 'd', ChosenBy::SmallCatalog),
        (vec![long], 'c', ChosenBy::OtherCatalog),
        (vec![], 'c', ChosenBy::OtherCatalog),
    ];
    let config = config(&json!({"codeMode": false}));
    for (tools, expected, by) in cases {
        let conditions = SurfaceConditions { options: &options, runtime_available: true, allows_nothing: false };
        let chosen = Surface::choose(&config, tools.clone(), &conditions);
        assert_eq!(letter(&chosen), expected, "{} tools", tools.len());
        let (chosen, catalog) = (chosen.unwrap(), Catalog::new(tools).unwrap());
        assert_eq!(chosen.by, by);
        let visible = chosen.surface.visible_tools(&config, &catalog, ExecHold::Timeout);
        let code = Surface::CodeMode.visible_tools(&config, &catalog, ExecHold::Timeout);
        let report = SurfaceReport::new((&chosen.surface, chosen.by), &visible, &code, &catalog);
        assert_eq!(report.direct_bytes, catalog.direct_bytes());
        assert!(report.code_bytes > 1_000);
        let shown = if expected == 'd' { report.direct_bytes } else { report.code_bytes };
        assert_eq!((report.visible_bytes, report.tools), (shown, catalog.len()));
        assert_eq!(report.to_json()["chosenBy"], by.as_str());
    }
    // Large catalogs are not shown directly if code mode is not available.
    let conditions = SurfaceConditions { options: &options, runtime_available: false, allows_nothing: false };
    assert_eq!(letter(&Surface::choose(&config, many(MAX_AUTO_DIRECT_TOOLS + 1), &conditions)), '!');
}

#[test]
fn only_surfaces_that_can_be_code_mode_need_a_runtime_to_start() {
    let may = |settings: &Value, entry, wanted| {
        Surface::may_be_code_mode(&config(settings), &SurfaceOptions { entry, wanted, ..SurfaceOptions::default() })
    };
    assert!(may(&json!({}), EntryPoint::Mcp, None));
    assert!(!may(&json!({}), EntryPoint::Contract, None));
    assert!(!may(&json!({"codeMode": false}), EntryPoint::Mcp, None));
    assert!(!may(&json!({"toolSearch": true}), EntryPoint::Mcp, None));
    assert!(may(&json!({"toolSearch": true}), EntryPoint::Mcp, Some(SurfaceChoice::Auto)));
    assert!(!may(&json!({"codeMode": true}), EntryPoint::Mcp, Some(SurfaceChoice::Direct)));
}

#[test]
fn a_fallback_has_a_note() {
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
fn control_tools_have_the_parameters_of_the_contract() {
    let config = config(&json!({"codeMode": true}));
    let catalog = Catalog::new(tools()).unwrap();
    let shown = |surface: Surface| {
        let visible = surface.visible_tools(&config, &catalog, ExecHold::Timeout);
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
fn only_allowed_languages_are_offered() {
    let catalog = Catalog::new(tools()).unwrap();
    for (languages, expected) in [
        (json!(["javascript", "typescript"]), json!(["javascript", "typescript"])),
        (json!(["typescript"]), json!(["typescript"])),
        (json!(["javascript"]), json!(["javascript"])),
    ] {
        let config = config(&json!({"codeMode": {"enabled": true, "languages": languages}}));
        let visible = Surface::CodeMode.visible_tools(&config, &catalog, ExecHold::Timeout);
        let language = &visible[0].parameters["properties"]["language"];
        assert_eq!(language["enum"], expected);
        let is_default = language["description"].as_str().unwrap().contains("javascript if omitted");
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
    let surface = Surface::Direct(DirectTools::new(ids.iter().map(|id| tool(id)).collect(), 0));
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
    // Names leave room for the prefix of an entry point, and stay unique.
    let prefixed = DirectTools::new(ids.iter().map(|id| tool(id)).collect(), 24);
    let names: std::collections::BTreeSet<&str> = prefixed.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), ids.len());
    assert!(names.iter().all(|name| name.len() + 24 <= MAX_IDENTIFIER_BYTES), "{names:?}");
    assert_eq!(surface.direct_tool("wait"), None);
    assert_eq!(Surface::CodeMode.direct_tool("exec"), None);
}

#[test]
fn direct_tools_are_fit_to_send() {
    let mut hostile = tool("mcp:s:a");
    hostile.description = format!("One.\r\n\tTwo.\u{0}\u{202e}\n{}", "x".repeat(1 << 20));
    hostile.parameters = json!("no schema");
    let mut untyped = tool("mcp:s:b");
    untyped.parameters = json!({"properties": {"q": true}, "required": ["q"]});
    let surface = Surface::Direct(DirectTools::new(vec![hostile, untyped], 0));
    let visible = surface.visible_tools(&config(&json!({})), &Catalog::new(vec![]).unwrap(), ExecHold::Timeout);
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
    assert_eq!(direct().verify_page(1, 2, &["docs__read", "read"]), Ok(()));
    assert_eq!(direct().verify_page(1, 1, &["docs__read", "read"]), violation(&["docs__read"], &[], &[]));
    assert_eq!(direct().verify_page(2, 1, &[]), violation(&[], &["docs__read"], &[]));
    let error = Surface::CodeMode.verify(&["wait", "wait", "a\u{0}b", "c"]).unwrap_err();
    let expected =
        "the request's tools are not those of this run; extra: `a b`, `c`; missing: `exec`; more than once: `wait`";
    assert_eq!(error.to_string(), expected);
    let many: Vec<String> = (0..10_000).map(|number| format!("{}{number}", "x".repeat(1000))).collect();
    let error = Surface::CodeMode.verify(&many.iter().map(String::as_str).collect::<Vec<_>>()).unwrap_err();
    assert!(error.to_string().len() < 1024, "{error}");
}
