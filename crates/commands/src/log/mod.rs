//! Where log events go: standard error, and for `cellmate mcp` a file of bounded size in the state folder.

mod file;
mod show;

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::str::FromStr;
use std::sync::OnceLock;

use clap::Args;
use contract::text;
use telemetry::Redactor;
use tracing::Subscriber;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt};

use file::LogFile;

pub(crate) use show::{LogsArguments, run};

/// The environment variable that is read if `--log` is not given.
const VARIABLE: &str = "CELLMATE_LOG";

/// The target of events that the command also prints to standard error in its own words.
pub(crate) const CONSOLE: &str = "cellmate::console";

/// The folder of log files inside the state folder.
const FOLDER: &str = "logs";

#[derive(Clone, Debug, Args)]
pub(crate) struct LogArguments {
    /// What to log, for example `info` or `warn,cellmate_executor=debug`; also $CELLMATE_LOG. `debug` can show what cells and
    /// models wrote.
    #[arg(long = "log", value_name = "FILTER", global = true)]
    filter: Option<String>,
}

/// Whether the command serves clients for a long time or ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandKind {
    Server,
    OneShot,
}

/// The file that the log of this process is written to, once its folder is known.
static FILE: OnceLock<LogFile> = OnceLock::new();

/// Installs the process's log. Fails if the filter cannot be read.
pub(crate) fn init(arguments: &LogArguments, kind: CommandKind) -> Result<(), String> {
    let given = match &arguments.filter {
        Some(filter) => Some(filter.clone()),
        None => std::env::var(VARIABLE).ok().filter(|filter| !filter.is_empty()),
    };
    let given = given.as_deref().map(parse).transpose()?;
    let default = |level: LevelFilter| Targets::new().with_default(level);
    let on_stderr = match (&given, kind) {
        (Some(filter), _) => filter.clone(),
        (None, CommandKind::Server) => default(LevelFilter::WARN),
        (None, CommandKind::OneShot) => default(LevelFilter::OFF),
    };
    let on_stderr = on_stderr.with_target(CONSOLE, LevelFilter::OFF);
    // The file has more than standard error, which some clients show to their users.
    let in_file = match kind {
        CommandKind::Server => given.unwrap_or_else(|| quiet_libraries(default(LevelFilter::INFO))),
        CommandKind::OneShot => default(LevelFilter::OFF),
    };
    let stderr = if io::stderr().is_terminal() {
        fmt::layer().with_ansi(false).with_writer(Stderr(Format::Text)).with_filter(on_stderr).boxed()
    } else {
        json_layer(Stderr(Format::Json)).with_filter(on_stderr).boxed()
    };
    let file = json_layer(InFile).with_filter(in_file);
    // A second initialisation happens in no command.
    Registry::default().with(stderr).with(file).try_init().map_err(|error| format!("cannot log: {error}"))
}

/// Starts writing log events to files in the state folder.
pub(crate) fn open_file(state: &Path) -> io::Result<()> {
    let file = LogFile::open(&state.join(FOLDER))?;
    // The first one stays if there is one already.
    FILE.set(file).ok();
    Ok(())
}

/// Limits libraries that log whole messages of clients and servers at `info` to `warn`.
fn quiet_libraries(filter: Targets) -> Targets {
    filter.with_target("rmcp", LevelFilter::WARN)
}

/// Reads a filter. Texts of clients and models are logged at `debug` only, so `info` keeps libraries quiet that log them.
fn parse(filter: &str) -> Result<Targets, String> {
    let names = |word: &str| filter.to_ascii_lowercase().contains(word);
    let is_info = names("info") && !["debug", "trace", "rmcp"].into_iter().any(names);
    let parsed = Targets::from_str(filter);
    parsed.map(|parsed| if is_info { quiet_libraries(parsed) } else { parsed }).map_err(|error| {
        format!("`{filter}` is not a log filter ({error}); use a level (`error`, `warn`, `info`, `debug`, `trace`) or `TARGET=LEVEL,…`")
    })
}

fn json_layer<S, W>(writer: W) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    fmt::layer().json().flatten_event(true).with_current_span(false).with_span_list(true).with_writer(writer)
}

/// How events are formatted.
#[derive(Clone, Copy)]
enum Format {
    Text,
    Json,
}

/// Writes events to standard error.
#[derive(Clone, Copy)]
struct Stderr(Format);

impl<'a> MakeWriter<'a> for Stderr {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        *self
    }
}

impl Write for Stderr {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        // The reader of standard error may have closed it, which must not stop the program.
        io::stderr().write_all(safe_line(event, self.0).as_bytes()).ok();
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes events to the log file, once there is one.
#[derive(Clone, Copy)]
struct InFile;

impl<'a> MakeWriter<'a> for InFile {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        *self
    }
}

impl Write for InFile {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        if let Some(file) = FILE.get() {
            file.append(&safe_line(event, Format::Json));
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns an event's line without secrets and without characters that could control a terminal: fields can hold text of
/// servers. The formatting layer writes each event with one call.
fn safe_line(event: &[u8], format: Format) -> String {
    let line = String::from_utf8_lossy(event);
    let line = Redactor::global().redact(line.trim_end());
    match format {
        Format::Text => format!("{}\n", text::line(&line, usize::MAX)),
        Format::Json => format!("{}\n", text::escape_json(&line)),
    }
}
