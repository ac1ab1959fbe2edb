//! `cellmate backup` and `cellmate restore`: a store in one file, taken while it is in use, put into any other.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use executor::clock::now_ms;
use store::{BackupError, Checked, KeyFile, Keys, Restoring, check_backup};

use crate::render;
use crate::state::{ConfiguredStore, StateError, StoreSettings, put_new};

/// A file is written and read in pieces of this size.
const BUFFER_BYTES: usize = 1 << 20;

#[derive(Debug, Args)]
pub(crate) struct BackupArguments {
    /// Where to put it. What is there already stays.
    file: PathBuf,
    /// Put the key file into it, too. Whoever has the backup can then read suspended cells.
    #[arg(long)]
    with_key: bool,
    #[command(flatten)]
    store: ConfiguredStore,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArguments {
    /// A file that `cellmate backup` made.
    file: PathBuf,
    /// Put it in place of what the store holds now, which is lost.
    #[arg(long)]
    replace: bool,
    /// End the runs that were under way when it was made. Then no key is needed, and nothing that was called since can
    /// be called again.
    #[arg(long)]
    end_runs: bool,
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
    #[error("`{0}` is there already; name another, or remove it")]
    There(PathBuf),
    #[error(
        "`{path}` does not have key {id}, which cells in the backup are sealed with; give the file that has it (`--key-file`), or `--end-runs`"
    )]
    Keyless { path: PathBuf, id: u32 },
    #[error("the key file in the backup cannot be used: {0}")]
    BadKeys(store::KeyFileError),
}

pub(crate) async fn run_backup(arguments: BackupArguments) -> ExitCode {
    said(backup(&arguments).await)
}

pub(crate) async fn run_restore(arguments: RestoreArguments) -> ExitCode {
    said(restore(&arguments).await)
}

fn said(done: Result<String, CommandError>) -> ExitCode {
    match done {
        Ok(said) => {
            render::note(&said);
            ExitCode::SUCCESS
        }
        Err(trouble) => render::trouble(&trouble.to_string()),
    }
}

async fn backup(arguments: &BackupArguments) -> Result<String, CommandError> {
    let kept = arguments.store.choose()?;
    let store = kept.open().await?;
    let keys = match arguments.with_key {
        true => Some(KeyFile::read(&kept.key_file).map_err(StateError::Key)?.text()),
        false => None,
    };
    let path = &arguments.file;
    let at = |error| CommandError::File { path: path.clone(), error };
    if path.exists() {
        return Err(CommandError::There(path.clone()));
    }
    let draft = beside(path).map_err(at)?;
    let written = async {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft).map_err(at)?;
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, file);
        let backed_up = store.backup(&mut out, keys.as_deref()).await;
        let rows = backed_up.map_err(|error| CommandError::Backup { location: kept.location.to_string(), error })?;
        out.flush().map_err(at)?;
        out.get_ref().sync_all().map_err(at)?;
        // Whoever put a file there meanwhile keeps it.
        match fs::hard_link(&draft, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(CommandError::There(path.clone())),
            linked => linked.map_err(at),
        }?;
        sync_folder(path).map_err(at)?;
        Ok::<u64, CommandError>(rows)
    };
    let written = written.await;
    drop(fs::remove_file(&draft));
    let key = if arguments.with_key {
        "the key is in it: keep it as you keep the key".to_owned()
    } else {
        format!("the key is not in it: keep {} elsewhere, or suspended cells cannot be opened", kept.key_file.display())
    };
    Ok(format!("{} rows of {} are in {}; {key}", written?, kept.location, path.display()))
}

async fn restore(arguments: &RestoreArguments) -> Result<String, CommandError> {
    let kept = arguments.store.choose()?;
    let bad = |error| CommandError::Backup { location: arguments.file.display().to_string(), error };
    let checked = check_backup(&mut reader(&arguments.file)?).map_err(bad)?;
    let keys = keys_for(&kept, &checked, arguments.end_runs)?;
    let store = kept.open_with(keys).await?;
    let how = Restoring { replace: arguments.replace, end_runs: arguments.end_runs };
    let restored = store.restore(&mut reader(&arguments.file)?, &checked, how, now_ms()).await;
    restored.map_err(|error| CommandError::Backup { location: kept.location.to_string(), error })?;
    store.close().await;
    // With its marks: whoever opens it next must have the same keys.
    kept.open().await?;
    let count = |table: &str| checked.rows.get(table).copied().unwrap_or(0);
    let runs = if arguments.end_runs { "those under way were ended" } else { "those under way can be gone on with" };
    Ok(format!("{} has {} runs, {runs}; {} entries of transcripts", kept.location, count("runs"), count("transcript")))
}

fn reader(path: &Path) -> Result<BufReader<File>, CommandError> {
    let file = File::open(path).map_err(|error| CommandError::File { path: path.to_owned(), error })?;
    Ok(BufReader::with_capacity(BUFFER_BYTES, file))
}

/// The keys at hand, or those in the backup where there are none; they must open what is in it.
fn keys_for(kept: &StoreSettings, checked: &Checked, end_runs: bool) -> Result<Keys, CommandError> {
    if let (false, Some(text)) = (kept.key_file.exists(), &checked.keys) {
        let there = KeyFile::parse(text, &kept.key_file).map_err(CommandError::BadKeys)?;
        put_new(&kept.key_file, &there.text())
            .map_err(|error| CommandError::File { path: kept.key_file.clone(), error })?;
    }
    kept.make_key()?;
    let known = KeyFile::read(&kept.key_file).map_err(StateError::Key)?;
    if !end_runs {
        let has = |id: &u32| {
            let mark = known.keys().find(|key| key.id == *id).map(store::Key::mark);
            mark.is_some() && (!checked.marks.contains_key(id) || mark.as_ref() == checked.marks.get(id))
        };
        if let Some(id) = checked.sealed_with.iter().find(|id| !has(id)) {
            return Err(CommandError::Keyless { path: kept.key_file.clone(), id: *id });
        }
    }
    Ok(Keys::of_file(&kept.key_file).map_err(StateError::Key)?)
}

fn beside(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| io::Error::other("it names no file"))?;
    let mut draft = std::ffi::OsString::from(format!(".{}-", std::process::id()));
    draft.push(name);
    Ok(path.with_file_name(draft))
}

/// A new name is on the disk when its folder is.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}
