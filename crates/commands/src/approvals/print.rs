//! Prints approvals and decisions, as text or as JSON.

use client_config::display;
use contract::limits::MAX_LISTED_ARGUMENT_CHARS;
use mcp::server::{plain, summarize_in_line, whole_arguments};
use serde_json::{Value, json};
use store::{Approval, ApprovalState, Millis, RecordedDecision};

use super::form::sample_answer;
use super::tool;
use crate::hint;
use crate::render::OutputFormat;

/// The longest question of a tool that `show` prints.
const MAX_SHOWN_CHARS: usize = 200_000;

pub(super) fn list(open: &[Approval], now: Millis, format: OutputFormat) {
    if format == OutputFormat::Json {
        crate::render::print_json(&json!(open));
        return;
    }
    if open.is_empty() {
        eprintln!("no pending approvals");
    }
    for approval in open {
        let asked = approval.question.as_ref().and_then(|question| question.get("message")?.as_str());
        let asked = match asked {
            Some(message) => format!("asks: {}", plain(&message.replace('\n', " "), MAX_LISTED_ARGUMENT_CHARS)),
            None => summarize_in_line(&approval.input, MAX_LISTED_ARGUMENT_CHARS).text,
        };
        println!("{}  {asked}", heading(approval, now));
    }
}

/// Returns the approval's id, its tool and the time left to decide it, on one line.
pub(super) fn heading(approval: &Approval, now: Millis) -> String {
    format!("{}  {}  {} left", approval.approval_id, tool(approval), left(approval, now))
}

/// Prints all of an approval, without cutting its arguments. `hint` says how such approvals can be avoided.
pub(super) fn details(approval: &Approval, hint: Option<&str>, now: Millis, format: OutputFormat) {
    if format == OutputFormat::Json {
        crate::render::print_json(&json!(approval));
        return;
    }
    println!("id         {}", approval.approval_id);
    println!("tool       {}", tool(approval));
    println!("agent      {}", plain(&approval.agent_id, 100));
    println!("run        {}", approval.run_id);
    println!("reason     {}", plain(&approval.reason, 1_000));
    hint.iter().for_each(|hint| println!("note       {hint}"));
    println!("time left  {}", left(approval, now));
    println!("arguments  {}", whole_arguments(&approval.input));
    if let Some(question) = &approval.question {
        print_question(question, &approval.approval_id);
    }
}

/// Prints what a tool asks, and the command that answers it. A page's address is printed; the page is never opened.
fn print_question(question: &Value, id: &str) {
    let text = |name: &str| question.get(name).and_then(Value::as_str);
    println!("asks       {}", plain(text("message").unwrap_or_default(), MAX_SHOWN_CHARS));
    if let Some(url) = text("url") {
        println!("page       {}", plain(url, MAX_SHOWN_CHARS));
        println!("answer     visit the page if you trust it, then run: cellmate approvals approve {id}");
    }
    if let Some(form) = question.get("form") {
        println!("form       {}", whole_arguments(form));
        let sample = sample_answer(form);
        let sample = display::for_shell(&sample);
        println!("answer     {}, for example", hint::command(&format!("approvals approve {id} --input {sample}")));
    }
}

/// Prints a decision, and the other approvals that it decided.
pub(super) fn decided(recorded: &RecordedDecision, format: OutputFormat) {
    if format == OutputFormat::Json {
        recorded.approvals().for_each(|approval| crate::render::print_json(&json!(approval)));
        return;
    }
    let approval = &recorded.approval;
    let word = if approval.state == ApprovalState::Denied { "denied" } else { "approved" };
    println!("{word}  {}  {}", approval.approval_id, tool(approval));
    for covered in &recorded.covered {
        println!("approved  {}  {}  (covered by the standing approval)", covered.approval_id, tool(covered));
    }
}

fn left(approval: &Approval, now: Millis) -> String {
    let seconds = approval.expires_at.saturating_sub(now).max(0) / 1000;
    if seconds >= 120 { format!("{} min", seconds / 60) } else { format!("{seconds} s") }
}
