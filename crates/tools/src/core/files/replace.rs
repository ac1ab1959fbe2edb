//! Changes files so that each is replaced as a whole or not at all.
//!
//! New content is written to a temporary file in the same folder, which then takes the file's name. So readers see the
//! former content or the new one, a hard link elsewhere keeps the former content, and a symbolic link that takes the
//! file's place is replaced and not followed. A file that was read before is exchanged: the former file comes out, and
//! if it is not what was read, it is put back. Several files are changed one after the other; if one fails, the former
//! ones are put back.
//!
//! If the process is killed in between, files whose turn had come are changed and the others are not, and temporary files
//! (`.cellmate-….tmp`) remain.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use contract::limits::MAX_EDITED_FILE_BYTES;
use rustix::fs::{
    Access, AtFlags, FileType, FlockOperation, Gid, Mode, OFlags, RenameFlags, Stat, Uid, accessat, fchmod, fchown,
    flock, fstat, fsync, linkat, mkdirat, openat, readlinkat, renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use super::CancelFlag;
use super::failure::{Failure, refused};
use super::open::{READ, ReadError, check_regular, read_whole};
use crate::core::beneath::Links;
use crate::core::roots::{Place, Roots, shorten};

/// The place where a file is or will be: an open folder and a name in it.
pub(super) struct Target<'r> {
    roots: &'r Roots,
    pub(super) place: Place,
    folder: OwnedFd,
    name: OsString,
}

/// A file as it was read.
#[derive(Debug)]
pub(super) struct Original {
    stat: Stat,
    pub(super) content: Vec<u8>,
}

/// Who may do what with a new file.
pub(super) enum Permissions<'s> {
    /// The permissions that the system gives to new files.
    New,
    /// The permissions of another file.
    Of(&'s Stat),
}

impl Original {
    pub(super) fn permissions(&self) -> Permissions<'_> {
        Permissions::Of(&self.stat)
    }
}

impl<'r> Target<'r> {
    /// Finds a file whose folder exists.
    pub(super) fn find(roots: &'r Roots, place: Place) -> Result<Self, Failure> {
        let Some((parent, name)) = place.below.parent().zip(place.below.file_name()) else {
            return Err(refused(roots, &place, Errno::ISDIR));
        };
        let name = name.to_owned();
        let folder = open_parent(&place, parent).map_err(|error| refused(roots, &place, error))?;
        Ok(Self { roots, place, folder, name })
    }

    /// Finds a file; `None` if its folder does not exist.
    pub(super) fn find_if_any(roots: &'r Roots, place: &Place) -> Result<Option<Self>, Failure> {
        match open_parent(place, place.below.parent().unwrap_or(Path::new(""))) {
            Err(Errno::NOENT) => Ok(None),
            Ok(_) | Err(_) => Self::find(roots, place.clone()).map(Some),
        }
    }

    fn refused(&self, error: Errno) -> Failure {
        refused(self.roots, &self.place, error)
    }

    fn shown(&self) -> String {
        shorten(&self.place.shown)
    }

    /// Returns what the system says of the file, if there is one. Fails if it is not a regular file that may be changed.
    pub(super) fn check_changeable(&self) -> Result<Option<Stat>, Failure> {
        let stat = match statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(self.refused(error)),
        };
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            return Err(self.is_a_link());
        }
        check_regular(&self.place, &stat)?;
        // Replacing a file needs no permission to write to it, so a file that is protected must be recognized.
        match accessat(&self.folder, &self.name, Access::WRITE_OK, AtFlags::EACCESS) {
            Ok(()) => Ok(Some(stat)),
            Err(Errno::ACCESS | Errno::ROFS) => {
                Err(Failure::new(format!("`{}` is write-protected; it is not changed", self.shown())))
            }
            Err(error) => Err(self.refused(error)),
        }
    }

    /// A link is not written through: the file that it names would be replaced without the caller knowing where it is.
    fn is_a_link(&self) -> Failure {
        let target = readlinkat(&self.folder, &self.name, Vec::new()).unwrap_or_default();
        let (path, target) = (self.shown(), shorten(&target.to_string_lossy()));
        Failure::new(format!("`{path}` is a symbolic link to `{target}`; name the file that it points to"))
    }

    /// Reads the file, which must exist and be changeable.
    pub(super) fn read(&self, cancel: &CancelFlag) -> Result<Original, Failure> {
        if self.check_changeable()?.is_none() {
            return Err(self.refused(Errno::NOENT));
        }
        let opened = openat(&self.folder, &self.name, READ | OFlags::NOFOLLOW, Mode::empty());
        let opened = opened.map_err(|error| self.refused(error))?;
        let stat = fstat(&opened).map_err(|error| self.refused(error))?;
        check_regular(&self.place, &stat)?;
        let content = read_whole(&mut File::from(opened), MAX_EDITED_FILE_BYTES, cancel).map_err(|error| match error {
            ReadError::Stopped => Failure::new("the call was cancelled"),
            ReadError::System(error) => self.refused(error),
            ReadError::TooLarge => Failure::new(format!(
                "`{}` has more than {MAX_EDITED_FILE_BYTES} bytes; replace it with `write`, or change it with a program",
                self.shown()
            )),
        })?;
        Ok(Original { stat, content })
    }

    /// Writes content to a temporary file beside this file.
    pub(super) fn stage(
        &self,
        content: &[u8],
        permissions: &Permissions<'_>,
        cancel: &CancelFlag,
    ) -> Result<StagedFile<'_>, Failure> {
        let failed = |error: Errno| self.refused(error);
        let temporary = temporary_name()?;
        let mode = match permissions {
            Permissions::New => Mode::from_raw_mode(0o666),
            Permissions::Of(_) => Mode::from_raw_mode(0o600),
        };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(&self.folder, &temporary, flags, mode).map_err(failed)?;
        // From here on, dropping it removes the temporary file.
        let mut staged = StagedFile { target: self, temporary, identity: (0, 0) };
        staged.identity = identity(&fstat(&opened).map_err(failed)?);
        if let Permissions::Of(stat) = permissions {
            // Only the superuser can give a file away; otherwise it belongs to the user of this process.
            if fchown(&opened, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid))).is_err() {
                // A member of the group can at least keep the group.
                fchown(&opened, None, Some(Gid::from_raw(stat.st_gid))).ok();
            }
            // As after any change of a file, it is not set-user-id or set-group-id any more.
            fchmod(&opened, Mode::from_raw_mode(stat.st_mode & 0o777)).map_err(failed)?;
        }
        let mut file = File::from(opened);
        for piece in content.chunks(1 << 20) {
            cancel.check()?;
            file.write_all(piece).map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        }
        fsync(&file).map_err(failed)?;
        Ok(staged)
    }

    /// Whether the entry with this name in the folder is the file that was read, with the same content.
    fn is_unchanged(&self, name: &OsStr, original: &Original) -> bool {
        let Ok(opened) = openat(&self.folder, name, READ | OFlags::NOFOLLOW, Mode::empty()) else { return false };
        let Ok(stat) = fstat(&opened) else { return false };
        let is_same = identity(&stat) == identity(&original.stat);
        let limit = original.content.len();
        is_same
            && read_whole(&mut File::from(opened), limit, &CancelFlag::default())
                .is_ok_and(|now| now == original.content)
    }

    fn changed_meanwhile(&self) -> Failure {
        Failure::new(format!(
            "`{}` was changed by another program during this call, so it was not changed here; read it again, then repeat \
             the change",
            self.shown()
        ))
    }

    fn exists_meanwhile(&self) -> Failure {
        Failure::new(format!("`{}` exists; it is not overwritten", self.shown()))
    }

    /// Makes the entries of the folder durable.
    fn sync(&self) {
        // The change itself is done; on file systems that cannot do this, nothing can be done about it.
        fsync(&self.folder).ok();
    }

    fn remove(&self, name: &OsStr) {
        // A temporary file that cannot be removed does no harm.
        unlinkat(&self.folder, name, AtFlags::empty()).ok();
    }
}

/// Returns what tells a file from all others, whatever its name is.
fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// How long a process waits for another one that changes files in the same folder.
const LOCK_ATTEMPTS: usize = 200;
const LOCK_INTERVAL: Duration = Duration::from_millis(10);

impl Target<'_> {
    /// Keeps other calls, of this process or others, from changing files of this folder until the folder is unlocked.
    ///
    /// Without the lock, which some file systems do not have, what is put back is still checked.
    fn lock(&self) -> Unlock<'_> {
        for _ in 0..LOCK_ATTEMPTS {
            match flock(&self.folder, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCK_INTERVAL),
                Ok(()) | Err(_) => break,
            }
        }
        Unlock(self)
    }
}

/// Unlocks a folder when it is dropped.
struct Unlock<'t>(&'t Target<'t>);

impl Drop for Unlock<'_> {
    fn drop(&mut self) {
        // Closing the folder would do it too.
        flock(&self.0.folder, FlockOperation::Unlock).ok();
    }
}

/// Opens the folder of a file.
fn open_parent(place: &Place, parent: &Path) -> Result<OwnedFd, Errno> {
    place.root.open_below(parent, OFlags::RDONLY | OFlags::DIRECTORY, Links::Follow)
}

/// Folders that were created for new files. They are removed again if they are not needed after all.
#[derive(Default)]
pub(super) struct NewFolders {
    created: Vec<(OwnedFd, OsString)>,
}

impl NewFolders {
    /// Creates the folders of a path that do not exist, inside the root.
    pub(super) fn create_for(&mut self, roots: &Roots, place: &Place) -> Result<(), Failure> {
        let failed = |error| refused(roots, place, error);
        let Some(parent) = place.below.parent() else { return Err(failed(Errno::ISDIR)) };
        if open_parent(place, parent).is_ok() {
            return Ok(());
        }
        let mut folders: Vec<&Path> = parent.ancestors().collect();
        folders.reverse();
        for pair in folders.windows(2) {
            let [parent, folder] = pair else { continue };
            match open_parent(place, folder) {
                Ok(_) => continue,
                Err(Errno::NOENT) => {}
                Err(error) => return Err(failed(error)),
            }
            let parent = open_parent(place, parent).map_err(failed)?;
            let Some(name) = folder.file_name() else { continue };
            match mkdirat(&parent, name, Mode::from_raw_mode(0o777)) {
                Ok(()) => self.created.push((parent, name.to_owned())),
                // Another program was faster. If it is not a folder, opening it fails.
                Err(Errno::EXIST) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        open_parent(place, parent).map(drop).map_err(failed)
    }

    /// Keeps the folders.
    pub(super) fn keep(mut self) {
        self.created.clear();
    }
}

impl Drop for NewFolders {
    fn drop(&mut self) {
        for (parent, name) in self.created.iter().rev() {
            // A folder that another program uses by now is not empty and stays.
            unlinkat(parent, name, AtFlags::REMOVEDIR).ok();
        }
    }
}

/// A temporary file with the new content. It is removed when this is dropped.
pub(super) struct StagedFile<'t> {
    target: &'t Target<'t>,
    temporary: OsString,
    /// Device and number of the file, which it keeps under any name.
    identity: (u64, u64),
}

impl Drop for StagedFile<'_> {
    fn drop(&mut self) {
        self.target.remove(&self.temporary);
    }
}

impl StagedFile<'_> {
    /// Exchanges the temporary file and the file.
    fn exchange(&self) -> Result<(), Errno> {
        let (folder, name) = (&self.target.folder, &self.target.name);
        renameat_with(folder, &self.temporary, folder, name, RenameFlags::EXCHANGE)
    }

    /// Undoes an exchange. If another program has replaced the new file since, that program's file stays.
    fn exchange_back(&self) -> Result<(), Errno> {
        self.exchange()?;
        let found = statat(&self.target.folder, &self.temporary, AtFlags::SYMLINK_NOFOLLOW)?;
        if identity(&found) == self.identity {
            return Ok(());
        }
        self.exchange()?;
        Err(Errno::BUSY)
    }

    /// Gives the new file its name, whatever has that name now.
    pub(super) fn overwrite(self) -> Result<(), Failure> {
        let target = self.target;
        let _unlocked_on_drop = target.lock();
        renameat(&target.folder, &self.temporary, &target.folder, &target.name)
            .map_err(|error| target.refused(error))?;
        target.sync();
        Ok(())
    }
}

/// Returns a new name for a temporary file.
fn temporary_name() -> Result<OsString, Failure> {
    let random = executor::random_name().map_err(|error| {
        Failure::new(format!("cannot read system randomness for a file name: {error}; try again later"))
    })?;
    Ok(OsString::from(format!(".cellmate-{random}.tmp")))
}

/// A change of a file, prepared so that only names are left to be changed.
pub(super) enum Step<'t> {
    Create(StagedFile<'t>),
    Replace(StagedFile<'t>, &'t Original),
    Delete(&'t Target<'t>, &'t Original),
}

/// A change that was made, with what undoes it.
enum AppliedStep<'t> {
    Created(&'t Target<'t>),
    /// The former file has the temporary name.
    Exchanged(StagedFile<'t>),
    /// The former file is only in memory.
    Overwritten(&'t Target<'t>, &'t Original),
    Removed(StagedFile<'t>),
}

/// Makes all changes. If one fails, the former ones are undone.
pub(super) fn commit(steps: Vec<Step<'_>>, cancel: &CancelFlag) -> Result<(), Failure> {
    let mut done = Vec::new();
    for step in steps {
        let made = cancel.check().and_then(|()| make(step));
        match made {
            Ok(made) => done.push(made),
            Err(failure) => return Err(undo(done, failure)),
        }
    }
    for made in &done {
        match made {
            AppliedStep::Created(target) | AppliedStep::Overwritten(target, _) => target.sync(),
            AppliedStep::Exchanged(staged) | AppliedStep::Removed(staged) => staged.target.sync(),
        }
    }
    // Dropping them removes the former files.
    drop(done);
    Ok(())
}

fn make(step: Step<'_>) -> Result<AppliedStep<'_>, Failure> {
    match step {
        Step::Create(staged) => {
            let target = staged.target;
            let (folder, name) = (&target.folder, &target.name);
            let renamed = renameat_with(folder, &staged.temporary, folder, name, RenameFlags::NOREPLACE);
            let created = match renamed {
                // The file system cannot do it; a hard link does not replace anything either.
                Err(Errno::INVAL | Errno::NOSYS) => linkat(folder, &staged.temporary, folder, name, AtFlags::empty()),
                other => other,
            };
            match created {
                Ok(()) => Ok(AppliedStep::Created(target)),
                Err(Errno::EXIST) => Err(target.exists_meanwhile()),
                Err(error) => Err(target.refused(error)),
            }
        }
        Step::Replace(staged, original) => replace(staged, original),
        Step::Delete(target, original) => {
            let temporary = temporary_name()?;
            let _unlocked_on_drop = target.lock();
            let renamed = renameat(&target.folder, &target.name, &target.folder, &temporary);
            renamed.map_err(|error| target.refused(error))?;
            if target.is_unchanged(&temporary, original) {
                return Ok(AppliedStep::Removed(StagedFile { target, temporary, identity: identity(&original.stat) }));
            }
            put_back(target, &temporary).map_err(|error| target.refused(error))?;
            Err(target.changed_meanwhile())
        }
    }
}

fn replace<'t>(staged: StagedFile<'t>, original: &'t Original) -> Result<AppliedStep<'t>, Failure> {
    let target = staged.target;
    let _unlocked_on_drop = target.lock();
    match staged.exchange() {
        Ok(()) if target.is_unchanged(&staged.temporary, original) => Ok(AppliedStep::Exchanged(staged)),
        Ok(()) => {
            // If it is busy, yet another program has replaced the file, and its version stays.
            match staged.exchange_back() {
                Ok(()) | Err(Errno::BUSY) => Err(target.changed_meanwhile()),
                Err(error) => Err(target.refused(error)),
            }
        }
        // The file system cannot exchange files.
        Err(Errno::INVAL | Errno::NOSYS) => {
            if !target.is_unchanged(&target.name, original) {
                return Err(target.changed_meanwhile());
            }
            let renamed = renameat(&target.folder, &staged.temporary, &target.folder, &target.name);
            renamed.map_err(|error| target.refused(error))?;
            Ok(AppliedStep::Overwritten(target, original))
        }
        Err(Errno::NOENT) => Err(target.changed_meanwhile()),
        Err(error) => Err(target.refused(error)),
    }
}

/// Gives a file its name back, unless another file has it by now.
fn put_back(target: &Target<'_>, temporary: &OsStr) -> Result<(), Errno> {
    let folder = &target.folder;
    match renameat_with(folder, temporary, folder, &target.name, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => renameat(folder, temporary, folder, &target.name),
        other => other,
    }
}

/// Undoes changes, the last one first, and returns the failure that was the reason, with what could not be undone.
fn undo(done: Vec<AppliedStep<'_>>, reason: Failure) -> Failure {
    let mut left = Vec::new();
    for made in done.into_iter().rev() {
        let (target, undone) = match made {
            AppliedStep::Created(target) => (target, unlinkat(&target.folder, &target.name, AtFlags::empty())),
            AppliedStep::Exchanged(staged) => {
                let _unlocked_on_drop = staged.target.lock();
                // The new content then has the temporary name and is removed with it.
                (staged.target, staged.exchange_back())
            }
            AppliedStep::Removed(staged) => {
                let undone = put_back(staged.target, &staged.temporary);
                let target = staged.target;
                if undone.is_err() {
                    // The only copy of the file must not be removed.
                    std::mem::forget(staged);
                }
                (target, undone)
            }
            AppliedStep::Overwritten(target, original) => {
                let staged = target.stage(&original.content, &original.permissions(), &CancelFlag::default());
                (target, staged.and_then(StagedFile::overwrite).map_err(|_| Errno::IO))
            }
        };
        if undone.is_err() {
            left.push(format!("`{}`", target.shown()));
        }
    }
    match left.as_slice() {
        [] => reason,
        left => Failure::new(format!(
            "{}. These files were changed before that and could not be put back: {}",
            reason.into_message(),
            left.join(", ")
        )),
    }
}
