//! Private errors of tool sources and hooks do not appear in results, transcripts or files.

use std::sync::Arc;

use contract::tool::ToolSpec;
use executor::{AuthorizedCall, CallFuture, Dispatch, Hook, Outcome, ToolSource};
use serde_json::json;

use crate::fake_tools::spec;
use crate::recording_hook::{HookBehavior, RecordingHook};
use crate::world::Parts;

const CANARY: &str = "canary-7f3e";

/// A tool source whose internal error contains a secret that its reported error does not.
#[derive(Debug)]
struct SecretSource;

impl ToolSource for SecretSource {
    fn tools(&self) -> Vec<ToolSpec> {
        vec![spec("openclaw:core:guarded"), spec("openclaw:core:hooked")]
    }

    fn call(&self, _: AuthorizedCall) -> CallFuture<'_> {
        Box::pin(async {
            let private: Result<(), String> = Err(format!("401 for token {CANARY}"));
            Dispatch::Settled(Outcome::Failed(private.map_or("the service refused".to_owned(), |()| String::new())))
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_in_a_private_error_appears_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let hook: Arc<dyn Hook> = RecordingHook::new("hooked", HookBehavior::Error("hook failed with canary-7f3e"));
    let parts =
        Parts { sources: vec![Arc::new(SecretSource)], hooks: vec![hook], store: Some(path), ..Parts::default() };
    let world = parts.open().await;
    let run = world.run();
    let cell = "const settled = await Promise.allSettled([tools.guarded({}), tools.hooked({})])
                await yield_control(); return settled.map(one => one.reason.message)";
    let (run_id, waiting) = run.suspend(cell).await;
    let done = run.wait(&run_id).await;
    assert_eq!(done["value"], json!(["the service refused", "blocked: a before_tool_call hook failed"]));
    let uncaught = run.exec("return await tools.hooked({})").await;
    let exported = world.store().export("session").await.unwrap();
    for shown in [waiting.to_string(), done.to_string(), uncaught.to_string(), exported] {
        assert!(!shown.contains(CANARY), "{shown}");
    }
    // The database and all files beside it.
    world.store().close().await;
    for file in std::fs::read_dir(folder.path()).unwrap() {
        let path = file.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        let found = bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes());
        assert!(!found, "{}", path.display());
    }
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
    for file in std::fs::read_dir(folder.path()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        assert!(!bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes()));
    }
    assert_eq!(world.run().wait(&run_id).await["value"], CANARY);
}
