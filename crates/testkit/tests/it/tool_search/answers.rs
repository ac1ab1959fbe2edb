//! Tool Search: results, errors, limits, and tools that are hidden.

use std::sync::Arc;

use codemode::ExecInput;
use codemode::tool_search::is_failure;
use contract::config::CodeMode;
use contract::limits::Limits;
use contract::scope::Scope;
use executor::{Executor, Hook, HookAnswer, HookFuture, Routes, ToolEvent};
use serde_json::{Value, json};

use super::{Bench, EVENT, SECRET, TICKET, host, ids, source};

#[tokio::test]
async fn mcp_tools_are_found_and_called_by_tool_search_but_not_by_code_mode() {
    let bench = Bench::new(json!(true)).await;
    let code = format!(
        "const [hit] = await openclaw.tools.search('calendar'); \
         return [hit.id, hit.source, await openclaw.tools.call('{EVENT}', {{ title: 'Planning' }})]"
    );
    let answer = bench.code(&code).await;
    assert_eq!(answer["value"], json!([EVENT, "mcp", {"title": "Planning"}]), "{answer}");
    assert_eq!(answer["telemetry"]["selectedTools"], json!([{"id": EVENT, "source": "mcp"}]));
    assert_eq!(ids(&bench.search(json!({"query": "calendar"})).await), [EVENT]);
    assert_eq!(bench.call(EVENT, json!({"title": "P"})).await["result"], json!({"title": "P"}));

    let source = format!(
        "const hidden = await tools.call('{EVENT}', {{}}).catch((error) => error.message); \
         return [typeof openclaw, (await tools.search('calendar')).length, hidden]"
    );
    let config = CodeMode::enabled(Limits::DEFAULT);
    let input = ExecInput::javascript(source);
    let result = json!(bench.code_mode.exec(&bench.run.executor, &config, "exec-1", input).await);
    let hidden = format!("`{EVENT}` is an MCP tool; call it as `MCP.calendar.createEvent({{ … }})`");
    assert_eq!(result["value"], json!(["undefined", 0, hidden]), "{result}");
}

#[tokio::test]
async fn a_denied_tool_is_indistinguishable_from_an_unknown_one() {
    let bench = Bench::new(json!(true)).await;
    assert_eq!(ids(&bench.search(json!({"query": "ticket"})).await), [TICKET]);
    for id in [SECRET, "plugin:fake:no_such_thing", "not an id"] {
        let unknown = format!("unknown tool `{id}`; use openclaw.tools.search(query) to find tools");
        let code = format!(
            "const message = (error) => error.message; \
             return [await openclaw.tools.describe('{id}').catch(message), \
                     await openclaw.tools.call('{id}', {{}}).catch(message)]"
        );
        assert_eq!(bench.code(&code).await["value"], json!([unknown, unknown]));
        let unknown = format!("unknown tool `{id}`; use tool_search to find tools");
        for answer in [bench.describe(id).await, bench.call(id, json!({})).await] {
            assert_eq!((&answer["error"], &answer["code"]), (&json!(unknown), &json!("invalid_input")));
            assert!(is_failure(&answer));
            assert_eq!(answer["telemetry"]["selectedTools"], json!([]));
        }
    }
}

#[tokio::test]
async fn searches_respect_the_configured_limits() {
    let bench = Bench::new(json!({"searchDefaultLimit": 3, "maxSearchLimit": 5})).await;
    let code = "const count = async (options) => (await openclaw.tools.search('widget', options)).length; \
                const refused = await count({ limit: 0 }).catch((error) => error.message); \
                return [await count(), await count({ limit: 4 }), await count({ limit: 100 }), refused]";
    assert_eq!(bench.code(code).await["value"], json!([3, 4, 5, "`limit` must be a whole number above 0"]));
    for (input, count) in [
        (json!({"query": "widget"}), 3),
        (json!({"query": "widget", "limit": 4}), 4),
        (json!({"query": "widget", "options": {"limit": 100}}), 5),
    ] {
        assert_eq!(bench.search(input.clone()).await.as_array().map(Vec::len), Some(count), "{input}");
    }
}

#[tokio::test]
async fn logs_and_failures_of_a_cell_are_reported() {
    let bench = Bench::new(json!(true)).await;
    let answer = bench.code("console.log('a', 1); console.warn({ b: 2 }); console.error('c'); return null").await;
    assert_eq!((&answer["ok"], &answer["value"]), (&json!(true), &Value::Null));
    assert_eq!(answer["logs"], json!(["a 1", "{\"b\":2}", "c"]));

    let cases = [
        ("console.log('x'); throw new TypeError('no')", "TypeError: no (at 1:29)", Value::Null),
        ("return await openclaw.tools.call('plugin:fake:broken', {})", "", json!("nested_tool_failed")),
        ("return require('fs')", "", json!("module_access_denied")),
        ("return (", "", json!("invalid_input")),
        ("  ", "`code` is empty; pass the cell's JavaScript or TypeScript source", json!("invalid_input")),
    ];
    for (code, error, error_code) in cases {
        let answer = bench.code(code).await;
        assert_eq!((&answer["ok"], &answer["code"]), (&json!(false), &error_code), "{code}: {answer}");
        assert!(error.is_empty() || answer["error"] == error, "{code}: {answer}");
        assert_eq!(answer["telemetry"]["catalogSize"], 225, "{code}");
        assert_eq!(answer["logs"].as_array().map(Vec::len), Some(usize::from(code.contains("console"))), "{code}");
    }
    let broken = bench.call("plugin:fake:broken", json!({})).await;
    assert_eq!((&broken["error"], &broken["code"]), (&json!("out of paper"), &json!("nested_tool_failed")));
    let missing = bench.call(TICKET, json!({})).await;
    assert_eq!(missing["code"], "nested_tool_failed");
    assert!(missing["error"].as_str().unwrap().contains("title"), "{missing}");
}

#[tokio::test]
async fn a_removed_tool_fails_and_a_yield_does_not_suspend() {
    let mut bench = Bench::new(json!(true)).await;
    assert_eq!(bench.code("await yield_control('later'); return ALL_TOOLS.length").await["value"], json!(0));

    let catalog = Arc::clone(bench.run.executor.catalog());
    bench.run.executor = Executor::new(catalog, Routes::default(), Scope::default());
    let gone = format!("`{TICKET}` is no longer available");
    let code =
        format!("return await openclaw.tools.call('{TICKET}', {{ title: 'x' }}).catch((error) => error.message)");
    assert_eq!(bench.code(&code).await["value"], json!(gone));
    let answer = bench.call(TICKET, json!({"title": "x"})).await;
    assert_eq!((&answer["error"], &answer["code"]), (&json!(gone), &json!("nested_tool_failed")));
}

/// Converts titles to upper case and blocks calendar events.
#[derive(Debug)]
struct Strict;

impl Hook for Strict {
    fn before<'a>(&'a self, event: &'a ToolEvent) -> HookFuture<'a, Result<HookAnswer, String>> {
        let title = event.params["title"].as_str().unwrap_or_default().to_uppercase();
        let answer = match event.tool_id.as_deref() {
            Some(EVENT) => HookAnswer { block: Some("no meetings".to_owned()), ..HookAnswer::default() },
            _ => HookAnswer { params: Some(json!({ "title": title })), ..HookAnswer::default() },
        };
        Box::pin(async { Ok(answer) })
    }
}

#[tokio::test]
async fn hooks_apply_to_the_final_call() {
    let mut strict = host(json!({"toolSearch": true}), vec![source()]);
    strict.local.hooks.push(Arc::new(Strict));
    let bench = Bench::of(strict).await;
    let blocked = "blocked by a before_tool_call hook: no meetings";
    let code = format!(
        "const call = (id) => openclaw.tools.call(id, {{ title: 'crash' }}).catch((error) => error.message); \
         return [await call('{TICKET}'), await call('{EVENT}')]"
    );
    assert_eq!(bench.code(&code).await["value"], json!([{"title": "CRASH"}, blocked]));
    assert_eq!(bench.call(TICKET, json!({"title": "crash"})).await["result"], json!({"title": "CRASH"}));
    assert_eq!(bench.call(EVENT, json!({"title": "crash"})).await["error"], blocked);
}
