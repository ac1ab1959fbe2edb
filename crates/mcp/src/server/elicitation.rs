//! Forms that the client shows to its user, and the meaning of their answers. A form asks the user to approve a call,
//! or passes on a tool's question.

use contract::limits::MAX_FORM_ARGUMENT_CHARS;
use executor::{Question, QuestionKind};
use serde_json::{Value, json};
use store::{Approval, ApprovalScope, Decision};

use super::plain;
use super::summary::summarize_arguments;

const MAX_REASON_CHARS: usize = 300;
const MAX_TOOL_CHARS: usize = 200;

const ONCE: &str = "approve once";
const ALWAYS: &str = "approve always";
const DENY: &str = "deny";
const VISITED: &str = "I have visited the page";

/// The maximum length of a tool's own text in a form.
const MAX_QUESTION_CHARS: usize = 1_000;
const MAX_URL_CHARS: usize = 2_048;

/// The note stored with a denial that came through the client.
const DENIED: &str = "denied when asked through the client";

/// Returns the tool's question, or `None` if the approval asks whether the tool may be called.
pub(crate) fn question(approval: &Approval) -> Option<Question> {
    approval.question.as_ref().and_then(Question::from_json)
}

/// Returns a tool's question as text for people and models. The address of a page is shown; Cellmate never opens it.
pub(crate) fn asked(ask: &Question) -> String {
    let message = plain(&ask.message, MAX_QUESTION_CHARS);
    match &ask.kind {
        QuestionKind::Form(_) => message,
        QuestionKind::Url(url) => format!("{message} (a page to visit: {})", plain(url, MAX_URL_CHARS)),
    }
}

/// Returns the text above a form.
pub(crate) fn message(approval: &Approval) -> String {
    match question(approval) {
        Some(ask) if matches!(ask.kind, QuestionKind::Url(_)) => format!(
            "The tool {} asks you to visit a page.\nIt says: {}\nCheck that you trust the address before you open it.",
            tool(approval),
            asked(&ask)
        ),
        Some(ask) => format!("The tool {} asks for your input.\nIt says: {}", tool(approval), asked(&ask)),
        None => permission(approval),
    }
}

fn permission(approval: &Approval) -> String {
    let arguments = summarize_arguments(&approval.input, MAX_FORM_ARGUMENT_CHARS);
    let cut = match arguments.is_cut {
        true => format!(
            "\nThe arguments are shortened. Run `cellmate approvals show {}` to see all of them.",
            approval.approval_id
        ),
        false => String::new(),
    };
    format!(
        "Allow a call to {}?\nArguments: {}{cut}\nReason: {}.\n\"{ALWAYS}\" also applies to later calls to this tool.",
        tool(approval),
        arguments.text,
        plain(&approval.reason, MAX_REASON_CHARS),
    )
}

/// Returns the progress message of a call that waits for a person. Models may read it, so it contains no command that
/// approves.
pub(crate) fn waiting(asked: &[Approval]) -> String {
    let one = |approval: &Approval| {
        let what = if approval.question.is_some() { "answer" } else { "approve" };
        format!(
            "waiting for a person to {what} {} ({}) with `cellmate approvals`",
            tool(approval),
            approval.approval_id
        )
    };
    asked.first().map_or_else(String::new, one)
}

/// Returns the display name of the approval's tool, such as `github.create_issue`.
pub(crate) fn tool(approval: &Approval) -> String {
    let name = approval.tool_id.split_once(':').map_or(approval.tool_id.as_str(), |(_, rest)| rest);
    plain(&name.replacen(':', ".", 1), MAX_TOOL_CHARS)
}

/// Returns the form's schema: one choice, in the form that all revisions of the protocol know, or the fields that the
/// tool asks for.
pub(crate) fn schema(approval: &Approval) -> Value {
    let choices: &[&str] = match question(approval) {
        Some(Question { kind: QuestionKind::Form(schema), .. }) => return schema,
        Some(Question { kind: QuestionKind::Url(_), .. }) => &[VISITED, DENY],
        None => &[ONCE, ALWAYS, DENY],
    };
    let decision = json!({"type": "string", "title": "Decision", "enum": choices});
    json!({"type": "object", "properties": {"decision": decision}, "required": ["decision"]})
}

/// Returns the decision in an answer. A user who closes the form has decided nothing and can still decide elsewhere.
pub(crate) fn decision(approval: &Approval, answer: &Value) -> Option<Decision> {
    let deny = || Decision::Deny { note: DENIED.to_owned() };
    match answer.get("action")?.as_str()? {
        "accept" if matches!(question(approval), Some(Question { kind: QuestionKind::Form(_), .. })) => {
            let edited_input = Some(answer.get("content").cloned().unwrap_or_else(|| json!({})));
            Some(Decision::Approve { edited_input, reach: ApprovalScope::Once })
        }
        "accept" => match answer.pointer("/content/decision")?.as_str()? {
            ONCE | VISITED => Some(Decision::Approve { edited_input: None, reach: ApprovalScope::Once }),
            ALWAYS => Some(Decision::Approve { edited_input: None, reach: ApprovalScope::Agent }),
            DENY => Some(deny()),
            _ => None,
        },
        "decline" => Some(deny()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use store::{Approval, ApprovalScope, Decision};

    use super::{decision, message, schema, waiting};

    fn approval(question: Option<Value>) -> Approval {
        let input = json!({"to": "a\u{202e}b", "long": "x".repeat(5000)});
        let (tool_id, reason) = ("mcp:git:push".to_owned(), "because".to_owned());
        Approval { approval_id: "apr_1".into(), tool_id, input, reason, question, ..Approval::default() }
    }

    #[test]
    fn a_tools_question_is_answered_or_declined() {
        let form = json!({"type": "object", "properties": {"city": {"type": "string"}}});
        let asks = approval(Some(json!({"key": "k", "message": "Where\u{202e}?", "form": form})));
        assert_eq!(message(&asks), "The tool git.push asks for your input.\nIt says: Where\\u{202e}?");
        assert_eq!(schema(&asks), form);
        let decide = |content: Value| decision(&asks, &json!({"action": "accept", "content": content}));
        let filled = Some(json!({"decision": "deny"}));
        let expected = Some(Decision::Approve { edited_input: filled, reach: ApprovalScope::Once });
        assert_eq!(decide(json!({"decision": "deny"})), expected);
        assert!(matches!(decision(&asks, &json!({"action": "decline"})), Some(Decision::Deny { .. })));
        assert_eq!(decision(&asks, &json!({"action": "cancel"})), None);

        let page = approval(Some(json!({"key": "k", "message": "Log in.", "url": "https://example.com/x"})));
        assert!(message(&page).contains("https://example.com/x"), "{}", message(&page));
        let visited = json!({"action": "accept", "content": {"decision": "I have visited the page"}});
        let yes = Some(Decision::Approve { edited_input: None, reach: ApprovalScope::Once });
        assert_eq!(decision(&page, &visited), yes);
    }

    #[test]
    fn only_an_exact_choice_decides() {
        let accept = |word: &str| json!({"action": "accept", "content": {"decision": word}});
        let asked = approval(None);
        let decision = |answer: &Value| decision(&asked, answer);
        let yes = |reach| Some(Decision::Approve { edited_input: None, reach });
        assert_eq!(decision(&accept("approve once")), yes(ApprovalScope::Once));
        assert_eq!(decision(&accept("approve always")), yes(ApprovalScope::Agent));
        for no in [accept("deny"), json!({"action": "decline"})] {
            assert!(matches!(decision(&no), Some(Decision::Deny { .. })), "{no}");
        }
        for nothing in [accept("yes"), json!({"action": "accept"}), json!({"action": "cancel"}), Value::Null] {
            assert_eq!(decision(&nothing), None, "{nothing}");
        }
    }

    #[test]
    fn a_form_shows_the_call_with_invisible_characters_escaped() {
        let approval = approval(None);
        let message = message(&approval);
        assert!(message.starts_with("Allow a call to git.push?\nArguments: {\n  \"to\": \"a\\u{202e}b\""), "{message}");
        assert!(message.chars().count() < 2_600, "{message}");
        assert!(
            message.contains("characters missing") && message.contains("`cellmate approvals show apr_1`"),
            "{message}"
        );
    }

    #[test]
    fn progress_names_the_approval_but_no_command_that_approves() {
        let message = waiting(&[approval(None)]);
        assert_eq!(message, "waiting for a person to approve git.push (apr_1) with `cellmate approvals`");
    }
}
