//! Writing a file so that nobody ever sees half of it, and what it was is kept.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use tempfile::NamedTempFile;

use crate::config::files::{self, FileError};

/// For a file that is new: it will hold keys.
const PRIVATE: u32 = 0o600;
const PRIVATE_FOLDER: u32 = 0o700;

#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    #[error("`{}` was changed by somebody else meanwhile; try again", .0.display())]
    Changed(PathBuf),
    #[error("`{}`: {why}", file.display())]
    Read { file: PathBuf, why: FileError },
    #[error("cannot write `{}`: {}", file.display(), why.kind())]
    Write { file: PathBuf, why: io::Error },
    #[error("there is no home folder to keep `{}` in as it was; set HOME", .0.display())]
    NoBackup(PathBuf),
}

/// Where the file is kept as it was; nothing where there was none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) backup: Option<PathBuf>,
}

pub(super) fn replace(
    file: &Path,
    before: Option<&str>,
    after: &str,
    backups: Option<&Path>,
) -> Result<Written, WriteError> {
    let failed = |file: &Path| {
        let file = file.to_owned();
        move |why| WriteError::Write { file, why }
    };
    // Through links: dotfiles are often kept elsewhere.
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
    Ok(Written { backup })
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

/// Not beside the file: a copy with keys in it would end up in somebody's repository.
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
