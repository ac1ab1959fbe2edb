//! Namespaces of plugins, from registration to a call in a cell.

use std::sync::Arc;

use catalog::{InputMapping, NamespaceError, Registration, Registry, ScopeMaker, ScopeValue};
use executor::run::prepare;
use serde_json::json;

use crate::fake_tools::{Behavior, FakeTools};
use crate::recording_hook::{HookBehavior, RecordingHook};
use crate::world::{Parts, World, request, value};

const LIST: &str = "plugin:github:list_issues";
const UPDATE: &str = "plugin:github:update_issue";

fn registration(scope: ScopeMaker) -> Registration {
    Registration {
        id: "github-issues".to_owned(),
        global_name: "Issues".to_owned(),
        description: "Issues of this repository.".to_owned(),
        prompt: Some("Use Issues.list(params) and Issues.update(number, patch).".to_owned()),
        required_tool_names: vec!["list_issues".to_owned(), "update_issue".to_owned()],
        scope,
    }
}

fn issues() -> Registration {
    let shared = ScopeValue::Json(json!({"labels": ["bug", "docs"]}));
    registration(ScopeMaker::new(move |context| {
        let positional = InputMapping::Positional(vec!["number".to_owned(), "patch".to_owned()]);
        let custom = InputMapping::Custom(Arc::new(|arguments| json!({"over": arguments})));
        Ok(ScopeValue::object([
            ("repository", ScopeValue::Json(context.config["repository"].clone())),
            ("agent", ScopeValue::Json(json!(context.scope.agent_id))),
            ("one", shared.clone()),
            ("other", ScopeValue::Array(vec![shared.clone(), ScopeValue::Json(json!(null))])),
            ("list", ScopeValue::tool("list_issues")),
            (
                "deep",
                ScopeValue::object([(
                    "update",
                    ScopeValue::Tool { name: "update_issue".to_owned(), input: positional },
                )]),
            ),
            ("custom", ScopeValue::Tool { name: "list_issues".to_owned(), input: custom }),
        ]))
    }))
}

fn parts(fakes: &Arc<FakeTools>) -> Parts {
    Parts { sources: vec![fakes.clone()], namespaces: vec![("github", issues())], ..Parts::default() }
}

fn fakes() -> Arc<FakeTools> {
    FakeTools::new([(LIST, Behavior::Echo), (UPDATE, Behavior::Echo), ("openclaw:core:other", Behavior::Echo)])
}

/// Whether the description of `exec` contains the prompt of the namespace.
fn describes_namespace(world: &World) -> bool {
    world.run().prepared.visible[0].description.contains("Use Issues.list(params)")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_is_described_only_if_its_tools_are_visible() {
    let shown = parts(&fakes()).open().await;
    assert!(describes_namespace(&shown));
    assert_eq!(
        shown.run().value("return [typeof Issues, Object.keys(namespaces)]").await,
        json!(["object", ["MCP", "Issues"]])
    );
    let denied = json!({"codeMode": true, "deny": [UPDATE]});
    let hidden = Parts { tools: denied, ..parts(&fakes()) }.open().await;
    assert!(!describes_namespace(&hidden));
    assert_eq!(
        hidden.run().value("return [typeof Issues, Object.keys(namespaces)]").await,
        json!(["undefined", ["MCP"]])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn same_named_tools_of_another_plugin_do_not_enable_a_namespace() {
    let impostor =
        FakeTools::new([("plugin:evil:list_issues", Behavior::Echo), ("plugin:evil:update_issue", Behavior::Echo)]);
    let world = parts(&impostor).open().await;
    assert!(!describes_namespace(&world));
    assert_eq!(world.run().value("return typeof Issues").await, "undefined");
}

#[tokio::test(flavor = "multi_thread")]
async fn namespace_values_arrive_complete_and_frozen() {
    let world = parts(&fakes()).open().await;
    let cell = "return [Issues.repository, Issues.agent, Issues.one.labels[1], Issues.other[0].labels, Issues.other[1],
                        namespaces.Issues === Issues, Object.isFrozen(Issues.one.labels), Issues.__proto__ === undefined]";
    let expected = json!(["o/r", "main", "docs", ["bug", "docs"], null, true, true, true]);
    assert_eq!(world.run().value(cell).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_call_is_dispatched_as_a_call_of_its_tool() {
    let fakes = fakes();
    let hook = RecordingHook::new("", HookBehavior::Allow);
    let world = Parts { hooks: vec![hook.clone()], ..parts(&fakes) }.open().await;
    let cell = "return [await Issues.list({ state: 'open' }), await namespaces.Issues.list(), await Issues.deep.update(7, { title: 't' }, 'x'),
                        await Issues.custom(1, 2)]";
    let result = world.run().exec(cell).await;
    let expected = json!([{"state": "open"}, {}, {"number": 7, "patch": {"title": "t"}}, {"over": [1, 2]}]);
    assert_eq!(value(&result), &expected);
    assert_eq!(fakes.called(), [LIST, LIST, UPDATE, LIST]);
    assert_eq!(result["telemetry"]["nestedToolIds"], json!([LIST, UPDATE]));
    let seen: Vec<_> = hook.before().into_iter().filter_map(|event| event.tool_id).collect();
    assert_eq!(seen, fakes.called());
    let entries = world.export("session").await;
    assert_eq!(
        entries.iter().filter(|entry| entry["kind"] == "tool_call" && entry["parentToolCallId"] == "exec-1").count(),
        4
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_can_catch_a_failed_namespace_call() {
    let failing = FakeTools::new([(LIST, Behavior::Fail("rate limited")), (UPDATE, Behavior::Echo)]);
    let world = parts(&failing).open().await;
    let cell = "try { await Issues.list() } catch (error) { return [error instanceof Error, error.message] }";
    assert_eq!(world.run().value(cell).await, json!([true, "rate limited"]));
    let uncaught = world.run().exec("return await Issues.list()").await;
    assert_eq!(
        (&uncaught["code"], uncaught["error"].as_str().unwrap().contains(LIST)),
        (&json!("nested_tool_failed"), true)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn only_declared_tools_can_be_called_through_a_namespace() {
    let fakes = fakes();
    let world = parts(&fakes).open().await;
    // Names in the guest are not a security boundary, but undeclared ones do not even exist there.
    let cell = "return ['nothing', 'other', 'constructor', '__proto__'].map(name => typeof Issues[name])";
    assert_eq!(world.run().value(cell).await, json!(["undefined", "object", "undefined", "undefined"]));
    // The host rejects forged paths, too.
    let run = prepare(&world.host, &request("main/session/run")).unwrap();
    let catalog = run.executor.catalog();
    for (global, path) in [
        ("Issues", &["other"][..]),
        ("Issues", &["nothing"]),
        ("Issues", &[]),
        ("Issues", &["list", "list"]),
        ("Issues", &["deep"]),
        ("github-issues", &["list"]),
        ("Forged", &["list"]),
        ("Issues", &["__proto__", "list"]),
        ("Issues", &["deep\0update"]),
    ] {
        assert!(
            matches!(catalog.namespace_call(global, path, &[]), Err(NamespaceError::NotCallable(_))),
            "{global} {path:?}"
        );
    }
    assert!(catalog.namespace_call("Issues", &["deep", "update"], &[]).is_ok());
    // A namespace with a path to an undeclared tool is refused with the reason.
    let sneaky = registration(ScopeMaker::fixed(ScopeValue::object([("x", ScopeValue::tool("other"))])));
    let world = Parts { namespaces: vec![("github", sneaky)], ..parts(&fakes) }.open().await;
    let run = world.run();
    assert!(matches!(run.prepared.refused_namespaces.as_slice(), [NamespaceError::UndeclaredTool { .. }]));
    assert_eq!(run.value("return typeof Issues").await, "undefined");
    assert_eq!(fakes.called(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_namespace_call_resumes_through_wait() {
    let fakes = FakeTools::new([(LIST, Behavior::WaitForGate), (UPDATE, Behavior::Echo)]);
    let tools = json!({"codeMode": {"enabled": true, "timeoutMs": 300, "maxWaitMs": 5000}});
    let world = Parts { tools, ask: vec!["update_issue"], ..parts(&fakes) }.open().await;
    let run = world.run();
    let (run_id, waiting) =
        run.suspend("const list = await Issues.list({ n: 1 }); return [list, await Issues.deep.update(1, {})]").await;
    let pending = &waiting["pendingToolCalls"][0];
    assert_eq!((&pending["method"], &pending["toolId"]), (&json!("namespace"), &json!(LIST)), "{waiting}");
    fakes.gate.notify_one();
    let asked = run.wait(&run_id).await;
    let pending = &asked["pendingToolCalls"][0];
    assert_eq!((&pending["state"], &pending["toolId"]), (&json!("approval"), &json!(UPDATE)), "{asked}");
    world.approve_all(store::ApprovalScope::Once).await;
    assert_eq!(value(&run.wait(&run_id).await), &json!([{"n": 1}, {"number": 1, "patch": {}}]));
}

#[tokio::test(flavor = "multi_thread")]
async fn removing_a_plugin_removes_its_namespace() {
    let fakes = fakes();
    let mut world = parts(&fakes).open().await;
    let cell = "await yield_control(); return await Issues.list().catch(error => error.message)";
    let (run_id, _) = world.run().suspend(cell).await;
    assert_eq!(
        (world.host.local.namespaces.clear_plugin("other"), world.host.local.namespaces.clear_plugin("github")),
        (0, 1)
    );
    let result = world.run().wait(&run_id).await;
    assert_eq!(value(&result), "`Issues.list` is not a function of this run's namespaces");
    assert!(!describes_namespace(&world));
    assert_eq!(world.run().value("return typeof Issues").await, "undefined");
    assert_eq!(fakes.called(), [""; 0]);
}

#[test]
fn reserved_or_invalid_namespace_names_are_refused() {
    for name in
        ["tools", "namespaces", "text", "json", "yield_control", "__openclaw_x", "MCP", "API", "1st", "a-b", "class"]
    {
        let refused = Registry::default().register("github", Registration { global_name: name.to_owned(), ..issues() });
        assert!(refused.is_err(), "{name}");
    }
}
