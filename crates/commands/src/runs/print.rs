//! Prints runs and their steps, as text or as JSON.

use codemode::replay::{LegVerdict, Record, Step};
use contract::cell::OutputItem;
use contract::frame::{LegEnd, ReplyValue};
use contract::text;
use serde_json::Value;
use store::{Approval, ApprovalState, CallRow, Millis, RunListEntry, StoredReply};

use super::arguments::ListArguments;
use super::find::run_summary;
use super::{ReplayOutcome, values};
use crate::age::span;
use crate::render::{OutputFormat, note, print, print_json};
use crate::table::{Table, terminal_width};

/// The longest value that is printed on one line; `--json` prints all of it.
const MAX_LINE_CHARS: usize = 160;
/// The longest error of a call that is printed: people read it to the end, where it says what to do.
const MAX_ERROR_CHARS: usize = 1_000;
const MAX_NAME_CHARS: usize = 100;

/// The fewest letters of an id that a terminal shows: `cm_` and eight digits.
const MIN_ID_LETTERS: usize = 11;

/// Prints the page of runs that the store returned for this limit.
pub(super) fn list(runs: &[RunListEntry], arguments: &ListArguments, now: Millis, format: OutputFormat) {
    if format == OutputFormat::Json {
        print_json(&Value::from(runs.iter().map(values::listed).collect::<Vec<_>>()));
        return;
    }
    if runs.is_empty() {
        let is_filtered = !arguments.states.is_empty() || arguments.since.is_some();
        return eprintln!(
            "{}",
            if is_filtered {
                "no such runs; `cellmate runs list` without --state and --since lists all"
            } else {
                "no runs; `cellmate exec` and MCP clients start them"
            }
        );
    }
    let width = terminal_width();
    print(&list_table(runs, now, width).render(width));
    let limit = arguments.limit;
    if runs.len() >= limit as usize {
        eprintln!("the newest {limit} are shown; --limit shows more");
    }
}

fn list_table(runs: &[RunListEntry], now: Millis, width: Option<usize>) -> Table<6> {
    // A terminal gets the start of each id, which is enough to type; a program gets all of it.
    let letters = width.map_or(usize::MAX, |_| unique_letters(runs));
    let mut table = Table::new(["RUN", "STATE", "AGE", "PENDING", "AGENT", "CODE"]).with_whole(&[0, 1, 2]);
    for run in runs {
        let pending = if run.open_calls == 0 { String::new() } else { run.open_calls.to_string() };
        table.add([
            run.run_id.chars().take(letters).collect(),
            run.state.as_str().to_owned(),
            span(now - run.created_at),
            pending,
            short(&run.scope.agent_id),
            line(&run_summary(run)),
        ]);
    }
    table
}

/// Returns how many letters of each id are enough to tell these runs apart.
fn unique_letters(runs: &[RunListEntry]) -> usize {
    let mut ids: Vec<&str> = runs.iter().map(|run| run.run_id.as_str()).collect();
    ids.sort_unstable();
    let shared = |one: &str, other: &str| one.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
    ids.array_windows().map(|[one, other]| shared(one, other) + 1).fold(MIN_ID_LETTERS, usize::max)
}

pub(super) fn details(record: &Record, approvals: &[Approval], now: Millis, format: OutputFormat) {
    if format == OutputFormat::Json {
        print_json(&values::record(record, approvals));
        return;
    }
    let run = &record.run;
    let mut text = format!("run       {}\nstate     {}\n", run.run_id, run.state.as_str());
    text += &format!("agent     {}, session {}\n", short(&run.scope.agent_id), short(&run.scope.session_id));
    text += &format!("started   {} ago\n", span(now - run.created_at));
    if !run.state.is_over() {
        text += &format!("expires   in {}\n", span(run.expires_at - now));
    }
    for leg in &record.legs {
        let ended = leg.ended.as_ref().map_or("no end recorded", |ended| ended.kind.as_str());
        text += &format!("step {:<4} at +{:.3} s  {ended}\n", leg.leg, after(record, leg.clock_us));
        for row in record.calls.iter().filter(|row| row.leg == leg.leg) {
            text += &recorded_call(row);
            for approval in approvals.iter().filter(|approval| approval.call == row.call) {
                text += &format!("           {}\n", decision(approval, now));
            }
        }
    }
    if let Some(result) = &run.result {
        text += &format!("result    {}\n", text::line(result, usize::MAX));
    }
    if let Some((source, language)) = record.source() {
        text += &format!("source    {}\n", language.as_str());
        for line in source.lines() {
            text += &format!("  {}\n", text::line(&line.replace('\t', "    "), usize::MAX));
        }
    }
    print(&text);
    if record.calls.iter().any(is_cut) {
        note(&format!("values that end with … are cut; `cellmate runs show {} --json` prints all of them", run.run_id));
    }
}

/// Whether [`recorded_call`] shows only the beginning of what the call was given or returned.
fn is_cut(row: &CallRow) -> bool {
    let is_longer = |text: &str, chars: usize| text.chars().nth(chars).is_some();
    let reply = match &row.reply {
        Some(StoredReply::Resolved(text)) => is_longer(text, MAX_LINE_CHARS),
        Some(StoredReply::Rejected(text)) => is_longer(text, MAX_ERROR_CHARS),
        None => false,
    };
    reply || is_longer(row.input.as_deref().unwrap_or(&row.payload), MAX_LINE_CHARS)
}

/// Whether a result of an MCP tool reports an error.
fn is_error_result(result: &str) -> bool {
    let is_error = |result: Value| result.get("isError") == Some(&Value::Bool(true));
    result.contains("\"isError\"") && serde_json::from_str(result).is_ok_and(is_error)
}

fn recorded_call(row: &CallRow) -> String {
    let answer = match &row.reply {
        Some(StoredReply::Resolved(text)) if is_error_result(text) => format!(" ✗ {}", line(text)),
        Some(StoredReply::Resolved(text)) => format!(" → {}", line(text)),
        Some(StoredReply::Rejected(text)) => format!(" ✗ {}", text::line(text, MAX_ERROR_CHARS)),
        None => String::new(),
    };
    let called = match &row.tool_id {
        Some(tool) => format!("{} {}", short(tool), line(row.input.as_deref().unwrap_or(&row.payload))),
        None => call(&row.method, &row.target, &row.payload),
    };
    format!("  call {:<3} {:9}  {called}{answer}\n", row.call, row.state.as_str())
}

/// Returns who decided an approval, when and with which note, or that it is not decided.
fn decision(approval: &Approval, now: Millis) -> String {
    let (asked, given) = match approval.question {
        Some(_) => ("answer", "answered"),
        None => ("approval", "approved"),
    };
    let word = match approval.state {
        ApprovalState::Pending => {
            return format!("waits for {asked}: cellmate approvals show {}", approval.approval_id);
        }
        ApprovalState::Approved | ApprovalState::Used => given,
        ApprovalState::Denied => "denied",
        ApprovalState::Void => return format!("{asked} was not given: it expired, or the run ended"),
    };
    let by = approval.decided_by.as_deref().map(|by| format!(" by {}", short(by))).unwrap_or_default();
    let when = approval.decided_at.map(|at| format!(", {} ago", span(now - at))).unwrap_or_default();
    let edited =
        if approval.edited_input.is_some() && approval.question.is_none() { ", with changed arguments" } else { "" };
    let note = approval.note.as_deref().filter(|note| !note.is_empty());
    let note = note.map(|note| format!(": {}", line(note))).unwrap_or_default();
    format!("{word}{by}{when}{edited}{note}")
}

/// Returns the seconds since the cell started, by the cell's own clock.
fn after(record: &Record, clock_us: u64) -> f64 {
    let began = record.legs.first().map_or(0, |leg| leg.clock_us);
    clock_us.saturating_sub(began) as f64 / 1e6
}

pub(super) fn step(record: &Record, step: &Step<'_>) {
    let recorded = step.recorded;
    let mut text = format!("step {}  at +{:.3} s\n", recorded.leg, after(record, recorded.clock_us));
    for reply in &step.given {
        let (word, json) = match &reply.value {
            ReplyValue::Resolved(json) => ("reply  ", json),
            ReplyValue::Rejected(json) => ("error  ", json),
        };
        text += &format!("  {word}  call {}: {}\n", reply.call, line(&String::from_utf8_lossy(json)));
    }
    for item in &step.ran.output {
        let shown = match item {
            OutputItem::Text { text } => text.clone(),
            OutputItem::Json { value } => value.get().to_owned(),
            OutputItem::Image(_) | OutputItem::Audio(_) | OutputItem::Stored(_) => {
                serde_json::to_string(item).unwrap_or_default()
            }
        };
        text += &format!("  output   {}\n", line(&shown));
    }
    match &step.ran.end {
        LegEnd::Suspended { calls, .. } => {
            for made in calls {
                let payload = String::from_utf8_lossy(&made.payload);
                text +=
                    &format!("  makes    call {}: {}\n", made.id, call(made.method.as_str(), &made.target, &payload));
            }
            text += "  waits\n";
        }
        LegEnd::Completed { value } => text += &format!("  returns  {}\n", line(value.get())),
        LegEnd::Failed(failure) => text += &format!("  fails    {}\n", line(&failure.message)),
    }
    text += match &step.verdict {
        Ok(LegVerdict::Same) => "  matches the record\n",
        Ok(LegVerdict::Unrecorded) => "  matches the record, which has no end for this step\n",
        Err(_) => "  DIFFERS from the record\n",
    };
    if let Err(diverged) = &step.verdict {
        text += &format!("  {}\n", text::line(&diverged.to_string(), 4 * MAX_LINE_CHARS));
    }
    print(&text);
}

pub(super) fn summary(record: &Record, outcome: &ReplayOutcome) {
    match outcome {
        ReplayOutcome::Same => {
            print(&format!("all {} steps match the record; no tool was called\n", record.legs.len()));
        }
        ReplayOutcome::Different => eprintln!("cellmate: the replay differs from the record; no tool was called"),
        ReplayOutcome::Failed(error) => note(&format!("cellmate: {}", text::line(error, 4 * MAX_LINE_CHARS))),
    }
}

fn call(method: &str, target: &str, payload: &str) -> String {
    if target.is_empty() {
        return format!("{method} {}", line(payload));
    }
    format!("{method} {} {}", short(target), line(payload))
}

fn line(text: &str) -> String {
    text::line(text, MAX_LINE_CHARS)
}

fn short(text: &str) -> String {
    text::line(text, MAX_NAME_CHARS)
}

#[cfg(test)]
mod tests {
    use contract::scope::Scope;
    use store::{RunListEntry, RunState};

    use super::list_table;

    fn run(id: &str, state: RunState, open_calls: u64) -> RunListEntry {
        RunListEntry {
            run_id: id.into(),
            scope: Scope { agent_id: "local".to_owned(), ..Scope::default() },
            state,
            created_at: 0,
            updated_at: 0,
            expires_at: 0,
            open_calls,
            definition_head: r#"{"source":"\nconst a = 1;\nreturn a"#.to_owned(),
            first_target: None,
        }
    }

    #[test]
    fn a_terminal_shows_ids_that_are_long_enough_to_be_unique() {
        let runs = [
            run("cm_0123456789abcdef", RunState::Waiting, 2),
            run("cm_0123456789zz", RunState::Completed, 0),
            run("cm_fff", RunState::Failed, 0),
        ];
        let wide = "RUN                  STATE      AGE  PENDING  AGENT  CODE\n\
                    cm_0123456789abcdef  waiting    5 s  2        local  const a = 1;\n\
                    cm_0123456789zz      completed  5 s           local  const a = 1;\n\
                    cm_fff               failed     5 s           local  const a = 1;\n";
        assert_eq!(list_table(&runs, 5_000, None).render(None), wide);
        let narrow = "RUN             STATE      AGE  PENDING  AGENT  CODE\n\
                      cm_0123456789a  waiting    5 s  2        local  const…\n\
                      cm_0123456789z  completed  5 s           local  const…\n\
                      cm_fff          failed     5 s           local  const…\n";
        assert_eq!(list_table(&runs, 5_000, Some(55)).render(Some(55)), narrow);
    }
}
