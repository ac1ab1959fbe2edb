//! An SQLite file that its owner alone can read: it has the sources, arguments and results of every run.

use std::fs::{self, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const OWNER_ONLY: u32 = 0o600;
const OTHERS: u32 = 0o077;

/// What SQLite puts beside its file. It makes them with the permissions of the file itself.
const BESIDE: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Makes the file where there is none, and takes it and what is beside it from everybody but its owner.
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(OWNER_ONLY).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    tighten(path)?;
    for end in BESIDE {
        let mut beside = path.as_os_str().to_owned();
        beside.push(end);
        match tighten(&PathBuf::from(beside)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn tighten(path: &Path) -> io::Result<()> {
    let found = fs::metadata(path)?;
    let mode = found.permissions().mode();
    // A device or a pipe is nobody's to change.
    if !found.is_file() || mode & OTHERS == 0 {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(mode & 0o7777 & !OTHERS))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::make_private;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_new_file_is_private_and_an_existing_one_becomes_private() {
        let folder = tempfile::tempdir().unwrap();
        let (file, beside) = (folder.path().join("runs.db"), folder.path().join("runs.db-wal"));
        make_private(&file).unwrap();
        assert_eq!(mode(&file), 0o600);
        for path in [&file, &beside] {
            fs::write(path, "x").unwrap();
            fs::set_permissions(path, Permissions::from_mode(0o664)).unwrap();
        }
        make_private(&file).unwrap();
        assert_eq!((mode(&file), mode(&beside)), (0o600, 0o600));
        assert_eq!(fs::read(&file).unwrap(), b"x");
    }
}
