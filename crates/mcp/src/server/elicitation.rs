//! Forms that the client shows to its user, and the meaning of their answers. A form asks the user to approve calls of a
//! run, or passes on a tool's question.

use contract::ids::ApprovalId;
use contract::limits::{MAX_FORM_ARGUMENT_CHARS, MAX_FORM_BATCH_CHARS, MAX_FORM_CALLS};
use contract::text;
use executor::{Question, QuestionKind};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{Approval, ApprovalScope, Decision};

use super::plain;
use super::summary::{summarize_arguments, summarize_in_line};

const MAX_REASON_CHARS: usize = 300;
const MAX_TOOL_CHARS: usize = 200;

const ONCE: &str = "approve once";
const ALWAYS: &str = "approve always";
const DENY: &str = "deny";
const ONE_BY_ONE: &str = "decide one by one";
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

/// Whether a form lists all calls of a run that wait for approval, or one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Grouping {
    #[default]
    Together,
    /// The user chose to decide the calls one by one.
    OneByOne,
}

/// A form: it asks whether some calls of a run may be made, or passes on one question of a tool.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Form {
    /// At least one; exactly one if it is a tool's question.
    approvals: Vec<Approval>,
    /// How many other calls of the run wait for approval.
    others: usize,
}

/// What the user answered to a form.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FormAnswer {
    /// The decision about everything in the form.
    Decide(Decision),
    /// Nothing is decided yet: the user wants a form for each call.
    OneByOne,
}

/// Returns the forms that can be shown at the same time: one about calls, and one for each question. Further calls are
/// asked about after the first form is answered, because *always* in the first may cover them.
pub(crate) fn forms(open: &[&Approval], grouping: Grouping) -> Vec<Form> {
    let (mut calls, questions): (Vec<&Approval>, Vec<&Approval>) =
        open.iter().copied().partition(|approval| approval.question.is_none());
    // In the order in which the cell made them.
    calls.sort_by_key(|approval| approval.call);
    let shown = match grouping {
        Grouping::Together => MAX_FORM_CALLS,
        Grouping::OneByOne => 1,
    };
    let first: Vec<Approval> = calls.iter().take(shown).map(|approval| (*approval).clone()).collect();
    let others = calls.len() - first.len();
    let calls = Some(Form { approvals: first, others }).filter(|form| !form.approvals.is_empty());
    let questions = questions.into_iter().map(|asked| Form { approvals: vec![asked.clone()], others: 0 });
    calls.into_iter().chain(questions).collect()
}

impl Form {
    pub(crate) fn approvals(&self) -> &[Approval] {
        &self.approvals
    }

    pub(crate) fn ids(&self) -> Vec<ApprovalId> {
        self.approvals.iter().map(|approval| approval.approval_id.clone()).collect()
    }

    /// Restores a form that was shown, from the approvals that it was about.
    pub(crate) fn shown(approvals: Vec<Approval>) -> Option<Self> {
        Some(Self { approvals, others: 0 }).filter(|form| !form.approvals.is_empty())
    }

    /// Returns the tool's question, or `None` if the form asks whether calls may be made.
    fn question(&self) -> Option<(&Approval, Question)> {
        self.approvals.iter().find_map(|approval| Some((approval, question(approval)?)))
    }

    /// Returns the text above the form.
    pub(crate) fn message(&self) -> String {
        match (self.question(), self.approvals.as_slice()) {
            (Some((approval, ask)), _) => asking(approval, &ask),
            (None, [approval]) => self.permission(approval),
            (None, approvals) => self.permissions(approvals),
        }
    }

    fn permission(&self, approval: &Approval) -> String {
        let arguments = summarize_arguments(&approval.input, MAX_FORM_ARGUMENT_CHARS);
        let cut = match arguments.is_cut {
            true => format!(
                "\nThe arguments are shortened. Run `cellmate approvals show {}` to see all of them.",
                approval.approval_id
            ),
            false => String::new(),
        };
        format!(
            "Allow a call to {}?\nArguments: {}{cut}\nReason: {}.\n\"{ALWAYS}\" also applies to other calls to this \
             tool.{}",
            tool(approval),
            arguments.text,
            reason(approval),
            self.more()
        )
    }

    /// Lists several calls, each on one line.
    fn permissions(&self, approvals: &[Approval]) -> String {
        let budget = MAX_FORM_BATCH_CHARS / approvals.len().max(1);
        let first = approvals.first().map(reason).unwrap_or_default();
        let has_one_reason = approvals.iter().all(|approval| reason(approval) == first);
        let mut message = format!("Allow these {} calls?", approvals.len());
        let mut is_cut = false;
        for (number, approval) in approvals.iter().enumerate() {
            let arguments = summarize_in_line(&approval.input, budget);
            is_cut |= arguments.is_cut;
            message += &format!("\n{}. {} {}", number + 1, tool(approval), arguments.text);
            if arguments.is_cut {
                message += &format!(" (shortened: {})", approval.approval_id);
            }
            if !has_one_reason {
                message += &format!(" (reason: {})", reason(approval));
            }
        }
        if is_cut {
            message += "\nRun `cellmate approvals show ID` to see all arguments of a call that is shortened.";
        }
        if has_one_reason {
            message += &format!("\nReason: {first}.");
        }
        message += &format!(
            "\nYour decision applies to all of them. \"{ALWAYS}\" also applies to other calls to these tools.{}",
            self.more()
        );
        message
    }

    fn more(&self) -> String {
        match self.others {
            0 => String::new(),
            1 => "\n1 more call waits; you are asked about it next.".to_owned(),
            others => format!("\n{others} more calls wait; you are asked about them next."),
        }
    }

    /// Returns the form's schema: one choice, in the form that all revisions of the protocol know, or the fields that
    /// the tool asks for.
    pub(crate) fn schema(&self) -> Value {
        let choices: &[&str] = match (self.question(), self.approvals.len()) {
            (Some((_, Question { kind: QuestionKind::Form(schema), .. })), _) => return schema,
            (Some((_, Question { kind: QuestionKind::Url(_), .. })), _) => &[VISITED, DENY],
            (None, 1) => &[ONCE, ALWAYS, DENY],
            (None, _) => &[ONCE, ALWAYS, DENY, ONE_BY_ONE],
        };
        let mut decision = json!({"type": "string", "title": "Decision", "enum": choices});
        if let (true, Some(fields)) = (choices.contains(&ONCE), decision.as_object_mut()) {
            // Clients that show defaults need one key less.
            fields.insert("default".to_owned(), json!(ONCE));
        }
        json!({"type": "object", "properties": {"decision": decision}, "required": ["decision"]})
    }

    /// Returns what the user answered. A user who closes the form has decided nothing and can still decide elsewhere.
    pub(crate) fn answer(&self, answer: &Value) -> Option<FormAnswer> {
        let approve = |edited_input, reach| Some(FormAnswer::Decide(Decision::Approve { edited_input, reach }));
        let deny = || Some(FormAnswer::Decide(Decision::Deny { note: DENIED.to_owned() }));
        match answer.get("action")?.as_str()? {
            "accept" if matches!(self.question(), Some((_, Question { kind: QuestionKind::Form(_), .. }))) => {
                let content = answer.get("content").cloned().unwrap_or_else(|| json!({}));
                approve(Some(content), ApprovalScope::Once)
            }
            "accept" => match answer.pointer("/content/decision")?.as_str()? {
                ONCE | VISITED => approve(None, ApprovalScope::Once),
                ALWAYS => approve(None, ApprovalScope::Agent),
                DENY => deny(),
                ONE_BY_ONE if self.approvals.len() > 1 => Some(FormAnswer::OneByOne),
                _ => None,
            },
            "decline" => deny(),
            _ => None,
        }
    }
}

fn reason(approval: &Approval) -> String {
    text::line(&approval.reason, MAX_REASON_CHARS)
}

/// Returns the text above a form that passes on a tool's question.
fn asking(approval: &Approval, ask: &Question) -> String {
    match ask.kind {
        QuestionKind::Url(_) => format!(
            "The tool {} asks you to visit a page.\nIt says: {}\nCheck that you trust the address before you open it.",
            tool(approval),
            asked(ask)
        ),
        QuestionKind::Form(_) => {
            format!("The tool {} asks for your input.\nIt says: {}", tool(approval), asked(ask))
        }
    }
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

#[cfg(test)]
mod tests {
    use contract::ids::CallId;
    use contract::limits::MAX_FORM_CALLS;
    use serde_json::{Value, json};
    use store::{Approval, ApprovalScope, Decision};

    use super::{Form, FormAnswer, Grouping, forms, waiting};

    fn approval(question: Option<Value>) -> Approval {
        let input = json!({"to": "a\u{202e}b", "long": "x".repeat(5000)});
        let (tool_id, reason) = ("mcp:git:push".to_owned(), "because".to_owned());
        Approval { approval_id: "apr_1".into(), tool_id, input, reason, question, ..Approval::default() }
    }

    /// A call with its number as id and argument.
    fn call(number: usize) -> Approval {
        let (approval_id, number) = (format!("apr_{number}").into(), CallId(u32::try_from(number).unwrap()));
        Approval { approval_id, call: number, input: json!({"n": number.0}), ..approval(None) }
    }

    fn only(approval: Approval) -> Form {
        Form { approvals: vec![approval], others: 0 }
    }

    fn yes(edited_input: Option<Value>, reach: ApprovalScope) -> Option<FormAnswer> {
        Some(FormAnswer::Decide(Decision::Approve { edited_input, reach }))
    }

    fn is_denial(answer: Option<FormAnswer>) -> bool {
        matches!(answer, Some(FormAnswer::Decide(Decision::Deny { .. })))
    }

    fn choice(word: &str) -> Value {
        json!({"action": "accept", "content": {"decision": word}})
    }

    #[test]
    fn a_tools_question_is_answered_or_declined() {
        let form = json!({"type": "object", "properties": {"city": {"type": "string"}}});
        let asks = only(approval(Some(json!({"key": "k", "message": "Where\u{202e}?", "form": form}))));
        assert_eq!(asks.message(), "The tool git.push asks for your input.\nIt says: Where\\u{202e}?");
        assert_eq!(asks.schema(), form);
        let filled = Some(json!({"decision": "deny"}));
        assert_eq!(asks.answer(&choice("deny")), yes(filled, ApprovalScope::Once));
        assert!(is_denial(asks.answer(&json!({"action": "decline"}))));
        assert_eq!(asks.answer(&json!({"action": "cancel"})), None);

        let page = only(approval(Some(json!({"key": "k", "message": "Log in.", "url": "https://example.com/x"}))));
        assert!(page.message().contains("https://example.com/x"), "{}", page.message());
        assert_eq!(page.answer(&choice("I have visited the page")), yes(None, ApprovalScope::Once));
        assert_eq!(page.schema()["properties"]["decision"]["default"], Value::Null);
    }

    #[test]
    fn only_an_exact_choice_decides() {
        let form = only(approval(None));
        assert_eq!(form.answer(&choice("approve once")), yes(None, ApprovalScope::Once));
        assert_eq!(form.answer(&choice("approve always")), yes(None, ApprovalScope::Agent));
        for no in [choice("deny"), json!({"action": "decline"})] {
            assert!(is_denial(form.answer(&no)), "{no}");
        }
        assert_eq!(form.answer(&choice("decide one by one")), None, "there is only one call");
        for nothing in [choice("yes"), json!({"action": "cancel"}), json!({"action": "accept"}), json!({})] {
            assert_eq!(form.answer(&nothing), None, "{nothing}");
        }
        let decision = form.schema()["properties"]["decision"].clone();
        assert_eq!((&decision["default"], decision["enum"].as_array().unwrap().len()), (&json!("approve once"), 3));
    }

    #[test]
    fn a_long_call_is_shortened_and_the_form_says_so() {
        let message = only(approval(None)).message();
        assert!(message.starts_with("Allow a call to git.push?\nArguments: {\n  \"to\": \"a\\u{202e}b\""), "{message}");
        assert!(message.chars().count() < 2_600, "{message}");
        assert!(
            message.contains("characters missing") && message.contains("`cellmate approvals show apr_1`"),
            "{message}"
        );
    }

    #[test]
    fn one_form_lists_the_calls_of_a_run_and_questions_have_their_own() {
        let question = approval(Some(json!({"key": "k", "message": "Where?", "form": {}})));
        let calls: Vec<Approval> = [2, 3, 1].map(call).to_vec();
        let open: Vec<&Approval> = calls.iter().chain([&question]).collect();
        let shown = forms(&open, Grouping::Together);
        assert_eq!((shown.len(), shown[0].ids().len(), shown[1].ids().len()), (2, 3, 1));
        assert_eq!(
            shown[0].message(),
            "Allow these 3 calls?\n1. git.push { \"n\": 1 }\n2. git.push { \"n\": 2 }\n3. git.push { \"n\": 3 }\n\
             Reason: because.\nYour decision applies to all of them. \"approve always\" also applies to other calls to \
             these tools."
        );
        let choices = &shown[0].schema()["properties"]["decision"]["enum"];
        assert_eq!(*choices, json!(["approve once", "approve always", "deny", "decide one by one"]));
        assert_eq!(shown[0].answer(&choice("decide one by one")), Some(FormAnswer::OneByOne));

        let shown = forms(&open, Grouping::OneByOne);
        assert_eq!((shown.len(), shown[0].ids().len()), (2, 1), "the second call waits for the first decision");
        assert!(shown[0].message().ends_with("\n2 more calls wait; you are asked about them next."), "{shown:?}");
        assert!(forms(&[], Grouping::Together).is_empty());
    }

    #[test]
    fn a_form_with_many_long_calls_is_bounded_and_names_each_shortened_call() {
        let calls: Vec<Approval> = (1..=40)
            .map(|number| {
                let input = json!({"path": format!("/{number}"), "text": "line\n".repeat(2_000)});
                Approval { input, reason: format!("reason {number}"), ..call(number) }
            })
            .collect();
        let open: Vec<&Approval> = calls.iter().collect();
        let shown = forms(&open, Grouping::Together);
        let message = shown[0].message();
        assert_eq!((shown.len(), shown[0].ids().len()), (1, MAX_FORM_CALLS));
        assert!(message.chars().count() < 6_000, "{}", message.chars().count());
        for number in 1..=MAX_FORM_CALLS {
            let line = message.lines().find(|line| line.starts_with(&format!("{number}. "))).unwrap();
            assert!(
                line.contains(&format!("\"path\": \"/{number}\"")) && line.contains("characters missing"),
                "{line}"
            );
            assert!(line.contains(&format!("(shortened: apr_{number}) (reason: reason {number})")), "{line}");
        }
        assert!(
            message.contains("`cellmate approvals show ID`") && message.contains("24 more calls wait"),
            "{message}"
        );
    }

    #[test]
    fn progress_names_the_approval_but_no_command_that_approves() {
        let message = waiting(&[approval(None)]);
        assert_eq!(message, "waiting for a person to approve git.push (apr_1) with `cellmate approvals`");
    }
}
