//! A call that is retried after a crash is bound to the tool definition that was approved.

use std::sync::{Arc, Mutex};

use contract::ids::CallId;
use contract::scope::Scope;
use contract::tool::{Repeat, ToolHash, ToolId, ToolSpec};
use executor::{
    AuthorizedCall, CallEnd, CallFuture, CallRequest, Dispatch, Executor, Journal, Outcome, ProgressSink, Routes,
    StateSink, ToolResult, ToolSource,
};
use serde_json::json;
use store::{CallRow, Keys, Location, Store};

use crate::journal::fenced_run;

/// A tool source that records the definition each call was bound to.
#[derive(Debug, Default)]
struct DefinitionRecorder(Mutex<Vec<Option<ToolHash>>>);

fn read_tool() -> ToolSpec {
    let spec = ToolSpec::new(ToolId::parse("openclaw:a:read").unwrap(), "Reads.", json!({"type": "object"}));
    ToolSpec { repeat: Repeat::Always, ..spec }
}

impl ToolSource for DefinitionRecorder {
    fn tools(&self) -> Vec<ToolSpec> {
        vec![read_tool()]
    }

    fn call(&self, call: AuthorizedCall) -> CallFuture<'_> {
        self.0.lock().unwrap().push(call.approved_definition());
        Box::pin(async { Dispatch::Settled(Outcome::Returned(ToolResult::text("read"))) })
    }
}

#[tokio::test]
async fn a_retried_call_is_bound_to_the_approved_tool_definition() {
    let hash = read_tool().hash();
    let another = "0".repeat(64);
    // Whether the tool needs approval, the definition of the first attempt, and what the retry is bound to. The outer
    // `None` means that there is no retry.
    let cases =
        [(true, hash.to_string(), Some(Some(hash))), (true, another.clone(), None), (false, another, Some(None))];
    for (needs_approval, definition, expected) in cases {
        let recorder = Arc::new(DefinitionRecorder::default());
        let source: Arc<dyn ToolSource> = recorder.clone();
        let (routes, tools) = Routes::collect(&[source]);
        let catalog = Arc::new(catalog::Catalog::new(tools).unwrap());
        let patterns = if needs_approval {
            vec![contract::config::pattern::Pattern::parse("openclaw:a:*").unwrap()]
        } else {
            Vec::new()
        };
        let executor = Executor::new(catalog, routes, Scope::default()).with_approval_patterns(patterns);
        let store = Store::open(&Location::Memory, Keys::new(1, [7; 32])).await.unwrap();
        let journal = Journal::new(store, fenced_run());
        journal.opened(CallRow::requested(CallId(1), "call", "openclaw:a:read", "{}".to_owned(), "exec-1", 0)).unwrap();
        let first = journal.intend(CallId(1), Repeat::Always, None, |row| row.tool_hash = Some(definition.clone()));
        let _result = first.await.unwrap();
        let request = CallRequest {
            call: CallId(1),
            id: "openclaw:a:read".to_owned(),
            input: json!({}),
            parent: "exec-1".to_owned(),
            updates: ProgressSink::default(),
            states: StateSink::default(),
        };
        let end = executor.retry(&journal, &request).await;
        let definitions = recorder.0.lock().unwrap().clone();
        match expected {
            Some(definition) => assert_eq!(definitions, [definition], "{end:?}"),
            None => {
                assert!(definitions.is_empty());
                assert!(
                    matches!(&end, CallEnd::Settled(Outcome::Failed(why)) if why.contains("has changed")),
                    "{end:?}"
                );
            }
        }
    }
}
