//! `cellmate runs output`: lists the stored outputs of a run, and writes one of them to standard output or a file, piece
//! by piece.

use std::fs::{self, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use client_config::display;
use contract::ids::{OutputHandle, RunId};
use contract::text;
use executor::clock::now_ms;
use serde_json::{Value, json};
use store::{Millis, OutputKind, OutputPosition, OutputRow, Store};

use super::arguments::OutputArguments;
use super::{RunsError, find_run};
use crate::age::span;
use crate::render::{self, OutputFormat};
use crate::size::size;
use crate::table::{Table, terminal_width};

/// How many outputs an error names.
const MAX_NAMED: usize = 8;

#[derive(Debug, thiserror::Error)]
pub(super) enum OutputError {
    #[error("run `{run}` has no output `{typed}`; `cellmate runs output {run}` lists its outputs")]
    None { run: RunId, typed: String },
    #[error("`{typed}` is the start of several outputs; type more of it: {names}")]
    Several { typed: String, names: String },
    #[error(
        "`{name}` is {what}, which a terminal cannot show; write it to a file with `-o FILE`, or pipe it to another program"
    )]
    Binary { name: String, what: String },
    #[error("`{0}` exists; pass --force to replace it")]
    Exists(String),
    #[error("cannot write `{path}`: {source}")]
    Write { path: String, source: io::Error },
    #[error("the output ends after {read} of {bytes} bytes; its run was deleted meanwhile, or the store is damaged")]
    Cut { read: u64, bytes: u64 },
}

pub(super) async fn run(
    store: &Store,
    arguments: &OutputArguments,
    format: OutputFormat,
) -> Result<ExitCode, RunsError> {
    let handle = OutputHandle::new(arguments.run.trim());
    let (run, typed) = match (handle.parts(), &arguments.handle) {
        // A handle names its run.
        (Some((run, _)), None) => (find_run(store, &run).await?, Some(handle.as_str())),
        (_, typed) => (find_run(store, &arguments.run).await?, typed.as_deref()),
    };
    let rows = store.outputs_of_run(&run).await?;
    let Some(typed) = typed else {
        list(&run, &rows, format);
        return Ok(ExitCode::SUCCESS);
    };
    let row = find(&run, &rows, typed)?;
    match arguments.file.as_deref().filter(|path| *path != Path::new("-")) {
        Some(path) => {
            let existing = if arguments.force { ExistingFile::Replace } else { ExistingFile::Keep };
            write_file(store, row, path, existing).await?;
            if format == OutputFormat::Json {
                let mut described = to_json(row);
                if let Some(fields) = described.as_object_mut() {
                    fields.insert("file".to_owned(), json!(path));
                }
                render::print_json(&described);
            } else {
                render::note(&format!("wrote {} to {}", size(row.bytes), display::path(path)));
            }
        }
        None => write_out(store, row, arguments, format).await?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list(run: &RunId, rows: &[OutputRow], format: OutputFormat) {
    if format == OutputFormat::Json {
        render::print_json(&json!({"runId": run, "outputs": rows.iter().map(to_json).collect::<Vec<_>>()}));
    } else if rows.is_empty() {
        render::note("no stored outputs; what fits a result is part of it, and `cellmate runs show` shows it");
    } else {
        // A person gets the last part of each handle, which is enough to type; a program gets all of it.
        let display = if terminal_width().is_some() { HandleDisplay::LastPart } else { HandleDisplay::Handle };
        render::print_table(&table(rows, display, now_ms()));
    }
}

/// What a table shows of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandleDisplay {
    Handle,
    /// The name within the run.
    LastPart,
}

/// Returns a table of outputs.
pub(crate) fn table(rows: &[OutputRow], display: HandleDisplay, now: Millis) -> Table<5> {
    let mut table = Table::new(["OUTPUT", "TYPE", "SIZE", "AGE", "FROM"]).with_whole(&[0, 2, 3]);
    for row in rows {
        let from = row.source.as_ref().map_or("the cell", |(_, tool)| tool.as_str());
        let name = match display {
            HandleDisplay::Handle => row.handle.as_str(),
            HandleDisplay::LastPart => last_part(row),
        };
        table.add([name.to_owned(), type_of(row), size(row.bytes), span(now - row.created_at), from.to_owned()]);
    }
    table
}

fn last_part(row: &OutputRow) -> &str {
    row.handle.parts().map_or(row.handle.as_str(), |(_, name)| name)
}

fn type_of(row: &OutputRow) -> String {
    row.mime_type.clone().unwrap_or_else(|| kind(row.kind).to_owned())
}

fn kind(kind: OutputKind) -> &'static str {
    match kind {
        OutputKind::Text => "text",
        OutputKind::Json => "json",
        OutputKind::Image => "image",
        OutputKind::Audio => "audio",
        OutputKind::Binary => "binary",
    }
}

fn is_text(row: &OutputRow) -> bool {
    matches!(row.kind, OutputKind::Text | OutputKind::Json)
}

/// Returns an output without its content.
pub(crate) fn to_json(row: &OutputRow) -> Value {
    json!({
        "handle": row.handle,
        "type": kind(row.kind),
        "mimeType": row.mime_type,
        "bytes": row.bytes,
        "length": is_text(row).then_some(row.units),
        "lines": is_text(row).then_some(row.lines),
        "tool": row.source.as_ref().map(|(_, tool)| tool),
        "call": row.source.as_ref().map(|(call, _)| call),
        "createdAt": row.created_at,
    })
}

/// Returns the output that the user means: by its handle, by the handle's last part, or by the only one that starts so.
fn find<'a>(run: &RunId, rows: &'a [OutputRow], typed: &str) -> Result<&'a OutputRow, OutputError> {
    let typed = typed.trim();
    if let Some(row) = rows.iter().find(|row| row.handle.as_str() == typed || last_part(row) == typed) {
        return Ok(row);
    }
    let starts = |row: &&OutputRow| row.handle.starts_with(typed) || last_part(row).starts_with(typed);
    let found: Vec<&OutputRow> = rows.iter().filter(starts).filter(|_| !typed.is_empty()).collect();
    match found.as_slice() {
        [only] => Ok(only),
        [] => Err(OutputError::None { run: run.clone(), typed: text::line(typed, 100) }),
        several => {
            let mut names: Vec<&str> = several.iter().take(MAX_NAMED).map(|row| last_part(row)).collect();
            if several.len() > MAX_NAMED {
                names.push("…");
            }
            Err(OutputError::Several { typed: text::line(typed, 100), names: names.join(", ") })
        }
    }
}

/// Writes an output to standard output: for programs as it is, for a terminal without characters that could control it.
async fn write_out(
    store: &Store,
    row: &OutputRow,
    arguments: &OutputArguments,
    format: OutputFormat,
) -> Result<(), RunsError> {
    let is_terminal = io::stdout().is_terminal();
    let form = if format == OutputFormat::Json {
        Form::Json
    } else if is_terminal && !arguments.raw {
        if !is_text(row) {
            let what = format!("{}, {}", type_of(row), size(row.bytes));
            return Err(OutputError::Binary { name: row.handle.to_string(), what: text::line(&what, 200) }.into());
        }
        Form::Escaped
    } else {
        Form::Raw
    };
    match copy(store, row, &mut Encoder::new(form, row), &mut io::stdout().lock()).await {
        // A closed pipe, as with `head`, is not an error.
        Err(CopyError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(CopyError::Write(source)) => Err(OutputError::Write { path: "standard output".to_owned(), source }.into()),
        Err(CopyError::Read(error)) => Err(error),
        Ok(()) => Ok(()),
    }
}

/// What is done with a file that exists under the name of the output's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExistingFile {
    /// The file stays, and the command fails.
    Keep,
    Replace,
}

/// Writes an output to a file. An existing file is replaced only if asked, and only once all of the output is there.
async fn write_file(store: &Store, row: &OutputRow, path: &Path, existing: ExistingFile) -> Result<(), RunsError> {
    let failed = |source: io::Error| RunsError::Output(OutputError::Write { path: display::path(path), source });
    let found = fs::symlink_metadata(path).ok();
    if found.is_some() && existing == ExistingFile::Keep {
        return Err(OutputError::Exists(display::path(path)).into());
    }
    let mut encoder = Encoder::new(Form::Raw, row);
    let copied = |error: CopyError| match error {
        CopyError::Write(source) => failed(source),
        CopyError::Read(error) => error,
    };
    // A link, a pipe or a device is written to, not replaced.
    if found.is_some_and(|found| !found.is_file()) {
        let mut file = OpenOptions::new().write(true).truncate(true).open(path).map_err(failed)?;
        return copy(store, row, &mut encoder, &mut file).await.map_err(copied);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The umask is applied to these rights.
    let rights = fs::Permissions::from_mode(0o666);
    let mut draft =
        tempfile::Builder::new().prefix(".cellmate-").permissions(rights).tempfile_in(folder).map_err(failed)?;
    copy(store, row, &mut encoder, draft.as_file_mut()).await.map_err(copied)?;
    if existing == ExistingFile::Replace {
        draft.persist(path).map_err(|error| failed(error.error))?;
    } else {
        draft.persist_noclobber(path).map_err(|error| match error.error.kind() {
            io::ErrorKind::AlreadyExists => OutputError::Exists(display::path(path)).into(),
            _ => failed(error.error),
        })?;
    }
    Ok(())
}

enum CopyError {
    Read(RunsError),
    Write(io::Error),
}

/// Copies an output, one piece at a time.
async fn copy(
    store: &Store,
    row: &OutputRow,
    encoder: &mut Encoder,
    out: &mut (impl Write + ?Sized),
) -> Result<(), CopyError> {
    out.write_all(encoder.begin(row).as_bytes()).map_err(CopyError::Write)?;
    let mut read = 0;
    while read < row.bytes {
        let piece = store.output_piece(&row.handle, OutputPosition::Byte(read)).await;
        let piece = piece.map_err(|error| CopyError::Read(error.into()))?;
        let from = |start: u64| usize::try_from(read - start).ok();
        let data = piece.as_ref().filter(|piece| piece.start_byte <= read).and_then(|piece| {
            let data = piece.data.get(from(piece.start_byte)?..)?;
            (!data.is_empty()).then_some(data)
        });
        let Some(data) = data else {
            return Err(CopyError::Read(OutputError::Cut { read, bytes: row.bytes }.into()));
        };
        out.write_all(&encoder.encode(data)).map_err(CopyError::Write)?;
        read += data.len() as u64;
    }
    out.write_all(&encoder.end()).and_then(|()| out.flush()).map_err(CopyError::Write)
}

/// How an output is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// The content as it is stored.
    Raw,
    /// Text without characters that could control a terminal.
    Escaped,
    /// A JSON object, with the content as `text` or `base64`.
    Json,
}

/// Converts an output to its form, one piece at a time.
#[derive(Debug)]
struct Encoder {
    form: Form,
    is_text: bool,
    /// Bytes that the next piece completes: of a group of base64, or a carriage return at the end of a piece.
    left: Vec<u8>,
    ends_line: bool,
}

impl Encoder {
    fn new(form: Form, row: &OutputRow) -> Self {
        Self { form, is_text: is_text(row), left: Vec::new(), ends_line: true }
    }

    /// Returns what comes before the first piece.
    fn begin(&self, row: &OutputRow) -> String {
        if self.form != Form::Json {
            return String::new();
        }
        let described = to_json(row).to_string();
        let name = if self.is_text { "text" } else { "base64" };
        let described = text::escape_json(described.trim_end_matches('}')).into_owned();
        format!("{described},\"{name}\":\"")
    }

    fn encode(&mut self, data: &[u8]) -> Vec<u8> {
        if self.form == Form::Raw {
            return data.to_vec();
        }
        let mut all = std::mem::take(&mut self.left);
        all.extend(data);
        if self.is_text {
            if self.form == Form::Escaped && all.ends_with(b"\r") {
                self.left = all.split_off(all.len() - 1);
            }
        } else {
            self.left = all.split_off(all.len() / 3 * 3);
        }
        self.converted(&all)
    }

    /// Returns what comes after the last piece.
    fn end(&mut self) -> Vec<u8> {
        let left = std::mem::take(&mut self.left);
        let mut end = self.converted(&left);
        match self.form {
            Form::Raw => {}
            Form::Escaped if self.ends_line => {}
            Form::Escaped => end.push(b'\n'),
            Form::Json => end.extend(b"\"}\n"),
        }
        end
    }

    fn converted(&mut self, data: &[u8]) -> Vec<u8> {
        match (self.form, self.is_text) {
            (Form::Raw, _) => data.to_vec(),
            (Form::Json, false) => BASE64.encode(data).into_bytes(),
            (Form::Json, true) => {
                let quoted = json!(String::from_utf8_lossy(data)).to_string();
                let inside = quoted.get(1..quoted.len() - 1).unwrap_or_default();
                text::escape_json(inside).into_owned().into_bytes()
            }
            (Form::Escaped, _) => {
                if let Some(last) = data.last() {
                    self.ends_line = *last == b'\n';
                }
                text::plain(&String::from_utf8_lossy(data), usize::MAX).into_bytes()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use contract::ids::{CallId, OutputHandle, RunId};
    use serde_json::Value;
    use store::{OutputKind, OutputRow};

    use super::{Encoder, Form, HandleDisplay, find, table};

    fn row(name: &str, kind: OutputKind) -> OutputRow {
        OutputRow {
            handle: OutputHandle::of(&RunId::new("cm_1"), name),
            kind,
            mime_type: (kind == OutputKind::Image).then(|| "image/png".to_owned()),
            source: (kind == OutputKind::Image).then(|| (CallId(3), "mcp:s:draw".to_owned())),
            bytes: 70_000,
            units: 70_000,
            lines: 3,
            created_at: 0,
        }
    }

    #[test]
    fn an_output_is_found_by_its_handle_its_last_part_or_a_unique_start() {
        let rows = [row("l1n0", OutputKind::Text), row("l1n1", OutputKind::Json), row("c3n0", OutputKind::Image)];
        let run = RunId::new("cm_1");
        let found = |typed: &str| find(&run, &rows, typed).map(|row| row.handle.to_string()).map_err(|e| e.to_string());
        for typed in ["out_cm_1_c3n0", "c3n0", "c", " out_cm_1_c"] {
            assert_eq!(found(typed), Ok("out_cm_1_c3n0".to_owned()), "{typed}");
        }
        assert_eq!(found("l1n0"), Ok("out_cm_1_l1n0".to_owned()));
        let several = found("l").unwrap_err();
        assert!(several.contains("several outputs") && several.ends_with("l1n0, l1n1"), "{several}");
        for typed in ["", "x", "out_cm_2_c3n0", "\u{9b}"] {
            let none = found(typed).unwrap_err();
            assert!(none.contains("has no output") && !none.contains('\u{9b}'), "{none}");
        }
    }

    #[test]
    fn the_pieces_of_every_form_are_those_of_the_whole() {
        let whole = "a\u{9b}b\"\\\r\nä\u{1}\r";
        let text_row = row("l1n0", OutputKind::Text);
        for at in whole.char_indices().map(|(at, _)| at) {
            let written = |form: Form, row: &OutputRow| {
                let mut encoder = Encoder::new(form, row);
                let mut written = encoder.begin(row).into_bytes();
                let (first, second) = whole.as_bytes().split_at(at);
                written.extend(encoder.encode(first));
                written.extend(encoder.encode(second));
                written.extend(encoder.end());
                String::from_utf8(written).unwrap()
            };
            assert_eq!(written(Form::Raw, &text_row), whole);
            assert_eq!(written(Form::Escaped, &text_row), "a\\u{9b}b\"\\\nä\\u{1}\\u{d}\n", "{at}");
            let json = written(Form::Json, &text_row);
            assert!(!json.contains('\u{9b}'), "{json}");
            let json: Value = serde_json::from_str(&json).unwrap();
            assert_eq!((&json["text"], &json["handle"]), (&whole.into(), &"out_cm_1_l1n0".into()));
            let json: Value = serde_json::from_str(&written(Form::Json, &row("c3n0", OutputKind::Image))).unwrap();
            assert_eq!(json["base64"], "YcKbYiJcDQrDpAEN", "{at}");
        }
    }

    #[test]
    fn a_table_shows_handles_to_programs_and_their_last_parts_to_people() {
        let rows = [row("l1n0", OutputKind::Text), row("c3n0", OutputKind::Image)];
        let wide = "OUTPUT         TYPE       SIZE   AGE  FROM\n\
                    out_cm_1_l1n0  text       70 kB  5 s  the cell\n\
                    out_cm_1_c3n0  image/png  70 kB  5 s  mcp:s:draw\n";
        assert_eq!(table(&rows, HandleDisplay::Handle, 5_000).render(None), wide);
        let narrow = "OUTPUT  TYPE     SIZE   AGE  FROM\n\
                      l1n0    text     70 kB  5 s  the ce…\n\
                      c3n0    image/…  70 kB  5 s  mcp:s:…\n";
        assert_eq!(table(&rows, HandleDisplay::LastPart, 5_000).render(Some(36)), narrow);
    }
}
