//! A call as it is put to a person on a terminal, and what they type.

use std::io::{BufRead, IsTerminal, Read, Write, stderr, stdin};

use contract::limits::MAX_TERMINAL_ARGUMENT_CHARS;
use mcp::server::{plain, summarize_arguments};
use serde_json::Value;
use store::{Approval, ApprovalScope, Decision};

/// The longest line that is read; a form's answer may be long.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// Whether there is a person to show a call to and to hear.
pub(crate) fn is_here() -> bool {
    stdin().is_terminal() && stderr().is_terminal()
}

/// The call with its arguments, cut where they are long.
pub(crate) fn call(approval: &Approval) -> String {
    let (tool, reason) = (plain(&approval.tool_id, 200), plain(&approval.reason, 1_000));
    format!("{tool}: {reason}\n{}", arguments(&approval.input, &approval.approval_id))
}

pub(super) fn arguments(input: &Value, id: &str) -> String {
    let summary = summarize_arguments(input, MAX_TERMINAL_ARGUMENT_CHARS);
    let cut = if summary.is_cut {
        format!("\nThis is not all of it. `cellmate approvals show {}` shows the whole.", plain(id, 100))
    } else {
        String::new()
    };
    format!("{}{cut}", summary.text)
}

/// What a tool asks; none where it is asked whether a call may be made.
pub(super) fn question(approval: &Approval) -> Option<String> {
    let question = approval.question.as_ref()?;
    let text = |name: &str| question.get(name).and_then(Value::as_str);
    let mut shown = format!("The tool asks: {}", plain(text("message").unwrap_or("something"), 4_000));
    if let Some(url) = text("url") {
        shown += &format!("\nIt wants you to visit this page, if you trust it: {}", plain(url, 4_000));
    }
    if let Some(form) = question.get("form") {
        shown += &format!("\nIts form: {}", arguments(form, &approval.approval_id));
    }
    Some(shown)
}

/// Asks, and reads one line. None where the terminal is closed.
pub(crate) async fn ask(prompt: &str) -> Option<String> {
    eprint!("{prompt}");
    drop(stderr().flush());
    let read = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        stdin().lock().take(MAX_LINE_BYTES).read_line(&mut line).map(|bytes| (bytes > 0).then_some(line))
    });
    read.await.ok().and_then(Result::ok).flatten()
}

/// What a line says to one of the questions that `cellmate approvals` goes through.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer {
    Decide(Decision),
    Skip,
    Unclear(String),
}

/// Only plain words decide.
pub(super) fn understood(approval: &Approval, line: &str) -> Answer {
    let approve = |edited_input, reach| Answer::Decide(Decision::Approve { edited_input, reach });
    let is_form = approval.question.as_ref().is_some_and(|question| question.get("form").is_some());
    let is_question = approval.question.is_some();
    match line.trim().to_ascii_lowercase().as_str() {
        "" | "s" | "skip" => Answer::Skip,
        "n" | "no" => Answer::Decide(Decision::Deny { note: String::new() }),
        "y" | "yes" if !is_form => approve(None, ApprovalScope::Once),
        "a" | "always" if !is_question => approve(None, ApprovalScope::Agent),
        _ if is_form => match contract::json::read(line.trim()) {
            Ok(input @ Value::Object(_)) => approve(Some(input), ApprovalScope::Once),
            Ok(_) | Err(_) => Answer::Unclear("a form is filled in with one JSON object on one line".to_owned()),
        },
        _ => Answer::Unclear("type one of the words".to_owned()),
    }
}

pub(super) fn choices(approval: &Approval) -> &'static str {
    match &approval.question {
        None => "call it? [y]es, [a]lways, [n]o, [S]kip: ",
        Some(question) if question.get("form").is_some() => "answer with one JSON object, or [n]o, [S]kip: ",
        Some(_) => "have you been there? [y]es, [n]o, [S]kip: ",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use store::{Approval, ApprovalScope, ApprovalState, Decision};

    use super::{Answer, call, understood};

    fn approval(input: Value, question: Option<Value>) -> Approval {
        Approval {
            approval_id: "apr_1".to_owned(),
            run_id: "cm_1".to_owned(),
            call: 1,
            agent_id: String::new(),
            session_id: String::new(),
            tool_id: "mcp:s:push".to_owned(),
            tool_hash: String::new(),
            source_identity: None,
            input,
            input_hash: String::new(),
            reason: "because".to_owned(),
            state: ApprovalState::Pending,
            requested_at: 0,
            expires_at: 1,
            decided_by: None,
            note: None,
            edited_input: None,
            question,
        }
    }

    #[test]
    fn only_plain_words_decide() {
        let yes = |edited_input, reach| Answer::Decide(Decision::Approve { edited_input, reach });
        let no = Answer::Decide(Decision::Deny { note: String::new() });
        let asked = approval(json!({}), None);
        for (line, answer) in [
            ("y\n", yes(None, ApprovalScope::Once)),
            (" YES \n", yes(None, ApprovalScope::Once)),
            ("a\n", yes(None, ApprovalScope::Agent)),
            ("no\n", no.clone()),
            ("\n", Answer::Skip),
            ("s\n", Answer::Skip),
        ] {
            assert_eq!(understood(&asked, line), answer, "{line:?}");
        }
        for line in ["yep\n", "yes please\n", "ja\n", "{}\n"] {
            assert!(matches!(understood(&asked, line), Answer::Unclear(_)), "{line:?}");
        }
        let form = approval(json!({}), Some(json!({"key": "k", "message": "m", "form": {}})));
        assert_eq!(understood(&form, "{\"a\":1}\n"), yes(Some(json!({"a": 1})), ApprovalScope::Once));
        assert_eq!(understood(&form, "n\n"), no);
        for line in ["y\n", "a\n", "7\n"] {
            assert!(matches!(understood(&form, line), Answer::Unclear(_)), "{line:?}");
        }
        let page = approval(json!({}), Some(json!({"key": "k", "message": "m", "url": "https://example.com"})));
        assert_eq!(understood(&page, "y\n"), yes(None, ApprovalScope::Once));
        assert!(matches!(understood(&page, "a\n"), Answer::Unclear(_)));
    }

    #[test]
    fn a_call_is_shown_with_every_key_and_the_command_that_shows_the_whole() {
        let text = call(&approval(json!({"note": "tidy up ".repeat(2_000), "target": "/home/me\u{202e}"}), None));
        assert!(text.contains(r#""target": "/home/me\u{202e}""#), "{text}");
        assert!(text.contains("characters missing") && text.contains("`cellmate approvals show apr_1`"), "{text}");
        assert!(text.chars().count() < contract::limits::MAX_TERMINAL_ARGUMENT_CHARS + 200);
    }
}
