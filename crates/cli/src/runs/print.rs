//! Prints runs and their steps, as text or as JSON.

use codemode::replay::{Record, Step, Verdict};
use contract::cell::OutputItem;
use contract::frame::{LegEnd, ReplyValue};
use contract::text;
use serde_json::Value;
use store::{CallRow, Millis, RunListEntry, StoredReply};

use super::values;
use crate::render::{note, print, print_json};

/// The longest value that is printed on one line; `--json` prints all of it.
const MAX_LINE_CHARS: usize = 160;
const MAX_NAME_CHARS: usize = 100;

pub(super) fn list(runs: &[RunListEntry], now: Millis, as_json: bool) {
    if as_json {
        print_json(&Value::from(runs.iter().map(values::listed).collect::<Vec<_>>()));
        return;
    }
    if runs.is_empty() {
        eprintln!("no runs");
    }
    for run in runs {
        let pending = if run.open_calls > 0 && !run.state.is_over() {
            format!("  {} pending", run.open_calls)
        } else {
            String::new()
        };
        let (agent, session) = (short(&run.scope.agent_id), short(&run.scope.session_id));
        let (state, age) = (run.state.as_str(), span(now - run.created_at));
        print(&format!("{}  {state:9}  {age:>6}  {agent}  {session}{pending}\n", run.run_id));
    }
}

pub(super) fn whole(record: &Record, now: Millis, as_json: bool) {
    if as_json {
        print_json(&values::record(record));
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
        }
    }
    if let Some(result) = &run.result {
        text += &format!("result    {}\n", line(result));
    }
    if let Some((source, language)) = record.source() {
        text += &format!("source    {}\n", language.as_str());
        for line in source.lines() {
            text += &format!("  {}\n", text::line(&line.replace('\t', "    "), usize::MAX));
        }
    }
    print(&text);
}

fn recorded_call(row: &CallRow) -> String {
    let answer = match &row.reply {
        Some(StoredReply::Resolved(text)) => format!(" → {}", line(text)),
        Some(StoredReply::Rejected(text)) => format!(" ✗ {}", line(text)),
        None => String::new(),
    };
    let called = match &row.tool_id {
        Some(tool) => format!("{} {}", short(tool), line(row.input.as_deref().unwrap_or(&row.payload))),
        None => call(&row.method, &row.target, &row.payload),
    };
    format!("  call {:<3} {:9}  {called}{answer}\n", row.call, row.state.as_str())
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
            OutputItem::Text { text } => text.as_str(),
            OutputItem::Json { value } => value.get(),
        };
        text += &format!("  output   {}\n", line(shown));
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
        Ok(Verdict::Same) => "  matches the record\n",
        Ok(Verdict::Unrecorded) => "  matches the record, which has no end for this step\n",
        Err(_) => "  DIFFERS from the record\n",
    };
    if let Err(diverged) = &step.verdict {
        text += &format!("  {}\n", text::line(&diverged.to_string(), 4 * MAX_LINE_CHARS));
    }
    print(&text);
}

pub(super) fn summary(record: &Record, same: bool, error: Option<&str>) {
    match (same, error) {
        (true, _) => print(&format!("all {} steps match the record; no tool was called\n", record.legs.len())),
        (false, Some(error)) => note(&format!("cellmate: {}", text::line(error, 4 * MAX_LINE_CHARS))),
        (false, None) => eprintln!("cellmate: the replay differs from the record; no tool was called"),
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

/// Formats a duration in one unit: `350 ms`, `12 s`, `5 min`, `3 h`, `2 d`.
fn span(ms: Millis) -> String {
    let ms = ms.max(0);
    match ms / 1000 {
        0 => format!("{ms} ms"),
        seconds @ 1..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn spans_are_printed_in_a_fitting_unit() {
        let printed = [-5, 350, 1_000, 119_999, 120_000, 7_200_000, 172_800_000].map(super::span);
        assert_eq!(printed, ["0 ms", "350 ms", "1 s", "119 s", "2 min", "2 h", "2 d"]);
    }
}
