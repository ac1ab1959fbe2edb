//! Questions and decisions on a terminal, or as JSON.

use mcp::server::plain;
use serde_json::{Value, json};
use store::{Approval, ApprovalState, Millis};

use super::tool;

/// What of its arguments a list shows of a call; `show` shows all.
const MAX_LINE_CHARS: usize = 100;
const MAX_SHOWN_CHARS: usize = 200_000;

pub(super) fn list(open: &[Approval], now: Millis, as_json: bool) {
    if as_json {
        crate::render::say_json(&json!(open));
        return;
    }
    if open.is_empty() {
        eprintln!("nothing is asked");
    }
    for approval in open {
        let asked = approval.question.as_ref().and_then(|question| question.get("message")?.as_str());
        let asked = asked.map_or_else(|| approval.input.to_string(), |message| format!("asks: {message}"));
        let arguments = plain(&asked.replace('\n', " "), MAX_LINE_CHARS);
        println!("{}  {}  {}  {arguments}", approval.approval_id, tool(approval), left(approval, now));
    }
}

pub(super) fn whole(approval: &Approval, now: Millis, as_json: bool) {
    if as_json {
        crate::render::say_json(&json!(approval));
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
    if let Some(question) = &approval.question {
        question_of(question, &approval.approval_id);
    }
}

/// What a tool asks, and how it is answered here. A page is shown, and never opened.
fn question_of(question: &Value, id: &str) {
    let text = |name: &str| question.get(name).and_then(Value::as_str);
    println!("asks       {}", plain(text("message").unwrap_or_default(), MAX_SHOWN_CHARS));
    if let Some(url) = text("url") {
        println!("page       {}", plain(url, MAX_SHOWN_CHARS));
        println!("answer     visit it where you trust it, then: cellmate approvals approve {id}");
    }
    if let Some(form) = question.get("form") {
        let form = serde_json::to_string_pretty(form).unwrap_or_default();
        println!("form       {}", plain(&form, MAX_SHOWN_CHARS));
        println!("answer     cellmate approvals approve {id} --input '{{…}}'");
    }
}

pub(super) fn decided(approval: &Approval, as_json: bool) {
    if as_json {
        crate::render::say_json(&json!(approval));
        return;
    }
    let word = if approval.state == ApprovalState::Denied { "denied" } else { "approved" };
    println!("{word}  {}  {}", approval.approval_id, tool(approval));
}

fn left(approval: &Approval, now: Millis) -> String {
    let seconds = approval.expires_at.saturating_sub(now).max(0) / 1000;
    if seconds >= 120 { format!("{} min", seconds / 60) } else { format!("{seconds} s") }
}
