//! A person's word asked for through the client: the form, and what an answer to it means.

use serde_json::{Value, json};
use store::{Approval, Decision, Reach};

use super::plain::plain;

/// What is shown of a call's arguments and of why it is asked about. The whole is in `cellmate approvals show`.
const MAX_ARGUMENT_CHARS: usize = 2_000;
const MAX_REASON_CHARS: usize = 300;
const MAX_TOOL_CHARS: usize = 200;

const ONCE: &str = "approve once";
const ALWAYS: &str = "approve always";
const DENY: &str = "deny";

/// What a person says who is not at a terminal of ours.
const DENIED: &str = "denied when asked through the client";

/// The words above a form.
pub(crate) fn message(approval: &Approval) -> String {
    let arguments = serde_json::to_string_pretty(&approval.input).unwrap_or_default();
    format!(
        "Allow a call of {}?\nArguments: {}\nWhy this is asked: {}.\n\"{ALWAYS}\" also holds for later calls of this tool.",
        tool(approval),
        plain(&arguments, MAX_ARGUMENT_CHARS),
        plain(&approval.reason, MAX_REASON_CHARS),
    )
}

/// What is told of a call that holds on for people.
pub(crate) fn waiting(asked: &[Approval]) -> String {
    let one = |approval: &Approval| format!("{} (cellmate approvals approve {})", tool(approval), approval.approval_id);
    let first = asked.first().map_or_else(String::new, one);
    format!("waiting for a person to approve {first}")
}

/// A tool as people read it: `github.create_issue`.
pub(crate) fn tool(approval: &Approval) -> String {
    let name = approval.tool_id.split_once(':').map_or(approval.tool_id.as_str(), |(_, rest)| rest);
    plain(&name.replacen(':', ".", 1), MAX_TOOL_CHARS)
}

/// One field, in the form that all revisions of the protocol know.
pub(crate) fn schema() -> Value {
    let decision = json!({"type": "string", "title": "Decision", "enum": [ONCE, ALWAYS, DENY]});
    json!({"type": "object", "properties": {"decision": decision}, "required": ["decision"]})
}

/// What an answer decides. Whoever closes the form has said nothing, and can still be heard in another way.
pub(crate) fn decision(answer: &Value) -> Option<Decision> {
    let deny = || Decision::Deny { note: DENIED.to_owned() };
    match answer.get("action")?.as_str()? {
        "accept" => match answer.pointer("/content/decision")?.as_str()? {
            ONCE => Some(Decision::Approve { edited_input: None, reach: Reach::Once }),
            ALWAYS => Some(Decision::Approve { edited_input: None, reach: Reach::Agent }),
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
    use store::{Approval, ApprovalState, Decision, Reach};

    use super::{decision, message};

    #[test]
    fn only_a_clear_word_decides() {
        let accept = |word: &str| json!({"action": "accept", "content": {"decision": word}});
        let yes = |reach| Some(Decision::Approve { edited_input: None, reach });
        assert_eq!(decision(&accept("approve once")), yes(Reach::Once));
        assert_eq!(decision(&accept("approve always")), yes(Reach::Agent));
        for no in [accept("deny"), json!({"action": "decline"})] {
            assert!(matches!(decision(&no), Some(Decision::Deny { .. })), "{no}");
        }
        for nothing in [accept("yes"), json!({"action": "accept"}), json!({"action": "cancel"}), Value::Null] {
            assert_eq!(decision(&nothing), None, "{nothing}");
        }
    }

    #[test]
    fn a_form_shows_the_call_and_nothing_that_hides() {
        let approval = Approval {
            approval_id: "apr_1".to_owned(),
            run_id: "cm_1".to_owned(),
            call: 1,
            agent_id: String::new(),
            session_id: String::new(),
            tool_id: "mcp:git:push".to_owned(),
            tool_hash: String::new(),
            input: json!({"to": "a\u{202e}b", "long": "x".repeat(5000)}),
            input_hash: String::new(),
            reason: "because".to_owned(),
            state: ApprovalState::Pending,
            requested_at: 0,
            expires_at: 1,
            decided_by: None,
            note: None,
            edited_input: None,
        };
        let message = message(&approval);
        assert!(message.starts_with("Allow a call of git.push?\nArguments: {\n  \"to\": \"a\\u{202e}b\""), "{message}");
        assert!(message.chars().count() < 2_600, "{message}");
    }
}
