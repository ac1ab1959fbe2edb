//! Restricts an SQLite file to its owner: it contains the sources, arguments and results of every run.

use std::fs::{self, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const OWNER_ONLY: u32 = 0o600;
const OTHERS: u32 = 0o077;

/// Suffixes of the files that SQLite creates beside the database, with the database's own permissions.
const COMPANIONS: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Creates the file if it does not exist, and removes the permissions of group and others from it and its companions.
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(OWNER_ONLY).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    tighten(path)?;
    for suffix in COMPANIONS {
        let mut companion = path.as_os_str().to_owned();
        companion.push(suffix);
        match tighten(&PathBuf::from(companion)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn tighten(path: &Path) -> io::Result<()> {
    let found = fs::metadata(path)?;
    let mode = found.permissions().mode();
    // The permissions of a device or pipe are left alone.
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
    fn new_and_existing_files_become_accessible_to_their_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let (file, wal) = (folder.path().join("runs.db"), folder.path().join("runs.db-wal"));
        make_private(&file).unwrap();
        assert_eq!(mode(&file), 0o600);
        for path in [&file, &wal] {
            fs::write(path, "x").unwrap();
            fs::set_permissions(path, Permissions::from_mode(0o664)).unwrap();
        }
        make_private(&file).unwrap();
        assert_eq!((mode(&file), mode(&wal)), (0o600, 0o600));
        assert_eq!(fs::read(&file).unwrap(), b"x");
    }
}
