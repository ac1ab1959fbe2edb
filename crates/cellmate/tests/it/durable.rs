//! Runs that are resumed by another host, and calls that are settled later.

use std::sync::Mutex;

use cellmate::source::{
    AuthorizedCall, CallFuture, CallToken, Dispatch, Outcome, ParkedOn, SettleResult, ToolId, ToolResult, ToolSource,
    ToolSpec,
};
use cellmate::{Builder, KeyFile, Scope, Store, json};

use super::{Result, builder, letters};

fn stored(folder: &std::path::Path, key: &str) -> Result<Builder> {
    Ok(builder()
        .tool(letters().ask_first())
        .store(Store::file(folder.join("runs.db"), KeyFile::open(folder.join(key))?)))
}

pub(super) async fn another_host_resumes_the_run_from_the_store() -> Result {
    let folder = tempfile::tempdir()?;
    let scope = || Scope::agent("writer").session("letters");
    let first = stored(folder.path(), "key")?.build().await?;
    let result =
        first.run(scope())?.exec("1", r#"const n = 41; await tools.send_letter({to: "Ada"}); return n + 1"#).await;
    let run_id = result.run_id().unwrap_or_else(|| panic!("{result:?}")).clone();
    first.shut_down().await?;
    drop(first);

    let second = stored(folder.path(), "key")?.build().await?;
    let run = second.run(scope())?;
    assert_eq!(run.unfinished(10).await?, std::slice::from_ref(&run_id));
    second.approve(&second.approvals().await?[0].id, "the operator").await?;
    let elsewhere = second.run(Scope::agent("another"))?.wait("2", &run_id).await;
    assert!(elsewhere.error().is_some(), "{elsewhere:?}");
    assert_eq!(run.wait("3", &run_id).await.value(), Some(json!(42)));
    Ok(())
}

pub(super) async fn another_key_is_refused_while_a_cell_is_suspended() -> Result {
    let folder = tempfile::tempdir()?;
    let first = stored(folder.path(), "key")?.build().await?;
    let result = first.run(Scope::agent("a"))?.exec("1", r#"return tools.send_letter({to: "Ada"})"#).await;
    assert!(result.run_id().is_some(), "{result:?}");
    first.shut_down().await?;
    let error = stored(folder.path(), "another-key")?.build().await.unwrap_err();
    assert_eq!(error.code(), "key_unavailable", "{error}");
    Ok(())
}

/// A tool whose calls are settled later.
#[derive(Debug)]
struct Printer(Mutex<Option<tokio::sync::oneshot::Sender<CallToken>>>);

impl ToolSource for Printer {
    fn tools(&self) -> Vec<ToolSpec> {
        let id = ToolId::parse("plugin:office:print").unwrap();
        vec![ToolSpec::new(id, "Prints.", json!({"type": "object"}))]
    }

    fn call(&self, call: AuthorizedCall) -> CallFuture<'_> {
        self.0.lock().unwrap().take().unwrap().send(call.token().clone()).unwrap();
        Box::pin(std::future::ready(Dispatch::Parked(ParkedOn::Task)))
    }
}

pub(super) async fn a_parked_call_of_a_source_is_settled_later() -> Result {
    let (sender, token) = tokio::sync::oneshot::channel();
    let host = builder().source(Printer(Mutex::new(Some(sender)))).limits(json!({"timeoutMs": 300})).build().await?;
    let run = host.run(Scope::agent("a"))?;
    let result = run.exec("1", "return tools.print({})").await;
    let run_id = result.run_id().unwrap_or_else(|| panic!("{result:?}")).clone();
    let (token, printed) = (token.await.unwrap(), Outcome::Returned(ToolResult::text("printed")));
    assert_eq!(host.settle(&token, &printed).await?, SettleResult::WillDeliver);
    assert_eq!(run.wait("2", &run_id).await.value(), Some(json!("printed")));
    assert!(host.settle(&token, &printed).await.is_err_and(|error| error.code() == "not_pending"));
    Ok(())
}
