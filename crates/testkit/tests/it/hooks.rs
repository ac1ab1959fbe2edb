//! Hooks have their say in every call: the cell itself, the calls it makes, and calls without a cell.

use std::sync::Arc;
use std::time::{Duration, Instant};

use contract::cell::Language;
use executor::{CallEnd, Hook, Outcome, ProgressSink, Returned, ToolKind};
use serde_json::{Value, json};

use crate::desk::{Desk, Does, spec};
use crate::witness::{Says, Witness};
use crate::world::{Parts, Run, World, code, value};

const CALL: &str = "return await tools.call('openclaw:core:read', { path: 'a' }).catch(error => error.message)";

async fn world(about: &'static str, says: Says) -> (World, Arc<Desk>, Arc<Witness>) {
    let desk = Desk::new([("openclaw:core:write", Does::Echo)]);
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
    desk.put(contract::tool::ToolSpec { parameters: schema, ..spec("openclaw:core:read") }, Does::Echo);
    let witness = Witness::new(about, says);
    let parts =
        Parts { sources: vec![desk.clone()], hooks: vec![witness.clone() as Arc<dyn Hook>], ..Parts::default() };
    (parts.open().await, desk, witness)
}

/// The same call without a cell.
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
    let (world, desk, witness) = world("read", Says::Nothing).await;
    let run = world.run();
    run.exec_with("exec-9", json!({ "code": CALL })).await;
    directly(&run).await;
    let events = witness.before();
    let ids: Vec<&str> = events.iter().map(|event| event.tool_call_id.as_str()).collect();
    assert_eq!(ids, ["exec-9", "exec-9:1", "call-1:1"]);
    for event in &events {
        let scope = &event.scope;
        assert_eq!((scope.agent_id.as_str(), scope.session_id.as_str()), ("main", "session"), "{event:?}");
        assert_eq!((scope.sender.as_deref(), scope.channel.as_deref()), (Some("ada"), Some("matrix")), "{event:?}");
    }
    let kinds: Vec<_> = events.iter().map(|event| event.tool_kind).collect();
    assert_eq!(kinds, [Some(ToolKind::CodeModeExec), None, None]);
    assert_eq!(ToolKind::CodeModeExec.as_str(), "code_mode_exec");
    assert_eq!(events[1].tool_id.as_deref(), Some("openclaw:core:read"));
    assert_eq!(events[1].params, json!({"path": "a"}));
    // The tool is told the same.
    assert!(desk.calls().iter().all(|call| call.scope == *events[1].scope), "{:?}", desk.calls());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_receives_the_kind_and_language_of_a_cell() {
    let (world, _, witness) = world("exec", Says::Nothing).await;
    let run = world.run();
    for (input, kind, ends) in [
        (json!({"code": "return 1"}), Some(Language::JavaScript), "completed"),
        (json!({"command": "return 1", "language": "typescript"}), Some(Language::TypeScript), "completed"),
        (json!({"code": "return 1", "language": "bash"}), None, "failed"),
    ] {
        let result = run.exec_with("exec-1", input.clone()).await;
        assert_eq!(result["status"], ends, "{input}");
        let event = witness.before().pop().unwrap();
        assert_eq!((event.tool_kind, event.tool_input_kind), (Some(ToolKind::CodeModeExec), kind), "{input}");
        // Policies find the source under either name.
        assert_eq!((&event.params["code"], &event.params["command"]), (&json!("return 1"), &json!("return 1")));
        let (id, outcome) = witness.after().pop().unwrap();
        let Outcome::Returned(Returned { details: Some(told), .. }) = outcome else { panic!("{outcome:?}") };
        assert_eq!((id.as_str(), &told["status"]), ("exec-1", &result["status"]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_can_block_a_cell_or_rewrite_its_code_or_command_field() {
    let blocked = world("exec", Says::Block("not today")).await.0.run().exec("return 1").await;
    assert_eq!(blocked["error"], "blocked by a before_tool_call hook: not today", "{blocked}");
    for rewritten in
        [json!({"code": "return 2", "command": "return 1"}), json!({"code": "return 1", "command": "return 2"})]
    {
        let (world, ..) = world("exec", Says::Rewrite(rewritten.clone())).await;
        assert_eq!(world.run().value("return 1").await, 2, "{rewritten}");
    }
    let typed = json!({"code": "const n: number = 2; return n", "language": "typescript"});
    let (typescript, _, witness) = world("exec", Says::Rewrite(typed)).await;
    assert_eq!(typescript.run().value("return 1").await, 2);
    assert_eq!(witness.last().tool_input_kind, Some(Language::TypeScript), "it is told what was run");
    let (world, ..) = world("exec", Says::Rewrite(json!({"code": "return 2", "command": "return 3"}))).await;
    assert_eq!(code(&world.run().exec("return 1").await), "invalid_input");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_blocked_with_the_hooks_reason() {
    let (world, desk, witness) = world("read", Says::Block("not today")).await;
    let reason = "blocked by a before_tool_call hook: not today";
    assert_eq!(world.run().value(CALL).await, reason);
    assert_eq!(directly(&world.run()).await, Outcome::Failed(reason.to_owned()));
    assert_eq!(desk.called(), [""; 0]);
    // Only the cell itself came to an end.
    assert_eq!(witness.after().len(), 1);
    // What is not caught is the cell's failure.
    let uncaught = world.run().exec("return await tools.read({ path: 'a' })").await;
    assert_eq!(code(&uncaught), "nested_tool_failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn rewritten_arguments_are_validated_and_passed_to_the_tool() {
    let (good, desk, witness) = world("read", Says::Rewrite(json!({"path": "b"}))).await;
    assert_eq!(good.run().value(CALL).await, json!({"path": "b"}));
    let Outcome::Returned(told) = directly(&good.run()).await else { panic!() };
    assert_eq!(told.details, Some(json!({"path": "b"})));
    assert!(desk.calls().iter().all(|call| call.input == json!({"path": "b"})), "{:?}", desk.calls());
    let after: Vec<Value> = witness.after().into_iter().map(|(_, outcome)| json!(outcome.is_error())).collect();
    assert_eq!(after, [false, false, false]);

    let (bad, desk, _) = world("read", Says::Rewrite(json!({"path": 1}))).await;
    let message = bad.run().value(CALL).await;
    assert!(message.as_str().unwrap().starts_with("`openclaw:core:read` cannot be called with this:\n"), "{message}");
    assert!(directly(&bad.run()).await.is_error());
    assert_eq!(desk.called(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_that_fails_panics_or_hangs_blocks_the_call() {
    for (says, words) in [
        (Says::Error("canary"), "blocked: a before_tool_call hook failed"),
        (Says::Panic, "blocked: a before_tool_call hook failed"),
        (Says::Hang, "blocked: a before_tool_call hook did not answer in time"),
    ] {
        let (world, desk, _) = world("read", says.clone()).await;
        let mut run = world.run();
        run.prepared.executor = run.prepared.executor.with_hook_deadline(Duration::from_millis(100));
        let began = Instant::now();
        assert_eq!(run.value(CALL).await, words, "{says:?}");
        assert_eq!(directly(&run).await, Outcome::Failed(words.to_owned()), "{says:?}");
        assert!(began.elapsed() < Duration::from_secs(4), "{says:?}: {:?}", began.elapsed());
        assert_eq!(desk.called(), [""; 0], "{says:?}");
    }
    assert_eq!(executor::HOOK_DEADLINE, Duration::from_secs(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_after_hook_receives_the_outcome_of_a_call() {
    let desk = Desk::new([("openclaw:core:good", Does::Echo), ("openclaw:core:bad", Does::Fails("no such city"))]);
    let witness = Witness::new("", Says::Nothing);
    let hooks: Vec<Arc<dyn Hook>> = vec![witness.clone()];
    let world = Parts { sources: vec![desk], hooks, ..Parts::default() }.open().await;
    world.run().value("await tools.good({ n: 1 }); return await tools.bad({}).catch(() => null)").await;
    let after = witness.after();
    let labels = vec!["openclaw:core:good".to_owned()];
    let good = Outcome::Returned(Returned { labels, ..Returned::json(json!({"n": 1})) });
    assert_eq!(after[0], ("exec-1:1".to_owned(), good));
    assert_eq!(after[1], ("exec-1:2".to_owned(), Outcome::Failed("no such city".to_owned())));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_can_require_approval() {
    let (world, desk, _) = world("read", Says::Ask("it reads")).await;
    let run = world.run();
    let (run_id, waiting) = run.suspend(CALL).await;
    assert_eq!(waiting["pendingToolCalls"][0]["state"], "approval", "{waiting}");
    let pending = world.pending().await;
    assert_eq!((pending[0].reason.as_str(), &pending[0].input), ("it reads", &json!({"path": "a"})));
    assert_eq!(desk.called(), [""; 0]);
    assert_eq!(world.approve_all(store::ApprovalScope::Once).await, 1);
    assert_eq!(value(&run.wait(&run_id).await), &json!({"path": "a"}));
    // A whole cell is not something a person can be asked about.
    let (whole, ..) = self::world("exec", Says::Ask("it runs")).await;
    assert_eq!(code(&whole.run().exec("return 1").await), "invalid_input");
}
