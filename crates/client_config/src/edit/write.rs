//! Replaces a file atomically, and keeps a backup of the old one.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use tempfile::NamedTempFile;

use crate::files::{self, FileError};

/// The mode of a new file: it may hold secrets.
const PRIVATE: u32 = 0o600;
const PRIVATE_FOLDER: u32 = 0o700;

/// Why a file cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("`{}` was changed by another program in the meantime; try again", .0.display())]
    Changed(PathBuf),
    #[error("`{}`: {why}", file.display())]
    Read { file: PathBuf, why: FileError },
    #[error("cannot write `{}`: {}", file.display(), why.kind())]
    Write { file: PathBuf, why: io::Error },
    #[error("cannot find a folder for the backup of `{}`; set HOME", .0.display())]
    NoBackup(PathBuf),
}

/// A file that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenFile {
    /// The copy of the old file; `None` if there was no file.
    pub backup: Option<PathBuf>,
}

pub(super) fn replace(
    file: &Path,
    before: Option<&str>,
    after: &str,
    backups: Option<&Path>,
) -> Result<WrittenFile, WriteError> {
    let failed = |file: &Path| {
        let file = file.to_owned();
        move |why| WriteError::Write { file, why }
    };
    // Replaces the target of a symbolic link, not the link: dotfiles are often linked.
    let real = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let now = files::read_users(&real).map_err(|why| WriteError::Read { file: file.to_owned(), why })?;
    if now.as_deref() != before {
        return Err(WriteError::Changed(file.to_owned()));
    }
    let backup = match before {
        Some(text) => {
            let folder = backups.ok_or_else(|| WriteError::NoBackup(file.to_owned()))?;
            Some(keep(folder, &real, text).map_err(failed(folder))?)
        }
        None => None,
    };
    put(&real, after).map_err(failed(file))?;
    Ok(WrittenFile { backup })
}

fn put(file: &Path, text: &str) -> io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(PRIVATE_FOLDER).create(folder)?;
    let mode = fs::metadata(file).map_or(PRIVATE, |found| found.permissions().mode());
    let mut new = NamedTempFile::new_in(folder)?;
    new.write_all(text.as_bytes())?;
    new.as_file().set_permissions(Permissions::from_mode(mode))?;
    new.as_file().sync_all()?;
    new.persist(file).map_err(|error| error.error)?;
    fs::File::open(folder)?.sync_all()
}

/// Backs up the file in another folder: next to it, a copy with secrets could be committed to a repository.
fn keep(folder: &Path, file: &Path, text: &str) -> io::Result<PathBuf> {
    DirBuilder::new().recursive(true).mode(PRIVATE_FOLDER).create(folder)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let path = folder.join(format!("{now}-{}", name.trim_start_matches('.')));
    let mut kept = OpenOptions::new().write(true).create_new(true).mode(PRIVATE).open(&path)?;
    kept.write_all(text.as_bytes())?;
    kept.sync_all()?;
    Ok(path)
}
