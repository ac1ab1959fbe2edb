//! Hooks apply to every call: the cell itself, its nested calls, and direct calls.

use std::sync::Arc;
use std::time::{Duration, Instant};

use contract::cell::Language;
use executor::{CallEnd, Hook, Outcome, ProgressSink, ToolKind, ToolResult};
use serde_json::{Value, json};

use crate::fake_tools::{Behavior, FakeTools, spec};
use crate::recording_hook::{HookBehavior, RecordingHook};
use crate::world::{Parts, Run, World, code, scope, value};

const CALL: &str = "return await tools.call('openclaw:core:read', { path: 'a' }).catch(error => error.message)";

async fn world(tool: &'static str, behavior: HookBehavior) -> (World, Arc<FakeTools>, Arc<RecordingHook>) {
    let fakes = FakeTools::new([("openclaw:core:write", Behavior::Echo)]);
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
    fakes.put(contract::tool::ToolSpec { parameters: schema, ..spec("openclaw:core:read") }, Behavior::Echo);
    let hook = RecordingHook::new(tool, behavior);
    let parts = Parts { sources: vec![fakes.clone()], hooks: vec![hook.clone() as Arc<dyn Hook>], ..Parts::default() };
    (parts.open().await, fakes, hook)
}

/// Makes the call of [`CALL`] directly, without a cell.
async fn directly(run: &Run) -> Outcome {
    let input = json!({"path": "a"});
    let store = run.code_mode.store();
    let executor = &run.prepared.executor;
    match executor
        .call_directly(store, "call-1", "openclaw:core:read", input, ProgressSink::default())
        .await
        .unwrap()
        .end
    {
        CallEnd::Settled(outcome) => outcome,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_receives_the_scope_and_origin_of_each_call() {
    let (world, fakes, hook) = world("read", HookBehavior::Allow).await;
    let run = world.run();
    run.exec_with("exec-9", json!({ "code": CALL })).await;
    directly(&run).await;
    let events = hook.before();
    let ids: Vec<&str> = events.iter().map(|event| event.tool_call_id.as_str()).collect();
    assert_eq!(ids, ["exec-9", "exec-9:1", "call-1:1"]);
    for event in &events {
        let scope = &event.scope;
        assert_eq!((scope.agent_id.as_str(), scope.session_id.as_str()), ("main", "session"), "{event:?}");
        assert_eq!(scope.session_key.as_deref(), Some("agent:main:session"), "{event:?}");
        assert_eq!(scope.agent_run_id, "run", "{event:?}");
        assert_eq!((scope.sender.as_deref(), scope.channel.as_deref()), (Some("ada"), Some("matrix")), "{event:?}");
    }
    let kinds: Vec<_> = events.iter().map(|event| event.tool_kind).collect();
    assert_eq!(kinds, [Some(ToolKind::CodeModeExec), None, None]);
    assert_eq!(ToolKind::CodeModeExec.as_str(), "code_mode_exec");
    assert_eq!(events[1].tool_id.as_deref(), Some("openclaw:core:read"));
    assert_eq!(events[1].params, json!({"path": "a"}));
    // The tool receives the same scope.
    let calls = fakes.calls();
    assert_eq!(calls.len(), 2);
    assert!(calls.iter().all(|call| call.scope == scope("main/session/run")), "{calls:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_receives_the_kind_and_language_of_a_cell() {
    let (world, _, hook) = world("exec", HookBehavior::Allow).await;
    let run = world.run();
    for (input, kind, ends) in [
        (json!({"code": "return 1"}), Some(Language::JavaScript), "completed"),
        (json!({"command": "return 1", "language": "typescript"}), Some(Language::TypeScript), "completed"),
        (json!({"code": "return 1", "language": "bash"}), None, "failed"),
    ] {
        let result = run.exec_with("exec-1", input.clone()).await;
        assert_eq!(result["status"], ends, "{input}");
        let event = hook.before().pop().unwrap();
        assert_eq!((event.tool_kind, event.tool_input_kind), (Some(ToolKind::CodeModeExec), kind), "{input}");
        // The source is available as `code` and as `command`.
        assert_eq!((&event.params["code"], &event.params["command"]), (&json!("return 1"), &json!("return 1")));
        let (id, outcome) = hook.after().pop().unwrap();
        let Outcome::Returned(ToolResult { details: Some(details), .. }) = outcome else { panic!("{outcome:?}") };
        assert_eq!((id.as_str(), &details["status"]), ("exec-1", &result["status"]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_can_block_a_cell_or_rewrite_its_code_or_command_field() {
    let blocked = world("exec", HookBehavior::Block("not today")).await.0.run().exec("return 1").await;
    assert_eq!(blocked["error"], "blocked by a before_tool_call hook: not today", "{blocked}");
    for rewritten in
        [json!({"code": "return 2", "command": "return 1"}), json!({"code": "return 1", "command": "return 2"})]
    {
        let (world, ..) = world("exec", HookBehavior::Rewrite(rewritten.clone())).await;
        assert_eq!(world.run().value("return 1").await, 2, "{rewritten}");
    }
    let typed = json!({"code": "const n: number = 2; return n", "language": "typescript"});
    let (typescript, _, hook) = world("exec", HookBehavior::Rewrite(typed)).await;
    assert_eq!(typescript.run().value("return 1").await, 2);
    assert_eq!(hook.last().tool_input_kind, Some(Language::TypeScript), "the hook receives the language that ran");
    let (world, ..) = world("exec", HookBehavior::Rewrite(json!({"code": "return 2", "command": "return 3"}))).await;
    let rejected = world.run().exec("return 1").await;
    assert_eq!(code(&rejected), "invalid_input");
    let expected = "a before_tool_call hook rewrote the input of this cell to one that cannot be used";
    assert!(rejected["error"].as_str().unwrap().starts_with(expected), "{rejected}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_blocked_with_the_hooks_reason() {
    let (world, fakes, hook) = world("read", HookBehavior::Block("not today")).await;
    let reason = "blocked by a before_tool_call hook: not today";
    assert_eq!(world.run().value(CALL).await, reason);
    assert_eq!(directly(&world.run()).await, Outcome::Failed(reason.to_owned()));
    assert_eq!(fakes.called(), [""; 0]);
    // Only the cell itself reached the after hook.
    assert_eq!(hook.after().len(), 1);
    // An uncaught failure fails the cell.
    let uncaught = world.run().exec("return await tools.read({ path: 'a' })").await;
    assert_eq!(code(&uncaught), "nested_tool_failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn rewritten_arguments_are_validated_and_passed_to_the_tool() {
    let (good, fakes, hook) = world("read", HookBehavior::Rewrite(json!({"path": "b"}))).await;
    assert_eq!(good.run().value(CALL).await, json!({"path": "b"}));
    let Outcome::Returned(returned) = directly(&good.run()).await else { panic!() };
    assert_eq!(returned.details, Some(json!({"path": "b"})));
    assert!(fakes.calls().iter().all(|call| call.input == json!({"path": "b"})), "{:?}", fakes.calls());
    let after: Vec<Value> = hook.after().into_iter().map(|(_, outcome)| json!(outcome.is_error())).collect();
    assert_eq!(after, [false, false, false]);

    let (bad, fakes, _) = world("read", HookBehavior::Rewrite(json!({"path": 1}))).await;
    let message = bad.run().value(CALL).await;
    let expected = "a before_tool_call hook rewrote the input of this call to one that cannot be used, so nothing was \
                    called; a person must correct the hook: `openclaw:core:read` cannot be called with this:\n";
    assert!(message.as_str().unwrap().starts_with(expected), "{message}");
    let transcript = bad.run().code_mode.store().export("session").await.unwrap();
    assert!(transcript.contains(expected.trim_end()), "{transcript}");
    assert!(directly(&bad.run()).await.is_error());
    assert_eq!(fakes.called(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_that_the_cell_itself_got_wrong_are_not_blamed_on_a_hook() {
    let (world, ..) = world("read", HookBehavior::Rewrite(json!({"path": "b"}))).await;
    let own = world.run().value("return await tools.read({ path: 1 }).catch(error => error.message)").await;
    assert!(own.as_str().unwrap().starts_with("`openclaw:core:read` cannot be called with this:\n"), "{own}");
    let (world, ..) = self::world("exec", HookBehavior::Rewrite(json!({"code": 1}))).await;
    let own = world.run().exec_with("exec-1", json!({"language": "javascript"})).await;
    assert!(!own["error"].as_str().unwrap().contains("hook"), "{own}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_that_fails_panics_or_hangs_blocks_the_call() {
    for (behavior, message) in [
        (HookBehavior::Error("canary"), "blocked: a before_tool_call hook failed"),
        (HookBehavior::Panic("canary"), "blocked: a before_tool_call hook failed"),
        (HookBehavior::Hang, "blocked: a before_tool_call hook did not answer in time"),
    ] {
        let (world, fakes, _) = world("read", behavior.clone()).await;
        let mut run = world.run();
        run.prepared.executor = run.prepared.executor.with_hook_deadline(Duration::from_millis(100));
        let began = Instant::now();
        assert_eq!(run.value(CALL).await, message, "{behavior:?}");
        assert_eq!(directly(&run).await, Outcome::Failed(message.to_owned()), "{behavior:?}");
        assert!(began.elapsed() < Duration::from_secs(4), "{behavior:?}: {:?}", began.elapsed());
        assert_eq!(fakes.called(), [""; 0], "{behavior:?}");
    }
    assert_eq!(executor::HOOK_DEADLINE, Duration::from_secs(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_after_hook_receives_the_outcome_of_a_call() {
    let fakes =
        FakeTools::new([("openclaw:core:good", Behavior::Echo), ("openclaw:core:bad", Behavior::Fail("no such city"))]);
    let hook = RecordingHook::new("", HookBehavior::Allow);
    let hooks: Vec<Arc<dyn Hook>> = vec![hook.clone()];
    let world = Parts { sources: vec![fakes], hooks, ..Parts::default() }.open().await;
    world.run().value("await tools.good({ n: 1 }); return await tools.bad({}).catch(() => null)").await;
    let after = hook.after();
    let labels = vec!["openclaw:core:good".to_owned()];
    let good = Outcome::Returned(ToolResult { labels, ..ToolResult::json(json!({"n": 1})) });
    assert_eq!(after[0], ("exec-1:1".to_owned(), good));
    assert_eq!(after[1], ("exec-1:2".to_owned(), Outcome::Failed("no such city".to_owned())));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_can_require_approval() {
    let (world, fakes, _) = world("read", HookBehavior::Ask("it reads")).await;
    let run = world.run();
    let (run_id, waiting) = run.suspend(CALL).await;
    assert_eq!(waiting["pendingToolCalls"][0]["state"], "approval", "{waiting}");
    let pending = world.pending().await;
    assert_eq!((pending[0].reason.as_str(), &pending[0].input), ("it reads", &json!({"path": "a"})));
    assert_eq!(fakes.called(), [""; 0]);
    assert_eq!(world.approve_all(store::ApprovalScope::Once).await, 1);
    assert_eq!(value(&run.wait(&run_id).await), &json!({"path": "a"}));
    // Approval cannot be required for a whole cell.
    let (whole, ..) = self::world("exec", HookBehavior::Ask("it runs")).await;
    assert_eq!(code(&whole.run().exec("return 1").await), "invalid_input");
}
