//! Recorded runs that are replayed and forked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cellmate::{Cellmate, ErrorCode, ErrorKind, RunId, Scope, StepEnd, Tool, json};

use super::{Result, builder, letters};

const TWO_LETTERS: &str = r#"
const first = await tools.count({})
text(`first ${first}`)
return [first, await tools.count({})]
"#;

/// A tool that counts its calls.
fn counter(calls: &Arc<AtomicU64>) -> Tool {
    let calls = Arc::clone(calls);
    Tool::new("plugin:post:count", "Counts letters.", json!({"type": "object"})).call(move |_| {
        let number = calls.fetch_add(1, Ordering::SeqCst) + 1;
        async move { Ok(json!(number)) }
    })
}

async fn completed(host: &Cellmate, scope: Scope) -> Result<RunId> {
    let run = host.run(scope)?;
    let result = run.exec("1", TWO_LETTERS).await;
    assert_eq!(result.value(), Some(json!([1, 2])), "{result:?}");
    Ok(run.run_of_call("1").await?.unwrap())
}

pub(super) async fn a_replay_repeats_the_run_and_calls_no_tool() -> Result {
    let calls = Arc::new(AtomicU64::new(0));
    let host = builder().tool(counter(&calls)).build().await?;
    let run_id = completed(&host, Scope::agent("a")).await?;

    let replay = host.replay(&run_id).await?;
    assert!(replay.matches(), "{replay:?}");
    let ends: Vec<&StepEnd> = replay.steps.iter().map(|step| &step.end).collect();
    assert_eq!(ends, [&StepEnd::Waited, &StepEnd::Waited, &StepEnd::Returned(json!([1, 2]))]);
    assert_eq!(replay.steps[0].calls[0].target, "plugin:post:count");
    assert_eq!(serde_json::to_value(&replay.steps[1].output)?, json!([{"type": "text", "text": "first 1"}]));
    assert_eq!(replay.steps[2].replies[0].value, json!(2));
    assert_eq!(calls.load(Ordering::SeqCst), 2, "a tool was called by the replay");
    Ok(())
}

pub(super) async fn a_fork_keeps_recorded_replies_and_makes_the_other_calls_again() -> Result {
    let calls = Arc::new(AtomicU64::new(0));
    let host = builder().tool(counter(&calls)).build().await?;
    let run_id = completed(&host, Scope::agent("a")).await?;

    let run = host.run(Scope::agent("a"))?;
    let forked = run.fork("2", &run_id, 1).await?;
    assert_ne!(forked, run_id);
    assert_eq!(run.wait("3", &forked).await.value(), Some(json!([1, 3])));
    assert_eq!(run.wait("4", &run_id).await.value(), Some(json!([1, 2])), "the original run has changed");
    assert!(host.replay(&forked).await?.matches());
    Ok(())
}

pub(super) async fn a_fork_asks_again_for_what_was_approved_in_the_original() -> Result {
    let host = builder().tool(letters().ask_first()).build().await?;
    let run = host.run(Scope::agent("a"))?;
    let waiting = run.exec("1", r#"return tools.send_letter({to: "Ada"})"#).await;
    let run_id = waiting.run_id().unwrap_or_else(|| panic!("{waiting:?}")).clone();
    let forked = run.fork("2", &run_id, 1).await?;
    host.approve(&host.approvals().await?[0].id, "the operator").await?;
    assert!(run.wait("3", &run_id).await.value().is_some());

    let waiting = run.wait("4", &forked).await;
    assert_eq!(waiting.run_id(), Some(&forked), "{waiting:?}");
    let asked = host.approvals().await?;
    assert_eq!(asked.iter().map(|approval| &approval.run_id).collect::<Vec<_>>(), [&forked]);
    host.deny(&asked[0].id, "the operator", "one letter is enough").await?;
    let failed = run.wait("5", &forked).await;
    assert!(failed.error().is_some_and(|error| error.contains("one letter is enough")), "{failed:?}");
    Ok(())
}

/// As the table of errors in docs/guide/embedding.md says.
pub(super) async fn a_run_that_is_missing_or_of_another_scope_is_a_failed_result_of_wait_and_not_cancelled() -> Result {
    let host = builder().tool(counter(&Arc::default())).build().await?;
    let run_id = completed(&host, Scope::agent("a")).await?;
    let (own, other) = (host.run(Scope::agent("a"))?, host.run(Scope::agent("b"))?);
    for (run, run_id) in [(&own, RunId::from("cm_none")), (&other, run_id)] {
        assert_eq!(run.wait("2", &run_id).await.code(), Some(ErrorCode::InvalidInput), "{run_id}");
        assert!(!run.cancel(&run_id).await?, "{run_id}");
    }
    Ok(())
}

pub(super) async fn a_run_that_is_missing_or_of_another_scope_is_not_forked() -> Result {
    let host = builder().tool(counter(&Arc::default())).build().await?;
    let run_id = completed(&host, Scope::agent("a")).await?;
    let run = host.run(Scope::agent("a"))?;
    let others = [
        host.replay(&RunId::from("cm_none")).await.map(drop),
        run.fork("2", &RunId::from("cm_none"), 1).await.map(drop),
        host.run(Scope::agent("b"))?.fork("3", &run_id, 1).await.map(drop),
        run.fork("4", &run_id, 0).await.map(drop),
        run.fork("5", &run_id, 4).await.map(drop),
    ];
    for refused in others {
        let error = refused.unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidRun, "invalid_run"), "{error}");
    }
    Ok(())
}
