//! Walks a tree of folders, on several threads, without leaving it.
//!
//! Each folder is opened below the start of the walk without following any symbolic link, so a folder that is replaced
//! by a link while the walk is under way is not entered. Files are opened relative to their open folder.

use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use contract::limits::{MAX_VISITED_ENTRIES, MAX_WALK_DEPTH, MAX_WALK_MS};
use parking_lot::{Condvar, Mutex};
use rustix::fs::{Dir, FileType, OFlags};

use super::CancelFlag;
use super::failure::Failure;
use super::ignore_rules::{IGNORE_FILES, IgnoreRules};
use super::input::Input;
use super::open::open_folder;
use crate::core::beneath::{Links, Resolver, open_beneath, type_of};
use crate::core::roots::{Place, Roots};

/// Threads of one walk. More do not help: they wait for the same disk.
const MAX_THREADS: usize = 4;

/// Which entries a walk leaves out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Selection {
    /// Whether names that begin with a dot are visited.
    pub(super) hidden: bool,
    /// Whether ignored entries and `.git` are visited.
    pub(super) ignored: bool,
}

impl Selection {
    /// Reads `hidden` and `includeIgnored`.
    pub(super) fn read(input: &Input<'_>) -> Result<Self, Failure> {
        let (hidden, ignored) = (input.flag("hidden")?, input.flag("includeIgnored")?);
        Ok(Self { hidden: hidden.unwrap_or(true), ignored: ignored.unwrap_or(false) })
    }
}

/// A tree to walk.
pub(super) struct Tree {
    start: OwnedFd,
    resolver: Resolver,
    selection: Selection,
    rules: Option<Arc<IgnoreRules>>,
    deadline: Instant,
    max_entries: usize,
}

/// An entry of a folder, as the walk finds it.
pub(super) struct Entry<'a> {
    pub(super) folder: BorrowedFd<'a>,
    pub(super) name: &'a OsStr,
    /// The path relative to the start of the walk.
    pub(super) path: &'a Path,
    pub(super) kind: FileType,
}

/// How a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Complete,
    /// The visitor had enough.
    Enough,
    TooManyEntries,
    TooLong,
}

impl End {
    /// Returns why a result is incomplete, in words for results.
    pub(super) fn reason(self) -> Option<&'static str> {
        match self {
            Self::Complete => None,
            Self::Enough => Some("limit"),
            Self::TooManyEntries => Some("entries"),
            Self::TooLong => Some("time"),
        }
    }

    /// Returns a note for a text block.
    pub(super) fn note(self, limit: usize) -> Option<String> {
        match self {
            Self::Complete => None,
            Self::Enough => {
                Some(format!("only {limit} results are shown, and there are more; use `limit`, or search for less"))
            }
            Self::TooManyEntries => {
                Some(format!("the search ended after {MAX_VISITED_ENTRIES} entries; name a smaller folder"))
            }
            Self::TooLong => Some(format!("the search ended after {} s; name a smaller folder", MAX_WALK_MS / 1_000)),
        }
    }
}

/// How a walk ended, and how many folders it left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WalkReport {
    pub(super) end: End,
    /// Folders that could not be listed, or that are too deep.
    pub(super) unread: usize,
}

/// A folder that is to be listed.
struct Folder {
    path: PathBuf,
    depth: usize,
    rules: Option<Arc<IgnoreRules>>,
}

/// The folders that wait, and the threads that may add more.
struct Queue {
    waiting: Vec<Folder>,
    busy: usize,
    end: End,
}

struct SharedWalk<'w> {
    tree: &'w Tree,
    cancel: &'w CancelFlag,
    queue: Mutex<Queue>,
    changed: Condvar,
    visited: AtomicUsize,
    unread: AtomicUsize,
}

impl Tree {
    /// Opens the start of a walk.
    pub(super) fn open(roots: &Roots, place: &Place, selection: Selection) -> Result<Self, Failure> {
        let start = open_folder(roots, place)?;
        let rules = if selection.ignored { None } else { parent_rules(place) };
        let deadline = Instant::now() + Duration::from_millis(MAX_WALK_MS);
        let resolver = place.root.resolver();
        Ok(Self { start, resolver, selection, rules, deadline, max_entries: MAX_VISITED_ENTRIES })
    }

    /// Calls `visit` for every entry that is selected, on several threads, each with a state of its own. Stops soon
    /// after a visitor breaks, the call is dropped, or a limit is reached.
    pub(super) fn walk<S>(
        &self,
        cancel: &CancelFlag,
        state: impl Fn() -> S + Sync,
        visit: impl Fn(&mut S, &Entry<'_>) -> ControlFlow<()> + Sync,
    ) -> Result<WalkReport, Failure> {
        let start = Folder { path: PathBuf::new(), depth: 0, rules: self.rules.clone() };
        let shared = SharedWalk {
            tree: self,
            cancel,
            queue: Mutex::new(Queue { waiting: vec![start], busy: 0, end: End::Complete }),
            changed: Condvar::new(),
            visited: AtomicUsize::new(0),
            unread: AtomicUsize::new(0),
        };
        let work = || {
            let mut state = state();
            while let Some(folder) = shared.next() {
                let end = shared.list(&folder, &mut |entry| visit(&mut state, entry));
                shared.done(end);
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
        std::thread::scope(|scope| {
            for _ in 1..threads {
                // Without another thread, this one does all the work.
                std::thread::Builder::new().name("file-walk".to_owned()).spawn_scoped(scope, work).ok();
            }
            work();
        });
        cancel.check()?;
        let end = shared.queue.lock().end;
        Ok(WalkReport { end, unread: shared.unread.load(Ordering::Relaxed) })
    }
}

/// Reads the rules of the folders from the root to the start of the walk, without the start.
fn parent_rules(place: &Place) -> Option<Arc<IgnoreRules>> {
    let mut folders: Vec<&Path> = place.below.ancestors().skip(1).collect();
    folders.reverse();
    let mut rules = None;
    for folder in folders {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let Ok(opened) = place.root.open_below(folder, flags, Links::Follow) else { continue };
        let prefix = place.below.strip_prefix(folder).map(Path::to_owned).unwrap_or_default();
        rules =
            IgnoreRules::read(&opened, &[".git/info/exclude", ".gitignore", ".ignore"], PathBuf::new(), prefix, rules);
    }
    rules
}

impl SharedWalk<'_> {
    /// Waits for a folder. `None` at the end of the walk.
    fn next(&self) -> Option<Folder> {
        let mut queue = self.queue.lock();
        loop {
            if queue.end != End::Complete || self.cancel.is_requested() {
                return None;
            }
            if let Some(folder) = queue.waiting.pop() {
                queue.busy += 1;
                return Some(folder);
            }
            if queue.busy == 0 {
                return None;
            }
            self.changed.wait(&mut queue);
        }
    }

    /// Reports that a folder was listed.
    fn done(&self, end: End) {
        let mut queue = self.queue.lock();
        queue.busy -= 1;
        if end != End::Complete && queue.end == End::Complete {
            queue.end = end;
        }
        self.changed.notify_all();
    }

    fn list(&self, folder: &Folder, visit: &mut dyn FnMut(&Entry<'_>) -> ControlFlow<()>) -> End {
        let unread = || self.unread.fetch_add(1, Ordering::Relaxed);
        if folder.depth > MAX_WALK_DEPTH {
            unread();
            return End::Complete;
        }
        let (tree, flags) = (self.tree, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC);
        let opened = open_beneath(tree.resolver, as_fd(&tree.start), &folder.path, flags, Links::Refuse);
        let Ok(opened) = opened else {
            unread();
            return End::Complete;
        };
        let Ok(entries) = Dir::read_from(&opened) else {
            unread();
            return End::Complete;
        };
        let mut listed: Vec<(OsString, FileType)> = Vec::new();
        for entry in entries {
            let Ok(entry) = entry else {
                unread();
                break;
            };
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            if self.visited.fetch_add(1, Ordering::Relaxed) >= self.tree.max_entries {
                return End::TooManyEntries;
            }
            listed.push((name.to_owned(), entry.file_type()));
        }
        let rules = self.rules_in(folder, &opened, &listed);
        let mut below = Vec::new();
        let end = self.visit_all(folder, &opened, &listed, rules.as_ref(), &mut below, visit);
        if !below.is_empty() {
            self.queue.lock().waiting.append(&mut below);
            self.changed.notify_all();
        }
        end
    }

    fn visit_all(
        &self,
        folder: &Folder,
        opened: &OwnedFd,
        listed: &[(OsString, FileType)],
        rules: Option<&Arc<IgnoreRules>>,
        below: &mut Vec<Folder>,
        visit: &mut dyn FnMut(&Entry<'_>) -> ControlFlow<()>,
    ) -> End {
        for (name, kind) in listed {
            if self.cancel.is_requested() {
                return End::Enough;
            }
            if Instant::now() >= self.tree.deadline {
                return End::TooLong;
            }
            let is_hidden = name.as_bytes().starts_with(b".");
            if is_hidden && !self.tree.selection.hidden {
                continue;
            }
            // Some file systems do not tell the type with the name.
            let kind = match kind {
                FileType::Unknown => type_of(as_fd(opened), name).unwrap_or(FileType::Unknown),
                known => *known,
            };
            let path = folder.path.join(name);
            if !self.tree.selection.ignored && (name == ".git" || rules.is_some_and(|rules| rules.ignores(&path, kind)))
            {
                continue;
            }
            let entry = Entry { folder: as_fd(opened), name, path: &path, kind };
            if visit(&entry).is_break() {
                return End::Enough;
            }
            if kind == FileType::Directory {
                below.push(Folder { path, depth: folder.depth + 1, rules: rules.cloned() });
            }
        }
        End::Complete
    }

    /// Returns the rules that apply in a folder.
    fn rules_in(&self, folder: &Folder, opened: &OwnedFd, listed: &[(OsString, FileType)]) -> Option<Arc<IgnoreRules>> {
        if self.tree.selection.ignored {
            return None;
        }
        let has = |wanted: &str| listed.iter().any(|(name, _)| name == wanted);
        let mut files: Vec<&str> = IGNORE_FILES.into_iter().filter(|name| has(name)).collect();
        if has(".git") {
            files.insert(0, ".git/info/exclude");
        }
        if files.is_empty() {
            return folder.rules.clone();
        }
        IgnoreRules::read(opened, &files, folder.path.clone(), PathBuf::new(), folder.rules.clone())
    }
}

fn as_fd(fd: &OwnedFd) -> BorrowedFd<'_> {
    std::os::fd::AsFd::as_fd(fd)
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Instant;

    use contract::config::RootAccess;

    use super::{End, Selection, Tree};
    use crate::core::files::CancelFlag;
    use crate::core::roots::{Root, Roots};

    #[test]
    fn a_walk_ends_at_its_limits_of_entries_and_time() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..40 {
            std::fs::create_dir_all(folder.path().join(format!("d{}", number % 8))).unwrap();
            std::fs::write(folder.path().join(format!("d{}/f{number}", number % 8)), "").unwrap();
        }
        let mut roots = Roots::default();
        roots.push(Root::open(folder.path(), RootAccess::Read).unwrap()).unwrap();
        let selection = Selection { hidden: true, ignored: true };
        let open = || Tree::open(&roots, &roots.locate(".").unwrap(), selection).unwrap();
        let walk = |tree: &Tree| {
            let visited = AtomicUsize::new(0);
            let visit = |(): &mut (), _: &super::Entry<'_>| {
                visited.fetch_add(1, Ordering::Relaxed);
                ControlFlow::Continue(())
            };
            let walked = tree.walk(&CancelFlag::default(), || (), visit).unwrap();
            (walked.end, visited.into_inner())
        };
        assert_eq!(walk(&open()), (End::Complete, 48));
        let (end, visited) = walk(&Tree { max_entries: 20, ..open() });
        assert!(end == End::TooManyEntries && visited <= 20, "{end:?} {visited}");
        let (end, visited) = walk(&Tree { deadline: Instant::now(), ..open() });
        assert!(end == End::TooLong && visited == 0, "{end:?} {visited}");
        let cancelled = CancelFlag::default();
        cancelled.0.store(true, Ordering::Relaxed);
        assert!(open().walk(&cancelled, || (), |(), _| ControlFlow::Continue(())).is_err());
    }
}
