//! Converts runs, records and steps to JSON.

use codemode::replay::{LegVerdict, Record, Step};
use contract::frame::{HostCall, LegEnd, Reply, ReplyValue};
use serde_json::{Value, json};
use store::{Approval, CallRow, LegRow, RunListEntry, StoredReply};

use super::find::run_summary;

pub(super) fn listed(run: &RunListEntry) -> Value {
    json!({
        "runId": run.run_id,
        "state": run.state.as_str(),
        "agentId": run.scope.agent_id,
        "sessionId": run.scope.session_id,
        "createdAt": run.created_at,
        "updatedAt": run.updated_at,
        "expiresAt": run.expires_at,
        "pending": run.open_calls,
        "code": run_summary(run),
    })
}

pub(super) fn record(record: &Record, approvals: &[Approval]) -> Value {
    let run = &record.run;
    let source = record.source();
    let limits = record.limits().map(|limits| {
        json!({
            "timeoutMs": limits.timeout_ms,
            "maxWaitMs": limits.max_wait_ms,
            "memoryLimitBytes": limits.memory_bytes,
            "maxOutputBytes": limits.output_bytes,
            "maxStoredOutputBytes": limits.stored_output_bytes,
            "maxMediaBlocks": limits.media_blocks,
            "maxMediaBytes": limits.media_bytes,
            "maxSnapshotBytes": limits.snapshot_bytes,
            "maxPendingToolCalls": limits.pending_calls,
        })
    });
    json!({
        "runId": run.run_id,
        "state": run.state.as_str(),
        "agentId": run.scope.agent_id,
        "sessionId": run.scope.session_id,
        "createdAt": run.created_at,
        "expiresAt": run.expires_at,
        "language": source.map(|(_, language)| language.as_str()),
        "source": source.map(|(source, _)| source),
        "limits": limits,
        "legs": record.legs.iter().map(leg).collect::<Vec<_>>(),
        "calls": record.calls.iter().map(call).collect::<Vec<_>>(),
        "approvals": approvals,
        "result": run.result.as_deref().map(parsed),
    })
}

fn leg(leg: &LegRow) -> Value {
    json!({
        "leg": leg.leg,
        "clockUs": leg.clock_us,
        "replies": leg.replies,
        "ended": leg.ended.as_ref().map(|ended| ended.kind.as_str()),
    })
}

fn call(row: &CallRow) -> Value {
    let (resolved, rejected) = match &row.reply {
        Some(StoredReply::Resolved(text)) => (Some(parsed(text)), None),
        Some(StoredReply::Rejected(text)) => (None, Some(parsed(text))),
        None => (None, None),
    };
    json!({
        "call": row.call,
        "leg": row.leg,
        "method": row.method,
        "target": row.target,
        "payload": parsed(&row.payload),
        "toolId": row.tool_id,
        "state": row.state.as_str(),
        "attempt": row.attempt,
        "since": row.since,
        "resolved": resolved,
        "rejected": rejected,
    })
}

pub(super) fn step(step: &Step<'_>) -> Value {
    let (made, cleared, end) = match &step.ran.end {
        LegEnd::Suspended { calls, cleared } => (calls.as_slice(), cleared.as_slice(), json!({"status": "suspended"})),
        LegEnd::Completed { value } => (&[][..], &[][..], json!({"status": "completed", "value": parsed(value.get())})),
        LegEnd::Failed(failure) => {
            let code = failure.code.map(|code| code.as_str());
            (&[][..], &[][..], json!({"status": "failed", "error": failure.message, "code": code}))
        }
    };
    let verdict = match &step.verdict {
        Ok(LegVerdict::Same) => "same",
        Ok(LegVerdict::Unrecorded) => "unrecorded",
        Err(_) => "diverged",
    };
    let diverged = step.verdict.as_ref().err().map(|diverged| {
        json!({
            "leg": diverged.leg, "call": diverged.call, "recorded": diverged.recorded, "happened": diverged.happened,
            "message": diverged.to_string(),
        })
    });
    json!({
        "leg": step.recorded.leg,
        "clockUs": step.recorded.clock_us,
        "given": step.given.iter().map(given).collect::<Vec<_>>(),
        "made": made.iter().map(made_call).collect::<Vec<_>>(),
        "cleared": cleared,
        "output": step.ran.output,
        "end": end,
        "verdict": verdict,
        "diverged": diverged,
    })
}

fn given(reply: &Reply) -> Value {
    match &reply.value {
        ReplyValue::Resolved(text) => json!({"call": reply.call, "resolved": parsed(&String::from_utf8_lossy(text))}),
        ReplyValue::Rejected(text) => json!({"call": reply.call, "rejected": parsed(&String::from_utf8_lossy(text))}),
    }
}

fn made_call(call: &HostCall) -> Value {
    let payload = parsed(&String::from_utf8_lossy(&call.payload));
    json!({"call": call.id, "method": call.method.as_str(), "target": call.target, "payload": payload})
}

/// Parses a recorded payload or reply; text that is not JSON becomes a string.
fn parsed(text: &str) -> Value {
    contract::json::read(text).unwrap_or_else(|_| Value::from(text))
}
