//! The folder that belongs to one command: its home and temporary files. It is removed when the command has ended.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use telemetry::LogIgnored;
use tempfile::TempDir;

#[derive(Debug)]
pub(super) struct PrivateFolder(TempDir);

impl PrivateFolder {
    /// Creates it below a folder for temporary files. Only the user can read it.
    pub(super) fn create(below: &Path) -> io::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("cellmate-exec-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(below)?;
        for name in ["home", "tmp"] {
            fs::create_dir(folder.path().join(name))?;
        }
        Ok(Self(folder))
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns the variables that name its parts.
    pub(super) fn variables(&self) -> BTreeMap<String, String> {
        let path = |name: &str| self.path().join(name).to_string_lossy().into_owned();
        let tmp = path("tmp");
        [("HOME", path("home")), ("TMPDIR", tmp.clone()), ("TMP", tmp.clone()), ("TEMP", tmp)]
            .map(|(name, value)| (name.to_owned(), value))
            .into()
    }

    /// Removes it with everything in it, also folders that the command made unreadable.
    pub(super) fn remove(self) {
        let path = self.0.keep();
        let removed = fs::remove_dir_all(&path).or_else(|_| {
            unlock(&path);
            fs::remove_dir_all(&path)
        });
        removed.log_ignored("remove the private folder of a command");
    }
}

/// Lets the user enter and change all folders below a path. Symbolic links are not followed.
fn unlock(path: &Path) {
    let mut open: Vec<PathBuf> = vec![path.to_owned()];
    while let Some(folder) = open.pop() {
        fs::set_permissions(&folder, Permissions::from_mode(0o700)).log_expected("unlock a private folder");
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        // The type of an entry is that of the link itself.
        open.extend(
            entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()),
        );
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::PrivateFolder;

    #[test]
    fn it_is_removed_with_locked_folders_and_without_following_links() {
        let place = tempfile::tempdir().unwrap();
        let outside = place.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("file"), "kept").unwrap();
        let folder = PrivateFolder::create(place.path()).unwrap();
        assert_eq!(fs::metadata(folder.path()).unwrap().permissions().mode() & 0o777, 0o700);
        let locked = folder.path().join("tmp/locked");
        fs::create_dir_all(locked.join("inner")).unwrap();
        std::os::unix::fs::symlink(&outside, locked.join("link")).unwrap();
        fs::set_permissions(&locked, Permissions::from_mode(0o000)).unwrap();
        let path = folder.path().to_owned();
        folder.remove();
        assert!(!path.exists());
        assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "kept");
    }
}
