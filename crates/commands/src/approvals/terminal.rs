//! Approvals on a terminal: how a call is shown, and how the typed answer is read.

use std::io::{BufRead, IsTerminal, Read, Write, stderr, stdin};

use mcp::server::{plain, summarize_arguments};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde_json::Value;
use store::{Approval, ApprovalScope, Decision};
use telemetry::LogIgnored;
use tokio_util::sync::CancellationToken;

use super::form::{field_list, sample_answer};
use crate::{call_progress, hint};

/// The longest answer that is read; the answer to a form may be long.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// How often a pending question looks whether it was withdrawn.
const WITHDRAWAL_CHECK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Whether calls can be shown to the user and answers read: standard input and standard error are terminals.
pub(crate) fn is_interactive() -> bool {
    stdin().is_terminal() && stderr().is_terminal()
}

/// Returns the call's tool, reason and arguments, which are cut to `chars`.
pub(crate) fn call(approval: &Approval, chars: usize) -> String {
    let (tool, reason) = (plain(&approval.tool_id, 200), plain(&approval.reason, 1_000));
    format!("{tool}: {reason}\n{}", arguments(&approval.input, &approval.approval_id, chars))
}

pub(super) fn arguments(input: &Value, id: &str, chars: usize) -> String {
    let summary = summarize_arguments(input, chars);
    let cut = if summary.is_cut {
        let show = hint::command(&format!("approvals show {}", plain(id, 100)));
        format!("\nThis is cut. `{show}` shows all of it.")
    } else {
        String::new()
    };
    format!("{}{cut}", summary.text)
}

/// Returns what a tool asks, or `None` if the approval is about making a call.
pub(crate) fn question(approval: &Approval) -> Option<String> {
    let question = approval.question.as_ref()?;
    let text = |name: &str| question.get(name).and_then(Value::as_str);
    let mut shown = format!("The tool asks: {}", plain(text("message").unwrap_or("(no message)"), 4_000));
    if let Some(url) = text("url") {
        shown += &format!("\nVisit this page if you trust it: {}", plain(url, 4_000));
    }
    if let Some(form) = question.get("form") {
        shown += &format!("\nAnswer with these fields:{}", field_list(form));
        shown += &format!("\nFor example: {}", sample_answer(form));
    }
    Some(shown)
}

/// The line of a prompt. If the user has not ended it, it is ended on drop, so that the next message has a line of its own.
struct PromptLine {
    is_ended: bool,
}

impl Drop for PromptLine {
    fn drop(&mut self) {
        if !self.is_ended {
            // Without a panic: standard error may be closed.
            writeln!(stderr()).log_expected("end the line of a question");
        }
    }
}

/// Prints the prompt and reads one line. Returns `None` if standard input is closed.
///
/// If the future is dropped, the question is withdrawn: what is typed afterwards is left to the next reader.
pub(crate) async fn ask(prompt: &str) -> Option<String> {
    let _question = call_progress::question();
    eprint!("{prompt}");
    stderr().flush().log_expected("print a question");
    let mut line = PromptLine { is_ended: false };
    let withdrawn = CancellationToken::new();
    let _withdraws = withdrawn.clone().drop_guard();
    let read = tokio::task::spawn_blocking(move || {
        while !withdrawn.is_cancelled() {
            if is_readable()? && !withdrawn.is_cancelled() {
                let mut line = String::new();
                let bytes = stdin().lock().take(MAX_LINE_BYTES).read_line(&mut line)?;
                return Ok((bytes > 0).then_some(line));
            }
        }
        Ok::<_, std::io::Error>(None)
    });
    let answer = read.await.ok().and_then(Result::ok).flatten();
    line.is_ended = answer.as_ref().is_some_and(|answer| answer.ends_with('\n'));
    answer
}

/// Waits a little for a typed line. A terminal is readable when a line is complete, so that reading it does not block.
fn is_readable() -> std::io::Result<bool> {
    let stdin = stdin();
    let mut typed = [PollFd::new(&stdin, PollFlags::IN)];
    match poll(&mut typed, Some(&WITHDRAWAL_CHECK)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// An answer that the user typed to one of the approvals under review.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    Decide(Decision),
    Skip,
}

/// What Enter means at a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnEnter {
    /// The approval stays pending.
    Skip,
    /// The call is denied, because the command itself waits for it.
    Deny,
}

/// Asks until the user types one of the listed answers. Returns `None` if standard input is closed.
pub(crate) async fn ask_for_decision(approval: &Approval, on_enter: OnEnter) -> Option<Answer> {
    loop {
        let line = ask(choices(approval, on_enter)).await?;
        match parse_answer(approval, on_enter, &line) {
            Ok(answer) => return Some(answer),
            Err(unclear) => eprintln!("{unclear}"),
        }
    }
}

/// Parses a typed answer. Anything but the listed answers is unclear, never a decision.
fn parse_answer(approval: &Approval, on_enter: OnEnter, line: &str) -> Result<Answer, &'static str> {
    let approve = |edited_input, reach| Ok(Answer::Decide(Decision::Approve { edited_input, reach }));
    let is_form = approval.question.as_ref().is_some_and(|question| question.get("form").is_some());
    let is_question = approval.question.is_some();
    match line.trim().to_ascii_lowercase().as_str() {
        "" | "s" | "skip" if on_enter == OnEnter::Skip => Ok(Answer::Skip),
        "" | "n" | "no" => Ok(Answer::Decide(Decision::Deny { note: String::new() })),
        "y" | "yes" if !is_form => approve(None, ApprovalScope::Once),
        "a" | "always" if !is_question => approve(None, ApprovalScope::Agent),
        _ if is_form => match contract::json::read(line.trim()) {
            Ok(input @ Value::Object(_)) => approve(Some(input), ApprovalScope::Once),
            Ok(_) | Err(_) => Err("answer the form with one JSON object on one line"),
        },
        _ => Err("type one of the listed answers"),
    }
}

fn choices(approval: &Approval, on_enter: OnEnter) -> &'static str {
    match (&approval.question, on_enter) {
        (None, OnEnter::Skip) => "call it? [y]es, [a]lways, [n]o, [S]kip: ",
        (None, OnEnter::Deny) => "call it? [y]es, [a]lways, [N]o: ",
        (Some(question), OnEnter::Skip) if question.get("form").is_some() => {
            "answer with one JSON object, or [n]o, [S]kip: "
        }
        (Some(question), OnEnter::Deny) if question.get("form").is_some() => "answer with one JSON object, or [N]o: ",
        (Some(_), OnEnter::Skip) => "have you visited the page? [y]es, [n]o, [S]kip: ",
        (Some(_), OnEnter::Deny) => "have you visited the page? [y]es, [N]o: ",
    }
}

#[cfg(test)]
mod tests {
    use contract::limits::MAX_TERMINAL_ARGUMENT_CHARS;
    use serde_json::{Value, json};
    use store::{Approval, ApprovalScope, Decision};

    use super::{Answer, OnEnter, call};

    fn parse_answer(approval: &Approval, line: &str) -> Result<Answer, &'static str> {
        super::parse_answer(approval, OnEnter::Skip, line)
    }

    fn approval(input: Value, question: Option<Value>) -> Approval {
        let (tool_id, reason) = ("mcp:s:push".to_owned(), "because".to_owned());
        Approval { approval_id: "apr_1".into(), tool_id, input, reason, question, ..Approval::default() }
    }

    #[test]
    fn only_the_listed_answers_decide() {
        let yes = |edited_input, reach| Ok(Answer::Decide(Decision::Approve { edited_input, reach }));
        let no = Ok(Answer::Decide(Decision::Deny { note: String::new() }));
        let asked = approval(json!({}), None);
        for (line, answer) in [
            ("y\n", yes(None, ApprovalScope::Once)),
            (" YES \n", yes(None, ApprovalScope::Once)),
            ("a\n", yes(None, ApprovalScope::Agent)),
            ("no\n", no.clone()),
            ("\n", Ok(Answer::Skip)),
            ("s\n", Ok(Answer::Skip)),
        ] {
            assert_eq!(parse_answer(&asked, line), answer, "{line:?}");
        }
        for line in ["yep\n", "yes please\n", "ja\n", "{}\n"] {
            assert!(parse_answer(&asked, line).is_err(), "{line:?}");
        }
        let form = approval(json!({}), Some(json!({"key": "k", "message": "m", "form": {}})));
        assert_eq!(parse_answer(&form, "{\"a\":1}\n"), yes(Some(json!({"a": 1})), ApprovalScope::Once));
        assert_eq!(parse_answer(&form, "n\n"), no);
        for line in ["y\n", "a\n", "7\n"] {
            assert!(parse_answer(&form, line).is_err(), "{line:?}");
        }
        let page = approval(json!({}), Some(json!({"key": "k", "message": "m", "url": "https://example.com"})));
        assert_eq!(parse_answer(&page, "y\n"), yes(None, ApprovalScope::Once));
        assert!(parse_answer(&page, "a\n").is_err());
    }

    #[test]
    fn where_enter_denies_only_enter_and_no_deny_and_a_typo_is_unclear() {
        let asked = approval(json!({}), None);
        let answer = |line: &str| super::parse_answer(&asked, OnEnter::Deny, line);
        let yes = |reach| Ok(Answer::Decide(Decision::Approve { edited_input: None, reach }));
        for line in ["y\n", "YES\n", " yes "] {
            assert_eq!(answer(line), yes(ApprovalScope::Once), "{line:?}");
        }
        assert_eq!(answer("a\n"), yes(ApprovalScope::Agent));
        for line in ["", "\n", "n\n", "No\n"] {
            assert_eq!(answer(line), Ok(Answer::Decide(Decision::Deny { note: String::new() })), "{line:?}");
        }
        for line in ["yep\n", "yes please\n", "ja\n", "s\n", "skip\n", "x\n"] {
            assert_eq!(answer(line), Err("type one of the listed answers"), "{line:?}");
        }
    }

    #[test]
    fn a_cut_call_is_shown_with_every_key_and_the_command_that_shows_all_of_it() {
        let asked = approval(json!({"note": "tidy up ".repeat(2_000), "target": "/home/me\u{202e}"}), None);
        let text = call(&asked, MAX_TERMINAL_ARGUMENT_CHARS);
        assert!(text.contains(r#""target": "/home/me\u{202e}""#), "{text}");
        assert!(text.contains("characters missing") && text.contains("`cellmate approvals show apr_1`"), "{text}");
        assert!(text.chars().count() < MAX_TERMINAL_ARGUMENT_CHARS + 200);
    }
}
