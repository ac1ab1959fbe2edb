//! Questions and decisions on a terminal, or as JSON.

use mcp::server::plain;
use serde_json::json;
use store::{Approval, ApprovalState, Millis};

use super::tool;

/// What of its arguments a list shows of a call; `show` shows all.
const MAX_LINE_CHARS: usize = 100;
const MAX_SHOWN_CHARS: usize = 200_000;

pub(super) fn list(open: &[Approval], now: Millis, as_json: bool) {
    if as_json {
        println!("{}", json!(open));
        return;
    }
    if open.is_empty() {
        eprintln!("nothing is asked");
    }
    for approval in open {
        let arguments = plain(&approval.input.to_string().replace('\n', " "), MAX_LINE_CHARS);
        println!("{}  {}  {}  {arguments}", approval.approval_id, tool(approval), left(approval, now));
    }
}

pub(super) fn whole(approval: &Approval, now: Millis, as_json: bool) {
    if as_json {
        println!("{}", json!(approval));
        return;
    }
    let arguments = serde_json::to_string_pretty(&approval.input).unwrap_or_default();
    println!("id         {}", approval.approval_id);
    println!("tool       {}", tool(approval));
    println!("for        {}", plain(&approval.agent_id, 100));
    println!("run        {}", approval.run_id);
    println!("reason     {}", plain(&approval.reason, 1_000));
    println!("time left  {}", left(approval, now));
    println!("arguments  {}", plain(&arguments, MAX_SHOWN_CHARS));
}

pub(super) fn decided(approval: &Approval, as_json: bool) {
    if as_json {
        println!("{}", json!(approval));
        return;
    }
    let word = if approval.state == ApprovalState::Denied { "denied" } else { "approved" };
    println!("{word}  {}  {}", approval.approval_id, tool(approval));
}

fn left(approval: &Approval, now: Millis) -> String {
    let seconds = approval.expires_at.saturating_sub(now).max(0) / 1000;
    if seconds >= 120 { format!("{} min", seconds / 60) } else { format!("{seconds} s") }
}
