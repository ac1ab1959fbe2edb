//! `cellmate backup` and `cellmate restore`: copy a store, which may be in use, to a file, and a file into any store.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use executor::clock::now_ms;
use serde_json::{Value, json};
use store::{BackupError, BackupSummary, KeyFile, Keys, RestoreOptions, check_backup};
use telemetry::LogIgnored;

use crate::render::{self, OutputFormat};
use crate::servers::confirm_question;
use crate::state::{ConfiguredStore, StateError, StoreSettings, create_private_file};

/// The buffer size for reading and writing backup files.
const BUFFER_BYTES: usize = 1 << 20;

#[derive(Debug, Args)]
pub(crate) struct BackupArguments {
    /// File to write; an existing file is not overwritten.
    file: PathBuf,
    /// Include the key file. Anyone with the backup can then read suspended cells.
    #[arg(long)]
    with_key: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: ConfiguredStore,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArguments {
    /// File written by `cellmate backup`.
    file: PathBuf,
    /// Replace the contents of the store, which are lost.
    #[arg(long)]
    replace: bool,
    /// Do not ask on a terminal before replacing.
    #[arg(long)]
    yes: bool,
    /// End the runs that were active when the backup was made. No key is needed then, and no tool that was called since
    /// is called again.
    #[arg(long)]
    end_runs: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: ConfiguredStore,
}

#[derive(Debug, thiserror::Error)]
enum CommandError {
    #[error(transparent)]
    State(#[from] StateError),
    #[error("{location}: {error}")]
    Backup { location: String, error: BackupError },
    #[error("cannot use `{path}`: {error}")]
    File { path: PathBuf, error: io::Error },
    #[error("`{0}` already exists; choose another name, or remove it")]
    FileExists(PathBuf),
    #[error(
        "`{path}` does not contain key {id}, which seals cells in the backup; pass the file that contains it with \
         `--key-file`, or pass `--end-runs`"
    )]
    MissingKey { path: PathBuf, id: u32 },
    #[error("nothing was replaced")]
    NotConfirmed,
    #[error("cannot use the key file in the backup: {0}")]
    BadKeys(store::KeyFileError),
}

pub(crate) async fn run_backup(arguments: BackupArguments) -> ExitCode {
    report(backup(&arguments).await, OutputFormat::from_flag(arguments.json))
}

pub(crate) async fn run_restore(arguments: RestoreArguments) -> ExitCode {
    report(restore(&arguments).await, OutputFormat::from_flag(arguments.json))
}

/// What a command did, for people and for programs.
struct Report {
    message: String,
    json: Value,
}

fn report(result: Result<Report, CommandError>, format: OutputFormat) -> ExitCode {
    match result {
        Ok(report) => {
            if format == OutputFormat::Json {
                render::print_json(&report.json);
            } else {
                render::note(&report.message);
            }
            ExitCode::SUCCESS
        }
        Err(error) => render::fatal(&error.to_string()),
    }
}

async fn backup(arguments: &BackupArguments) -> Result<Report, CommandError> {
    let store_settings = arguments.store.choose()?;
    let store = store_settings.open().await?;
    let keys = match arguments.with_key {
        true => Some(KeyFile::read(&store_settings.key_file).map_err(StateError::Key)?.text()),
        false => None,
    };
    let path = &arguments.file;
    let at = |error| CommandError::File { path: path.clone(), error };
    if path.exists() {
        return Err(CommandError::FileExists(path.clone()));
    }
    let draft = draft_path(path).map_err(at)?;
    let written = async {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft).map_err(at)?;
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, file);
        let backed_up = store.backup(&mut out, keys.as_deref()).await;
        let rows =
            backed_up.map_err(|error| CommandError::Backup { location: store_settings.location.to_string(), error })?;
        out.flush().map_err(at)?;
        out.get_ref().sync_all().map_err(at)?;
        // A hard link fails if another process created the file since the check above, so it is not overwritten.
        match fs::hard_link(&draft, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(CommandError::FileExists(path.clone())),
            linked => linked.map_err(at),
        }?;
        sync_folder(path).map_err(at)?;
        Ok::<u64, CommandError>(rows)
    };
    let written = written.await;
    fs::remove_file(&draft).log_ignored("remove the draft of a backup");
    let key = if arguments.with_key {
        "it contains the key file, so protect it like the key file".to_owned()
    } else {
        format!(
            "it does not contain the key file: back up {} separately, or suspended cells cannot be resumed",
            store_settings.key_file.display()
        )
    };
    let rows = written?;
    Ok(Report {
        message: format!("wrote {rows} rows of {} to {}; {key}", store_settings.location, path.display()),
        json: json!({
            "file": path, "rows": rows, "store": store_settings.location.to_string(), "withKey": arguments.with_key,
            "keyFile": store_settings.key_file,
        }),
    })
}

async fn restore(arguments: &RestoreArguments) -> Result<Report, CommandError> {
    let store_settings = arguments.store.choose()?;
    let bad = |error| CommandError::Backup { location: arguments.file.display().to_string(), error };
    let summary = check_backup(&mut reader(&arguments.file)?).map_err(bad)?;
    let asks = arguments.replace && !arguments.yes && !arguments.json;
    let question = format!("Replace everything in {}?", store_settings.location);
    if asks && confirm_question(&question) == Some(false) {
        return Err(CommandError::NotConfirmed);
    }
    let active_runs = if arguments.end_runs { ActiveRuns::End } else { ActiveRuns::Resume };
    let keys = keys_for(&store_settings, &summary, active_runs)?;
    let store = store_settings.open_with(keys).await?;
    let options = RestoreOptions { replace: arguments.replace, end_runs: arguments.end_runs };
    let restored = store.restore(&mut reader(&arguments.file)?, &summary, options, now_ms()).await;
    restored.map_err(|error| CommandError::Backup { location: store_settings.location.to_string(), error })?;
    store.close().await;
    // Opening the store records the fingerprints of its keys, so that a process with other keys cannot open it later.
    store_settings.open().await?;
    let count = |table: &str| summary.row_counts.get(table).copied().unwrap_or(0);
    let active = if arguments.end_runs { "active runs were ended" } else { "active runs can be resumed" };
    let (runs, entries) = (count("runs"), count("transcript"));
    Ok(Report {
        message: format!(
            "restored {runs} runs and {entries} transcript entries into {}; {active}",
            store_settings.location
        ),
        json: json!({
            "store": store_settings.location.to_string(), "runs": runs, "transcriptEntries": entries,
            "endedRuns": arguments.end_runs,
        }),
    })
}

fn reader(path: &Path) -> Result<BufReader<File>, CommandError> {
    let file = File::open(path).map_err(|error| CommandError::File { path: path.to_owned(), error })?;
    Ok(BufReader::with_capacity(BUFFER_BYTES, file))
}

/// What becomes of the runs that were active when the backup was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ActiveRuns {
    Resume,
    End,
}

/// Returns the keys of the key file, which is created from the backup if it does not exist.
///
/// Fails if they cannot open the cells in the backup, unless all runs are ended.
fn keys_for(
    store_settings: &StoreSettings,
    summary: &BackupSummary,
    active_runs: ActiveRuns,
) -> Result<Keys, CommandError> {
    if let (false, Some(text)) = (store_settings.key_file.exists(), &summary.key_file) {
        let there = KeyFile::parse(text, &store_settings.key_file).map_err(CommandError::BadKeys)?;
        create_private_file(&store_settings.key_file, there.text())
            .map_err(|error| CommandError::File { path: store_settings.key_file.clone(), error })?;
    }
    store_settings.make_key()?;
    let known = KeyFile::read(&store_settings.key_file).map_err(StateError::Key)?;
    if active_runs == ActiveRuns::Resume {
        let has = |id: &u32| {
            let fingerprint = known.keys().find(|key| key.id == *id).map(store::Key::fingerprint);
            let recorded = summary.key_fingerprints.get(id);
            fingerprint.is_some() && (recorded.is_none() || fingerprint.as_ref() == recorded)
        };
        if let Some(id) = summary.sealed_with.iter().find(|id| !has(id)) {
            return Err(CommandError::MissingKey { path: store_settings.key_file.clone(), id: *id });
        }
    }
    Ok(Keys::of_file(&store_settings.key_file).map_err(StateError::Key)?)
}

/// Returns the path of a temporary file in the same folder.
fn draft_path(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| io::Error::other("the path has no file name"))?;
    let mut draft = std::ffi::OsString::from(format!(".{}-", std::process::id()));
    draft.push(name);
    Ok(path.with_file_name(draft))
}

/// Syncs the file's folder: only then is a new name in it durable.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}
