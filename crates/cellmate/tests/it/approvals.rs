//! Calls that a person approves or denies.

use cellmate::{AgentRun, ApprovalScope, Cellmate, Decision, RunId, Scope, json};

use super::{Result, builder, letters};

const CELL: &str = r#"return await tools.send_letter({to: "Ada"}).catch((error) => error.message)"#;

async fn waiting() -> Result<(Cellmate, AgentRun, RunId)> {
    let host = builder().tool(letters().ask_first()).build().await?;
    let run = host.run(Scope::agent("writer").session("letters"))?;
    let result = run.exec("1", CELL).await;
    let run_id = result.run_id().unwrap_or_else(|| panic!("{result:?}")).clone();
    Ok((host, run, run_id))
}

pub(super) async fn a_call_waits_until_it_is_approved() -> Result {
    let (host, run, run_id) = waiting().await?;
    let pending = host.approvals().await?;
    let [approval] = pending.as_slice() else { panic!("{pending:?}") };
    assert_eq!((approval.tool_id.as_str(), &approval.input), ("plugin:post:send_letter", &json!({"to": "Ada"})));
    assert_eq!((&approval.run_id, approval.session_id.as_str()), (&run_id, "letters"));
    let edited = Decision::Approve { edited_input: Some(json!({"to": "Grace"})), reach: ApprovalScope::Once };
    host.decide(&approval.id, &edited, "the operator").await?;
    assert_eq!(run.wait("2", &run_id).await.value(), Some(json!({"number": 1, "to": "Grace"})));
    assert!(host.approvals().await?.is_empty());
    Ok(())
}

pub(super) async fn a_denied_call_fails_with_the_note() -> Result {
    let (host, run, run_id) = waiting().await?;
    host.deny(&host.approvals().await?[0].id, "the operator", "Ada has moved").await?;
    let message = run.wait("2", &run_id).await.value().unwrap();
    assert!(message.as_str().unwrap().contains("Ada has moved"), "{message}");
    Ok(())
}

pub(super) async fn an_approval_is_decided_once() -> Result {
    let (host, _run, _run_id) = waiting().await?;
    let id = host.approvals().await?[0].id.clone();
    host.approve(&id, "the operator").await?;
    let error = host.deny(&id, "another", "").await.unwrap_err();
    assert_eq!(error.code(), "not_pending");
    let error = host.approve(&"no such id".into(), "the operator").await.unwrap_err();
    assert_eq!(error.code(), "not_pending");
    Ok(())
}

pub(super) async fn requests_are_reported_once_and_in_order() -> Result {
    let (host, run, _run_id) = waiting().await?;
    let mut requests = host.approval_requests();
    let first = requests.next().await?;
    let asking = run.clone();
    let next = tokio::spawn(async move { requests.next().await });
    let second = asking.exec("2", r#"return tools.send_letter({to: "Alan"})"#).await;
    let reported = next.await.unwrap()?;
    assert_eq!(Some(&reported.run_id), second.run_id());
    assert_eq!((&first.input, &reported.input), (&json!({"to": "Ada"}), &json!({"to": "Alan"})));
    Ok(())
}
