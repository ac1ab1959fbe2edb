//! Secrets in private errors, in the input of tools and in the environment do not appear where they must not.

use std::path::Path;
use std::sync::Arc;

use contract::tool::ToolSpec;
use executor::{AuthorizedCall, CallFuture, Dispatch, Hook, Outcome, ToolResult, ToolSource};
use serde_json::{Value, json};

use crate::fake_tools::spec;
use crate::recording_hook::{HookBehavior, RecordingHook};
use crate::world::{Parts, Workers};

/// In the text of panics and errors inside the host.
const CANARY: &str = "canary-7f3e";
/// In the input of a tool.
const INPUT: &str = "input-51c9";
/// The environment of the test has this value, because Cargo sets it.
const ENVIRONMENT: &str = env!("CARGO_MANIFEST_DIR");

/// A tool source that panics with a secret in the message; its `echo` returns its input.
#[derive(Debug)]
struct SecretSource;

impl ToolSource for SecretSource {
    fn tools(&self) -> Vec<ToolSpec> {
        ["guarded", "hooked", "echo", "never"].map(|name| spec(&format!("openclaw:core:{name}"))).into()
    }

    fn call(&self, call: AuthorizedCall) -> CallFuture<'_> {
        Box::pin(async move {
            match call.id().as_str() {
                "openclaw:core:echo" => Dispatch::Settled(Outcome::Returned(ToolResult::json(call.input().clone()))),
                "openclaw:core:never" => std::future::pending().await,
                _ => panic!("401 for token {CANARY}"),
            }
        })
    }
}

/// The files of the folder that contain the text.
fn files_with(folder: &Path, text: &str) -> Vec<String> {
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let contains = |path: &Path| {
        let bytes = std::fs::read(path).unwrap();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    };
    files.filter(|path| contains(path)).map(|path| path.display().to_string()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_in_a_private_error_appears_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    for behavior in [HookBehavior::Error("hook failed with canary-7f3e"), HookBehavior::Panic(CANARY)] {
        let hook: Arc<dyn Hook> = RecordingHook::new("hooked", behavior.clone());
        let sources: Vec<Arc<dyn ToolSource>> = vec![Arc::new(SecretSource)];
        let parts = Parts { sources, hooks: vec![hook], store: Some(path.clone()), ..Parts::default() };
        let world = parts.open().await;
        let run = world.run();
        let cell = "const settled = await Promise.allSettled([tools.guarded({}), tools.hooked({})])
                    await yield_control(); return settled.map(one => one.reason.message)";
        let (run_id, waiting) = run.suspend(cell).await;
        let done = run.wait(&run_id).await;
        let panicked = "the tool panicked and may have taken effect; check before calling it again";
        assert_eq!(done["value"], json!([panicked, "blocked: a before_tool_call hook failed"]), "{behavior:?}");
        let uncaught = run.exec("return await tools.hooked({})").await;
        let unguarded = run.exec("return await tools.guarded({})").await;
        let exported = world.store().export("session").await.unwrap();
        for shown in [waiting.to_string(), done.to_string(), uncaught.to_string(), unguarded.to_string(), exported] {
            assert!(!shown.contains(CANARY), "{behavior:?}: {shown}");
        }
        world.store().close().await;
        // The database and all files beside it.
        assert_eq!(files_with(folder.path(), CANARY), [""; 0], "{behavior:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn telemetry_contains_no_tool_input_environment_value_or_private_error() {
    assert!(std::env::vars().any(|(_, value)| value == ENVIRONMENT), "Cargo sets it");
    let tools = json!({"codeMode": {"enabled": true, "timeoutMs": 1000, "maxWaitMs": 300, "maxOutputBytes": 1024, "maxStoredOutputBytes": 65536}});
    let sources: Vec<Arc<dyn ToolSource>> = vec![Arc::new(SecretSource)];
    let world = Parts { workers: Workers::Jailed, tools, sources, ..Parts::default() }.open().await;
    let run = world.run();
    let used = format!("await tools.echo({{ token: '{INPUT}' }}); await tools.search('{INPUT}')");
    let mut results = Vec::new();
    for cell in [
        format!("{used}; return 1"),
        format!("{used}; await tools.guarded({{ token: '{INPUT}' }})"),
        format!("{used}; text('{INPUT}'.repeat(10000))"),
        format!("{used}; await tools.call('openclaw:core:{INPUT}', {{}})"),
        format!("{used}; throw new Error('{INPUT}')"),
        format!("{used}; for (;;) {{}}"),
        format!("{used}; await tools.never({{ token: '{INPUT}' }})"),
    ] {
        results.push(run.exec(&cell).await);
    }
    let (run_id, waiting) = run.suspend(&format!("{used}; await yield_control('later'); return 1")).await;
    results.extend([waiting, run.wait(&run_id).await]);
    let statuses: Vec<&Value> = results.iter().map(|result| &result["status"]).collect();
    let expected = ["completed", "failed", "failed", "failed", "failed", "failed", "waiting", "waiting", "completed"];
    assert_eq!(statuses, expected, "{results:?}");
    for result in &results {
        let telemetry = &result["telemetry"];
        assert!(telemetry["callCount"].as_u64() >= Some(1), "{result}");
        for secret in [INPUT, CANARY, ENVIRONMENT] {
            assert!(!telemetry.to_string().contains(secret), "{telemetry}");
        }
    }
    // A pending call is named by its tool; its input is not shown.
    let pending = &results[6]["pendingToolCalls"];
    assert!(pending[0]["toolId"] == "openclaw:core:never" && !pending.to_string().contains(INPUT), "{pending}");
    // The transcript has the input of calls, as of direct ones, and no value of the environment.
    let exported = world.store().export("session").await.unwrap();
    assert!(exported.contains(INPUT) && !exported.contains(ENVIRONMENT), "{exported}");
    assert!(!exported.contains(CANARY), "{exported}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_cells_memory_is_not_readable_in_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let parts = Parts {
        sources: vec![Arc::new(SecretSource)],
        store: Some(folder.path().join("store.db")),
        ..Parts::default()
    };
    let world = parts.open().await;
    // Built at run time, so that the source does not contain it.
    let cell = "const kept = ['canary', '7f3e'].join('-'); await yield_control(); return kept";
    let (run_id, _) = world.run().suspend(cell).await;
    assert_eq!(files_with(folder.path(), CANARY), [""; 0]);
    assert_eq!(world.run().wait(&run_id).await["value"], CANARY);
}
