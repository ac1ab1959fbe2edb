//! The effects of a run that did not complete: its calls that changed something or may have, from its journal.
//!
//! Calls of tools that only read are left out. The list is advice for the model and no protection: that a tool only reads
//! is believed of a server that is not trusted, too, unless the outcome of the call is unknown.

use std::collections::BTreeMap;

use catalog::Catalog;
use contract::cell::{CellResult, Effect, EffectState};
use contract::ids::{CallId, RunId};
use contract::limits::MAX_LISTED_EFFECTS;
use contract::tool::Repeat;
use executor::{Journal, NOT_CALLED, RESULT_DROPPED, UNKNOWN_OUTCOME};
use store::{CallRow, CallState, DispatchedCall, Store, StoredReply};
use telemetry::LogIgnored;

/// The effects of a run, oldest first.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Effects {
    /// The newest effects.
    listed: Vec<Effect>,
    /// How many older ones are not listed.
    unlisted: usize,
}

impl Effects {
    /// Adds the effects to a failed result.
    pub(crate) fn added_to(self, result: CellResult) -> CellResult {
        match result {
            CellResult::Failed { mut error, code, output, telemetry, .. } => {
                if self.unlisted > 0 {
                    error += &format!(" (`effects` lists the last {} of {} calls)", self.listed.len(), self.total());
                }
                CellResult::Failed { error, code, output, effects: self.listed, telemetry }
            }
            other => other,
        }
    }

    fn total(&self) -> usize {
        self.listed.len() + self.unlisted
    }
}

/// Returns the effects of a run that this process drives.
pub(crate) async fn of_driven_run(journal: &Journal, catalog: &Catalog) -> Effects {
    if !journal.had_effects() {
        return Effects::default();
    }
    // Waits for a commit in progress, whose calls are neither unwritten any more nor stored yet.
    journal.flush().await.log_ignored("write the calls of a failed run");
    let stored = stored(journal.store(), journal.run_id()).await;
    collect(stored, &journal.unwritten_dispatches(), |tool, state| only_read(catalog, tool, state))
}

/// Returns the effects of a run that has no driver in this process. Without a catalog, tools that only read are listed,
/// too.
pub(crate) async fn of_stored_run(store: &Store, run_id: &RunId, catalog: Option<&Catalog>) -> Effects {
    let stored = stored(store, run_id).await;
    collect(stored, &[], |tool, state| catalog.is_some_and(|catalog| only_read(catalog, tool, state)))
}

async fn stored(store: &Store, run_id: &RunId) -> Vec<DispatchedCall> {
    store.dispatched_calls(run_id).await.unwrap_or_else(|error| {
        tracing::warn!(%error, run = run_id.as_str(), "cannot list the effects of a run");
        Vec::new()
    })
}

/// Returns whether a call changed nothing because its tool only reads. A server that is not trusted is believed if the
/// call ended, so that the list is not full of reads; a call whose outcome is unknown is reported to the model as one that
/// may have changed something, so it is listed.
fn only_read(catalog: &Catalog, tool: &str, state: EffectState) -> bool {
    catalog.get(tool).is_some_and(|tool| {
        tool.repeat == Repeat::Always || (tool.declared_repeat == Repeat::Always && state != EffectState::Unknown)
    })
}

/// Collects the effects from what is stored and from what is not written yet.
fn collect(
    stored: Vec<DispatchedCall>,
    unwritten: &[CallRow],
    only_read: impl Fn(&str, EffectState) -> bool,
) -> Effects {
    let of_stored = |row: DispatchedCall| {
        let end = row.reply_start.as_deref().or(row.outcome_start.as_deref());
        if end.is_some_and(|end| was_never_called(&row.tool_id, row.attempt, end)) {
            return None;
        }
        let state = state_of(row.reply_start.as_deref(), row.outcome_start.as_deref());
        Some((row.call, (row.tool_id, state)))
    };
    let mut effects: BTreeMap<CallId, (String, EffectState)> = stored.into_iter().filter_map(of_stored).collect();
    for row in unwritten {
        if let (Some(StoredReply::Rejected(text)), Some(tool)) = (&row.reply, &row.tool_id)
            && was_never_called(tool, row.attempt, text)
        {
            effects.remove(&row.call);
            continue;
        }
        let state = match (&row.reply, row.state) {
            (Some(StoredReply::Resolved(_)), _) => EffectState::Done,
            (Some(StoredReply::Rejected(text)), _) => rejected(text),
            // The reply is written: the stored row has it.
            (None, CallState::Settled | CallState::Delivered) if effects.contains_key(&row.call) => continue,
            (None, _) => EffectState::Unknown,
        };
        effects.insert(row.call, (row.tool_id.clone().unwrap_or_else(|| row.target.clone()), state));
    }
    effects.retain(|_, (tool, state)| !only_read(tool, *state));
    let unlisted = effects.len().saturating_sub(MAX_LISTED_EFFECTS);
    let listed = effects.into_iter().skip(unlisted).map(|(call, (tool, state))| Effect { tool, call, state });
    Effects { listed: listed.collect(), unlisted }
}

/// Returns whether the end of a call says that it was not made: its plugin or server could not be started, for example.
/// An earlier attempt may have reached the tool.
fn was_never_called(tool_id: &str, attempt: i64, end: &str) -> bool {
    let mut parts = tool_id.splitn(3, ':');
    let (Some(source), Some(owner), Some(name)) = (parts.next(), parts.next(), parts.next()) else { return false };
    let source = match source {
        "plugin" => "plugin",
        "mcp" => "MCP server",
        _ => return false,
    };
    let expected = format!("`{name}` of {source} `{owner}` {NOT_CALLED}: ");
    // The message must begin with it: the rest may be text of the server or the plugin, which could pretend this.
    let begins = |key: &str| end.split_once(key).is_some_and(|(_, message)| message.starts_with(&expected));
    // A stored reply contains the rejection as a text.
    attempt == 1 && [r#""message":""#, r#"\"message\":\""#, r#""failed":""#].into_iter().any(begins)
}

/// Returns how a stored call ended, by the starts of its reply and its outcome.
fn state_of(reply: Option<&str>, outcome: Option<&str>) -> EffectState {
    match (reply, outcome) {
        (Some(reply), _) if reply.starts_with(r#"{"Resolved""#) => EffectState::Done,
        (Some(reply), _) => rejected(reply),
        (None, Some(outcome)) if [r#"{"returned""#, r#"{"dropped""#].iter().any(|start| outcome.starts_with(start)) => {
            EffectState::Done
        }
        (None, Some(outcome)) if outcome.starts_with(r#"{"failed""#) => EffectState::Failed,
        (None, _) => EffectState::Unknown,
    }
}

/// Returns how a call ended whose reply is a rejection: its tool failed, its outcome was lost, or its result was dropped.
fn rejected(reply: &str) -> EffectState {
    let unknown = UNKNOWN_OUTCOME.split(':').next().unwrap_or(UNKNOWN_OUTCOME);
    if reply.contains(unknown) {
        EffectState::Unknown
    } else if reply.contains(RESULT_DROPPED) {
        EffectState::Done
    } else {
        EffectState::Failed
    }
}

#[cfg(test)]
mod tests {
    use catalog::Catalog;
    use contract::cell::EffectState::{self, Done, Failed, Unknown};
    use contract::cell::{CellResult, Effect};
    use contract::error::ErrorCode;
    use contract::ids::CallId;
    use contract::limits::MAX_LISTED_EFFECTS;
    use contract::tool::{Repeat, ToolId, ToolSpec};
    use executor::{DropCause, Outcome, RESULT_DROPPED, UNKNOWN_OUTCOME};
    use serde_json::json;
    use store::{CallRow, CallState, DispatchedCall, StoredReply};

    use super::{Effects, collect, only_read};
    use crate::bridge::{self, reject_with_code};
    use crate::failure::failed;

    fn stored(call: u32, reply: Option<&StoredReply>, outcome: Option<&str>) -> DispatchedCall {
        let start = |text: String| text.chars().take(256).collect();
        DispatchedCall {
            call: CallId(call),
            tool_id: format!("mcp:a:{call}"),
            reply_start: reply.map(|reply| start(serde_json::to_string(reply).unwrap())),
            outcome_start: outcome.map(|text| start(text.to_owned())),
            attempt: 1,
        }
    }

    fn unwritten(call: u32, state: CallState, reply: Option<StoredReply>) -> CallRow {
        let row = CallRow::requested(CallId(call), "call", "a:b:c", String::new(), "exec-1", 5);
        CallRow { state, reply, attempt: 1, tool_id: Some(format!("mcp:a:{call}")), ..row }
    }

    fn states(effects: &Effects) -> Vec<(u32, EffectState)> {
        effects.listed.iter().map(|effect| (effect.call.0, effect.state)).collect()
    }

    #[test]
    fn the_reply_or_the_outcome_tells_how_a_call_ended() {
        let resolved = StoredReply::Resolved("1".to_owned());
        let message = |message: &str| StoredReply::Rejected(json!({"message": message, "tool": "t"}).to_string());
        let dropped = reject_with_code(
            "journal_limit_exceeded",
            &format!("{RESULT_DROPPED}: this run's calls and results take 67108864 bytes"),
            "",
        );
        let effects = collect(
            vec![
                stored(1, Some(&resolved), None),
                stored(2, Some(&message("no such file")), None),
                stored(3, Some(&message(UNKNOWN_OUTCOME)), None),
                stored(4, Some(&StoredReply::from(&dropped)), None),
                stored(5, None, None),
                stored(6, None, Some(r#"{"returned":{}}"#)),
                stored(7, None, Some(r#"{"failed":"no"}"#)),
                stored(8, None, Some(r#"{"unknown":true}"#)),
                stored(9, Some(&resolved), None),
                stored(10, None, Some(&Outcome::dropped(DropCause::TooLarge, "ask for less").to_json())),
            ],
            &[],
            |tool, _| tool == "mcp:a:9",
        );
        let expected = [
            (1, Done),
            (2, Failed),
            (3, Unknown),
            (4, Done),
            (5, Unknown),
            (6, Done),
            (7, Failed),
            (8, Unknown),
            (10, Done),
        ];
        assert_eq!(states(&effects), expected);
    }

    #[test]
    fn a_read_that_an_untrusted_server_declares_is_listed_only_if_its_outcome_is_unknown() {
        let tool = |id: &str, repeat: Repeat, declared_repeat: Repeat| ToolSpec {
            repeat,
            declared_repeat,
            ..ToolSpec::new(ToolId::parse(id).unwrap(), String::new(), json!({"type": "object"}))
        };
        let catalog = Catalog::new(vec![
            tool("mcp:trusted:read", Repeat::Always, Repeat::Always),
            tool("mcp:untrusted:read", Repeat::Never, Repeat::Always),
            tool("mcp:untrusted:write", Repeat::Never, Repeat::Never),
        ])
        .unwrap();
        let listed = |tool: &str| [Done, Failed, Unknown].map(|state| !only_read(&catalog, tool, state));
        assert_eq!(listed("mcp:trusted:read"), [false, false, false]);
        assert_eq!(listed("mcp:untrusted:read"), [false, false, true]);
        assert_eq!(listed("mcp:untrusted:write"), [true, true, true]);
        assert_eq!(listed("mcp:removed:tool"), [true, true, true]);
    }

    fn text_of(outcome: &Outcome) -> &str {
        match outcome {
            Outcome::Failed(message) => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_call_that_was_not_made_is_no_effect() {
        let not_called = |tool: &str| Outcome::not_called(tool, "the plugin could not be started");
        let [plugin, server] = ["`stamp` of plugin `notary`", "`push` of MCP server `git`"].map(not_called);
        let pretended = Outcome::Failed(format!("`stamp` of plugin `notary` failed: \"{}", text_of(&plugin)));
        let reply = |outcome: &Outcome| StoredReply::from(&bridge::reply(outcome.clone(), "stamp"));
        let of = |tool: &str, row: DispatchedCall| DispatchedCall { tool_id: tool.to_owned(), ..row };
        let effects = collect(
            vec![
                of("plugin:notary:stamp", stored(1, Some(&reply(&plugin)), None)),
                of("plugin:notary:stamp", stored(2, None, Some(&plugin.to_json()))),
                of("mcp:git:push", stored(3, Some(&reply(&server)), None)),
                // Another tool's text, and a retry after a crash: the first attempt may have reached the tool.
                of("plugin:notary:seal", stored(4, Some(&reply(&plugin)), None)),
                DispatchedCall { attempt: 2, ..of("plugin:notary:stamp", stored(5, Some(&reply(&plugin)), None)) },
                of("plugin:notary:stamp", stored(6, None, None)),
                // A text that the plugin quotes.
                of("plugin:notary:stamp", stored(7, Some(&reply(&pretended)), None)),
            ],
            &[CallRow {
                tool_id: Some("plugin:notary:stamp".to_owned()),
                ..unwritten(6, CallState::Settled, Some(reply(&plugin)))
            }],
            |_, _| false,
        );
        assert_eq!(states(&effects), [(4, Failed), (5, Failed), (7, Failed)]);
    }

    #[test]
    fn what_is_not_written_yet_replaces_what_is_stored() {
        let resolved = StoredReply::Resolved("1".to_owned());
        let rows = [
            unwritten(1, CallState::Settled, Some(resolved.clone())),
            // Its reply was written and dropped from memory.
            unwritten(2, CallState::Delivered, None),
            unwritten(3, CallState::Dispatched, None),
            unwritten(4, CallState::Settled, Some(StoredReply::Rejected("no".to_owned()))),
        ];
        let effects = collect(vec![stored(1, None, None), stored(2, Some(&resolved), None)], &rows, |_, _| false);
        assert_eq!(states(&effects), [(1, Done), (2, Done), (3, Unknown), (4, Failed)]);
    }

    #[test]
    fn the_newest_effects_are_listed_and_the_error_says_how_many_there_are() {
        let calls = (1..=MAX_LISTED_EFFECTS as u32 + 7).map(|call| stored(call, None, None)).collect();
        let effects = collect(calls, &[], |_, _| false);
        assert_eq!((effects.listed.len(), effects.unlisted), (MAX_LISTED_EFFECTS, 7));
        let newest = Effect { tool: "mcp:a:107".to_owned(), call: CallId(107), state: Unknown };
        assert_eq!(effects.listed.last(), Some(&newest));
        let CellResult::Failed { error, effects, .. } = effects.added_to(failed(ErrorCode::Timeout, "late")) else {
            panic!("the result is still a failure")
        };
        assert_eq!((error.as_str(), effects.len()), ("late (`effects` lists the last 100 of 107 calls)", 100));
    }

    #[test]
    fn a_run_without_effects_keeps_its_error() {
        let result = Effects::default().added_to(failed(ErrorCode::Timeout, "late"));
        assert!(matches!(result, CellResult::Failed { error, effects, .. } if error == "late" && effects.is_empty()));
    }
}
