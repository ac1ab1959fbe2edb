use contract::tool::{Operation, Repeat};
use serde_json::{Value, json};

use super::{LeftOutTool, ListLimitError, Offer};
use crate::client::spec::{HintTrust, Limits};

const LIMITS: Limits =
    Limits { tools: 3, description_bytes: 10, schema_bytes: 40, total_bytes: 1000, ..Limits::DEFAULT };

fn tool(name: &str, more: Value) -> Value {
    let mut tool = json!({"name": name, "inputSchema": {"type": "object"}});
    for (key, value) in more.as_object().unwrap() {
        tool[key] = value.clone();
    }
    tool
}

/// Checks one tool's `repeat`, or why it is left out.
fn check(hints: HintTrust, listed: Value, expected: Result<Repeat, &str>) {
    let mut offer = Offer::new("s", hints, &LIMITS);
    offer.tool(&listed).unwrap();
    let got = match (offer.tools.first_key_value(), offer.left_out.first()) {
        (Some((_, spec)), None) => Ok(spec.repeat),
        (None, Some(left_out)) => Err(left_out.why.as_str()),
        both => panic!("{both:?}"),
    };
    assert_eq!(got, expected, "{listed}");
}

#[test]
fn hints_allow_repetition_only_from_trusted_servers_and_only_if_it_cannot_undo_a_change() {
    let cases = [
        (json!({"readOnlyHint": true}), Repeat::Always),
        (json!({"readOnlyHint": "true"}), Repeat::Never),
        (json!({"idempotentHint": true}), Repeat::Never),
        (json!({"idempotentHint": true, "destructiveHint": true}), Repeat::Never),
        (json!({"idempotentHint": true, "destructiveHint": false}), Repeat::Additive),
        (json!({"destructiveHint": false}), Repeat::Never),
        (json!(null), Repeat::Never),
    ];
    for (annotations, repeat) in cases {
        let listed = tool("t", json!({"annotations": annotations}));
        check(HintTrust::Trusted, listed.clone(), Ok(repeat));
        check(HintTrust::Ignored, listed, Ok(Repeat::Never));
    }
}

#[test]
fn only_the_tool_that_exceeds_a_limit_is_left_out() {
    let fits = json!({"type": "object", "title": "0123456789ab"});
    assert_eq!(fits.to_string().len(), 40);
    let long = json!({"type": "object", "title": "0123456789abc"});
    check(HintTrust::Ignored, tool("t", json!({"description": "0123456789", "inputSchema": fits})), Ok(Repeat::Never));
    check(
        HintTrust::Ignored,
        tool("t", json!({"description": "0123456789a"})),
        Err("its description is longer than 10 bytes"),
    );
    check(
        HintTrust::Ignored,
        tool("t", json!({"title": "0123456789a"})),
        Err("its description is longer than 10 bytes"),
    );
    check(HintTrust::Ignored, tool("t", json!({"inputSchema": long})), Err("its inputSchema is longer than 40 bytes"));
    check(
        HintTrust::Ignored,
        tool("t", json!({"outputSchema": long})),
        Err("its outputSchema is longer than 40 bytes"),
    );
    check(HintTrust::Ignored, tool("t", json!({"inputSchema": null})), Err("its inputSchema is not an object"));
    check(HintTrust::Ignored, tool("t", json!({"inputSchema": []})), Err("its inputSchema is not an object"));
    check(HintTrust::Ignored, tool("", json!({})), Err("it has no valid name"));
    for name in ["a\nb", "a\u{200b}b", "\u{202e}ba", "a\u{e0041}", " a", "a\u{a0}"] {
        let why = "its name has control or invisible characters, or surrounding whitespace";
        check(HintTrust::Ignored, tool(name, json!({})), Err(why));
    }
    for name in ["mcp:docs:wipe", ":", "a:", ":a"] {
        let why = "its name contains `:`, so it could pass for a tool of another server";
        check(HintTrust::Ignored, tool(name, json!({})), Err(why));
    }
    check(HintTrust::Ignored, tool(&"x".repeat(128), json!({})), Ok(Repeat::Never));
    check(HintTrust::Ignored, tool(&"x".repeat(129), json!({})), Err("its name is longer than 128 bytes"));
    let task = |support: &str| tool("t", json!({"execution": {"taskSupport": support}}));
    for (support, must) in [("required", true), ("optional", false)] {
        check(HintTrust::Ignored, task(support), Ok(Repeat::Never));
        let mut offer = Offer::new("s", HintTrust::Ignored, &LIMITS);
        offer.tool(&task(support)).unwrap();
        assert_eq!(offer.as_tasks.len() == 1, must, "{support}");
    }
    check(HintTrust::Ignored, json!(7), Err("it has no valid name"));
}

#[test]
fn a_list_that_exceeds_a_limit_is_rejected() {
    let mut offer = Offer::new("s", HintTrust::Ignored, &LIMITS);
    for name in ["a", "b", "c"] {
        offer.tool(&tool(name, json!({}))).unwrap();
    }
    assert_eq!(offer.tool(&tool("d", json!({}))), Err(ListLimitError::Tools(3)));
    let mut offer = Offer::new("s", HintTrust::Ignored, &LIMITS);
    assert_eq!(offer.tool(&tool("a", json!({"_meta": "x".repeat(1000)}))), Err(ListLimitError::Bytes(1000)));
}

#[test]
fn json_values_are_limited_per_tool_and_per_server() {
    let limits = Limits::DEFAULT;
    let mut offer = Offer::new("s", HintTrust::Ignored, &limits);
    let with =
        |name: &str, values: usize| tool(name, json!({"inputSchema": {"type": "object", "enum": vec![0; values]}}));
    offer.tool(&with("fits", 9_900)).unwrap();
    offer.tool(&with("large", 10_000)).unwrap();
    assert_eq!(offer.tools.len(), 1);
    let left_out =
        LeftOutTool { tool: "large".to_owned(), why: "its definition has more than 10000 JSON values".to_owned() };
    assert_eq!(offer.left_out, [left_out]);
    let last = (0..20).find_map(|number| offer.tool(&with(&format!("t{number}"), 9_900)).err());
    assert_eq!(last, Some(ListLimitError::Values(200_000)));
}

#[test]
fn the_first_tool_with_a_name_wins_and_operations_come_last() {
    let mut offer = Offer::new("s", HintTrust::Trusted, &LIMITS);
    offer.tool(&tool("resources_list", json!({"description": "Mine."}))).unwrap();
    offer.tool(&tool("resources_list", json!({"description": "Again."}))).unwrap();
    offer.resources();
    offer.prompts();
    let tools: Vec<_> = offer.tools.values().map(|spec| (spec.id.as_str(), spec.operation, spec.repeat)).collect();
    let expected = [
        ("mcp:s:prompts_get", Operation::GetPrompt, Repeat::Always),
        ("mcp:s:prompts_list", Operation::ListPrompts, Repeat::Always),
        ("mcp:s:resources_list", Operation::Tool, Repeat::Never),
        ("mcp:s:resources_read", Operation::ReadResource, Repeat::Always),
    ];
    assert_eq!(tools, expected);
    let twin = LeftOutTool {
        tool: "resources_list".to_owned(),
        why: "another tool of this server has the same name".to_owned(),
    };
    assert_eq!(offer.left_out, [twin.clone(), twin]);
}
