//! `cellmate logs`: prints the log that `cellmate mcp` and `cellmate gateway` write.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use client_config::Places;
use serde_json::{Map, Value};

use super::{FOLDER, file};
use crate::render;
use crate::style::Coloring;

/// How often `--follow` looks for new lines. Another process writes them, so there is nothing to wait on.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(200);

/// The number of lines printed if none is given.
const DEFAULT_LINES: usize = 100;

#[derive(Debug, Args)]
pub(crate) struct LogsArguments {
    /// Keep printing events as they are logged.
    #[arg(short, long)]
    follow: bool,
    /// Print the last N events; all of them with 0.
    #[arg(short = 'n', long = "lines", value_name = "N", default_value_t = DEFAULT_LINES)]
    lines: usize,
    /// Print only events of this run (its id, or the beginning of it).
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    /// Print only the events of this incident, as named in an `internal_error`.
    #[arg(long, value_name = "ID")]
    incident: Option<String>,
    /// Print each event as a line of JSON.
    #[arg(long)]
    json: bool,
    /// This machine's state folder (default: `$XDG_STATE_HOME/cellmate`).
    #[arg(long, value_name = "FOLDER")]
    state_dir: Option<PathBuf>,
}

pub(crate) async fn run(arguments: LogsArguments) -> ExitCode {
    let folder = arguments.state_dir.clone().or_else(|| Places::here(&[]).state());
    let Some(folder) = folder.map(|state| state.join(FOLDER)) else {
        return render::fatal("there is no state folder: set $HOME or pass --state-dir");
    };
    match print(&arguments, &folder).await {
        Ok(()) => ExitCode::SUCCESS,
        // The program that reads the output, `head` for example, has closed the pipe.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => render::fatal(&format!("cannot read the log in `{}`: {error}", folder.display())),
    }
}

async fn print(arguments: &LogsArguments, folder: &Path) -> io::Result<()> {
    let mut last = VecDeque::new();
    let mut current = None;
    for path in file::paths(folder) {
        let Ok(file) = File::open(&path) else { continue };
        let mut reader = BufReader::new(file);
        let mut line = String::new();
        while reader.read_line(&mut line)? > 0 {
            if arguments.selects(&line) {
                last.push_back(std::mem::take(&mut line));
                if arguments.lines > 0 && last.len() > arguments.lines {
                    last.pop_front();
                }
            }
            line.clear();
        }
        current = Some(reader);
    }
    if current.is_none() && !arguments.follow {
        render::note(&format!(
            "nothing is logged in `{}` yet; `cellmate mcp` and `cellmate gateway` write there",
            folder.display()
        ));
        return Ok(());
    }
    if last.is_empty() && !arguments.follow {
        arguments.note_nothing_selected(folder);
    }
    let mut output = io::stdout().lock();
    for line in last {
        arguments.write(&mut output, &line)?;
    }
    output.flush()?;
    if !arguments.follow {
        return Ok(());
    }
    loop {
        tokio::time::sleep(FOLLOW_INTERVAL).await;
        current = follow(arguments, folder, current, &mut output)?;
        output.flush()?;
    }
}

/// Prints the new lines of the current file, and opens the next file when the writer has started one.
fn follow(
    arguments: &LogsArguments,
    folder: &Path,
    current: Option<BufReader<File>>,
    output: &mut impl Write,
) -> io::Result<Option<BufReader<File>>> {
    let [_, path] = file::paths(folder);
    let next = || File::open(&path).ok().map(BufReader::new);
    let Some(mut reader) = current.or_else(next) else { return Ok(None) };
    let mut line = String::new();
    while reader.read_line(&mut line)? > 0 {
        if !line.ends_with('\n') {
            // Another process is still writing this line.
            let back = i64::try_from(line.len()).unwrap_or(0);
            reader.seek(SeekFrom::Current(-back))?;
            break;
        }
        if arguments.selects(&line) {
            arguments.write(output, &line)?;
        }
        line.clear();
    }
    let inode = |metadata: std::fs::Metadata| metadata.ino();
    let is_current = std::fs::metadata(&path).map(inode).ok() == reader.get_ref().metadata().map(inode).ok();
    Ok(if is_current { Some(reader) } else { next() })
}

impl LogsArguments {
    /// Returns whether the line is an event that the arguments ask for.
    fn selects(&self, line: &str) -> bool {
        if self.run.is_none() && self.incident.is_none() {
            return true;
        }
        let Ok(Value::Object(event)) = serde_json::from_str(line) else { return false };
        let has = |field: &str, wanted: &str| {
            let in_event = event.get(field);
            let in_spans = event.get("spans").and_then(Value::as_array).into_iter().flatten();
            let mut values = in_event.into_iter().chain(in_spans.filter_map(|span| span.get(field)));
            values.any(|value| value.as_str().is_some_and(|value| value.starts_with(wanted)))
        };
        self.run.as_deref().is_none_or(|run| has("run", run))
            && self.incident.as_deref().is_none_or(|incident| has("incident", incident))
    }

    /// Says that no event is of the run or the incident that the arguments name.
    fn note_nothing_selected(&self, folder: &Path) {
        let named = [("run", &self.run), ("incident", &self.incident)];
        let named = named.into_iter().filter_map(|(kind, id)| Some(format!("{kind} `{}`", one_line(id.as_ref()?))));
        let named: Vec<String> = named.collect();
        if !named.is_empty() {
            render::note(&format!(
                "no event of {} is logged in `{}`; `cellmate runs list` lists the runs",
                named.join(" and "),
                folder.display()
            ));
        }
    }

    fn write(&self, output: &mut impl Write, line: &str) -> io::Result<()> {
        match serde_json::from_str(line) {
            Ok(Value::Object(event)) if !self.json => {
                let coloring = if io::stdout().is_terminal() { Coloring::Colored } else { Coloring::Plain };
                writeln!(output, "{}", readable(&event, coloring))
            }
            _ => writeln!(output, "{}", line.trim_end()),
        }
    }
}

/// Formats an event as one line of text: time, level, the fields of its spans, message, and its own fields.
fn readable(event: &Map<String, Value>, coloring: Coloring) -> String {
    let text = |field: &str| event.get(field).and_then(Value::as_str).unwrap_or_default();
    let plain = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut line = String::new();
    for span in event.get("spans").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object) {
        for (name, value) in span.iter().filter(|(name, _)| *name != "name") {
            line.push_str(&format!(" {name}={}", plain(value)));
        }
    }
    line.push_str(&format!(" {}: {}", text("target"), text("message")));
    let hidden = ["timestamp", "level", "target", "message", "spans"];
    for (name, value) in event.iter().filter(|(name, _)| !hidden.contains(&name.as_str())) {
        line.push_str(&format!(" {name}={}", plain(value)));
    }
    // Fields can hold text of servers, which must not control the terminal.
    let (time, level, line) = (one_line(text("timestamp")), one_line(text("level")), one_line(line.trim_start()));
    match (level.as_str(), coloring) {
        ("ERROR", Coloring::Colored) => format!("{time} \x1b[31m{level:>5}\x1b[0m {line}"),
        ("WARN", Coloring::Colored) => format!("{time} \x1b[33m{level:>5}\x1b[0m {line}"),
        _ => format!("{time} {level:>5} {line}"),
    }
}

fn one_line(text: &str) -> String {
    contract::text::line(text, usize::MAX)
}
