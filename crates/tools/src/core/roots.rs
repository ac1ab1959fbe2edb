//! The folders that the file tools and the shell may use, each held open as a directory.
//!
//! A root is the directory that was there when it was opened. If another directory takes its path later, the tools still
//! work in the first one.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use contract::config::RootAccess;
use contract::limits::{MAX_FILE_PATH_BYTES, MAX_FILE_PATH_DEPTH, MAX_FILE_ROOTS};
use rustix::fs::{Mode, OFlags, open};

use super::beneath::Resolver;

/// The folders that the user declared, in the order of the configuration. Relative paths begin in the first one.
#[derive(Clone, Debug, Default)]
pub struct Roots {
    list: Vec<Arc<Root>>,
}

/// A declared folder.
#[derive(Debug)]
pub struct Root {
    /// The path without symbolic links.
    path: PathBuf,
    /// The path as it is configured, if it differs: models may write it too.
    alias: Option<PathBuf>,
    access: RootAccess,
    folder: OwnedFd,
    resolver: Resolver,
}

/// Why a folder cannot be a root.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    #[error("it does not exist; create it, or remove it from the list")]
    Missing,
    #[error("it is not a folder")]
    NotAFolder,
    #[error("it is the root of the file system; name the folders that the tools may use")]
    FileSystem,
    #[error("it contains {0}, which the tools must not change; name folders beside it")]
    Protected(&'static str),
    #[error("it is inside {0}, which the tools must not change")]
    InsideProtected(&'static str),
    #[error("more than {MAX_FILE_ROOTS} folders are listed")]
    TooMany,
    #[error(
        "`{}` is around it and may be changed, so it would not be protected; make it writable, or name other folders",
        .0.display()
    )]
    InsideWritable(PathBuf),
    #[error("`{}` is inside it and read only, so it would not be protected; remove one of them", .0.display())]
    AroundReadOnly(PathBuf),
    #[error("it cannot be opened: {0}")]
    Open(io::Error),
}

/// A folder that must not be changed through a root, with words for it.
#[derive(Clone, Debug)]
pub struct ProtectedFolder {
    pub path: PathBuf,
    pub what: &'static str,
}

impl Root {
    /// Opens a folder. The path must be absolute.
    pub fn open(path: &Path, access: RootAccess) -> Result<Self, RootError> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => RootError::Missing,
            io::ErrorKind::NotADirectory => RootError::NotAFolder,
            _ => RootError::Open(error),
        };
        let real = std::fs::canonicalize(path).map_err(failed)?;
        if real.parent().is_none() {
            return Err(RootError::FileSystem);
        }
        // `O_PATH` needs no permission to list the folder, which a root with one usable subfolder may lack.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = open(&real, flags, Mode::empty()).map_err(|error| failed(error.into()))?;
        let alias = lexical(path).filter(|alias| *alias != real);
        Ok(Self { path: real, alias, access, folder, resolver: Resolver::best() })
    }

    /// Checks that a folder of Cellmate's own is neither inside the root nor around it.
    pub fn keep_away_from(self, protected: &[ProtectedFolder]) -> Result<Self, RootError> {
        for folder in protected {
            let real = std::fs::canonicalize(&folder.path).unwrap_or_else(|_| folder.path.clone());
            if real.starts_with(&self.path) {
                return Err(RootError::Protected(folder.what));
            }
            if self.path.starts_with(&real) {
                return Err(RootError::InsideProtected(folder.what));
            }
        }
        Ok(self)
    }

    /// Opens files with this resolver instead of the best one of the system.
    #[must_use]
    pub fn with_resolver(self, resolver: Resolver) -> Self {
        Self { resolver, ..self }
    }

    /// Returns the path, absolute and without symbolic links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn access(&self) -> RootAccess {
        self.access
    }

    /// Returns the open directory (`O_PATH`).
    pub fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    pub(crate) fn resolver(&self) -> Resolver {
        self.resolver
    }

    /// Returns the part of an absolute path that is below this root.
    fn below<'p>(&self, path: &'p Path) -> Option<&'p Path> {
        let alias = self.alias.as_deref().and_then(|alias| path.strip_prefix(alias).ok());
        path.strip_prefix(&self.path).ok().or(alias)
    }
}

/// A path that a caller named, as a root and the names below it. No symbolic link has been followed yet.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) root: Arc<Root>,
    /// Only plain names: neither `.` nor `..`, and not absolute. Empty for the root itself.
    pub(crate) below: PathBuf,
    /// The path as results show it: relative to the first root, or absolute in other roots.
    pub(crate) shown: String,
}

/// Why a path does not name a place in a root.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PathError {
    #[error("the path is empty; name a file or folder")]
    Empty,
    #[error("the path has {0} bytes, and at most {MAX_FILE_PATH_BYTES} are allowed")]
    TooLong(usize),
    #[error("the path names more than {MAX_FILE_PATH_DEPTH} folders inside each other")]
    TooDeep,
    #[error("the path contains a NUL character, which no file name has")]
    Nul,
    #[error("`~` is not expanded; write a path relative to the first root, or an absolute path. {roots}")]
    Home { roots: String },
    #[error("`{path}` is outside the folders that the file tools may use. {roots}")]
    Outside { path: String, roots: String },
    #[error("`{path}` may be read but not changed. {roots}")]
    ReadOnly { path: String, roots: String },
}

impl Roots {
    /// Adds a root. Relative paths begin in the one that was added first.
    ///
    /// A read-only root inside a writable one is refused: a symbolic link beside it could lead into it.
    pub fn push(&mut self, root: Root) -> Result<(), RootError> {
        if self.list.len() >= MAX_FILE_ROOTS {
            return Err(RootError::TooMany);
        }
        for other in self.iter() {
            match (root.access, other.access) {
                (RootAccess::Read, RootAccess::Write) if root.path.starts_with(&other.path) => {
                    return Err(RootError::InsideWritable(other.path.clone()));
                }
                (RootAccess::Write, RootAccess::Read) if other.path.starts_with(&root.path) => {
                    return Err(RootError::AroundReadOnly(other.path.clone()));
                }
                (RootAccess::Read | RootAccess::Write, _) => {}
            }
        }
        self.list.push(Arc::new(root));
        Ok(())
    }

    pub fn iter(&self) -> impl Iterator<Item = &Root> {
        self.list.iter().map(Arc::as_ref)
    }

    /// Returns the root in which relative paths begin.
    pub fn first(&self) -> Option<&Root> {
        self.list.first().map(Arc::as_ref)
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether any root may be changed.
    pub fn is_writable(&self) -> bool {
        self.iter().any(|root| root.access == RootAccess::Write)
    }

    /// Finds the root of a path, for reading.
    pub(crate) fn locate(&self, path: &str) -> Result<Place, PathError> {
        let absolute = self.absolute(path)?;
        let roots = self.list.iter().filter_map(|root| Some((root, root.below(&absolute)?)));
        // Roots may be inside each other; the innermost one decides.
        let nearest = roots.min_by_key(|(_, below)| below.components().count());
        let (root, below) = nearest.ok_or_else(|| PathError::Outside { path: shorten(path), roots: self.list() })?;
        Ok(Place { root: Arc::clone(root), below: below.to_owned(), shown: self.show(root, below) })
    }

    /// Finds the root of a path, for changing it.
    pub(crate) fn locate_for_change(&self, path: &str) -> Result<Place, PathError> {
        let place = self.locate(path)?;
        match place.root.access {
            RootAccess::Write => Ok(place),
            RootAccess::Read => Err(PathError::ReadOnly { path: shorten(path), roots: self.list() }),
        }
    }

    /// Returns the path as results show it.
    pub(crate) fn show(&self, root: &Root, below: &Path) -> String {
        let is_first = self.first().is_some_and(|first| std::ptr::eq(first, root));
        match (is_first, below.as_os_str().is_empty()) {
            (true, true) => ".".to_owned(),
            (true, false) => below.to_string_lossy().into_owned(),
            (false, true) => root.path.to_string_lossy().into_owned(),
            (false, false) => root.path.join(below).to_string_lossy().into_owned(),
        }
    }

    /// Returns the absolute path without `.` and `..`. As in the agents that models know, `..` removes the name before
    /// it, whether that is a symbolic link or not.
    fn absolute(&self, path: &str) -> Result<PathBuf, PathError> {
        if path.is_empty() {
            return Err(PathError::Empty);
        }
        if path.len() > MAX_FILE_PATH_BYTES {
            return Err(PathError::TooLong(path.len()));
        }
        if path.contains('\0') {
            return Err(PathError::Nul);
        }
        if path.split('/').count() > MAX_FILE_PATH_DEPTH {
            return Err(PathError::TooDeep);
        }
        if path == "~" || path.starts_with("~/") {
            return Err(PathError::Home { roots: self.list() });
        }
        let start = self.first().map_or(Path::new("/"), Root::path);
        lexical(&start.join(path)).ok_or_else(|| PathError::Outside { path: shorten(path), roots: self.list() })
    }

    /// Returns a sentence that lists the roots, for error messages.
    fn list(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "The folders are ")?;
        for (position, root) in self.iter().enumerate() {
            let separator = if position == 0 { "" } else { ", " };
            let only = if root.access == RootAccess::Read { " (read only)" } else { "" };
            write!(f, "{separator}`{}`{only}", root.path.display())?;
        }
        write!(f, "; relative paths begin in the first")
    }
}

/// Returns an absolute path without `.` and `..`; `None` if it is relative.
fn lexical(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::RootDir => plain.push("/"),
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => {
                // At the root of the file system, `..` is the same folder.
                plain.pop();
            }
            Component::CurDir | Component::Prefix(_) => {}
        }
    }
    plain.is_absolute().then_some(plain)
}

const MAX_SHOWN_CHARS: usize = 200;

/// Returns a path for an error message: shortened, with control and invisible characters escaped.
pub(crate) fn shorten(path: &str) -> String {
    contract::text::line(path, MAX_SHOWN_CHARS)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use contract::config::RootAccess;

    use super::{PathError, ProtectedFolder, Root, RootError, Roots};

    fn two() -> (tempfile::TempDir, Roots) {
        let folder = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| folder.path().join(name));
        for path in [&one, &two] {
            std::fs::create_dir(path).unwrap();
        }
        let mut roots = Roots::default();
        roots.push(Root::open(&one, RootAccess::Write).unwrap()).unwrap();
        roots.push(Root::open(&two, RootAccess::Read).unwrap()).unwrap();
        (folder, roots)
    }

    #[test]
    fn a_path_is_relative_to_the_first_root_or_absolute_inside_any() {
        let (folder, roots) = two();
        let two = std::fs::canonicalize(folder.path()).unwrap().join("two");
        let absolute = two.join("x").to_string_lossy().into_owned();
        let cases = [
            ("a/b", "a/b", "a/b"),
            ("./a//b/", "a/b", "a/b"),
            ("a/../b", "b", "b"),
            (".", "", "."),
            ("../two/x", "x", absolute.as_str()),
            ("../one/x", "x", "x"),
            (absolute.as_str(), "x", absolute.as_str()),
        ];
        for (path, below, shown) in cases {
            let place = roots.locate(path).unwrap();
            assert_eq!((place.below.as_path(), place.shown.as_str()), (Path::new(below), shown), "{path}");
        }
    }

    #[test]
    fn a_path_outside_all_roots_is_refused_with_their_list() {
        let (_folder, roots) = two();
        for path in ["..", "../three", "/etc/passwd", "a/../../one-more", "/", "/proc/self/root/etc/passwd"] {
            let refused = roots.locate(path).unwrap_err();
            assert!(
                matches!(&refused, PathError::Outside { roots, .. } if roots.contains("one`")),
                "{path}: {refused}"
            );
        }
        assert_eq!(roots.locate("").unwrap_err(), PathError::Empty);
        assert_eq!(roots.locate("a\0b").unwrap_err(), PathError::Nul);
        assert_eq!(roots.locate(&"x".repeat(5000)).unwrap_err(), PathError::TooLong(5000));
        assert!(matches!(roots.locate("~/x").unwrap_err(), PathError::Home { .. }));
        assert!(matches!(roots.locate_for_change("../two/x").unwrap_err(), PathError::ReadOnly { .. }));
        assert!(roots.locate_for_change("x").is_ok());
    }

    #[test]
    fn the_innermost_root_decides_about_access() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("src");
        std::fs::create_dir(&inner).unwrap();
        let open = |path: &Path, access| Root::open(path, access).unwrap();
        let mut roots = Roots::default();
        roots.push(open(folder.path(), RootAccess::Read)).unwrap();
        roots.push(open(&inner, RootAccess::Write)).unwrap();
        assert!(roots.locate_for_change("src/a").is_ok());
        assert!(roots.locate_for_change("a").is_err());
        // The other way round, the inner root would only seem to be protected.
        let mut roots = Roots::default();
        roots.push(open(folder.path(), RootAccess::Write)).unwrap();
        let inside = roots.push(open(&inner, RootAccess::Read));
        assert!(matches!(inside, Err(RootError::InsideWritable(_))));
        let mut roots = Roots::default();
        roots.push(open(&inner, RootAccess::Read)).unwrap();
        let around = roots.push(open(folder.path(), RootAccess::Write));
        assert!(matches!(around, Err(RootError::AroundReadOnly(_))));
    }

    #[test]
    fn the_number_of_roots_is_limited() {
        let folder = tempfile::tempdir().unwrap();
        let mut roots = Roots::default();
        for _ in 0..contract::limits::MAX_FILE_ROOTS {
            roots.push(Root::open(folder.path(), RootAccess::Write).unwrap()).unwrap();
        }
        let one_more = roots.push(Root::open(folder.path(), RootAccess::Write).unwrap());
        assert!(matches!(one_more, Err(RootError::TooMany)));
    }

    #[test]
    fn a_root_must_be_a_folder_and_not_touch_protected_ones() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        std::fs::create_dir_all(folder.path().join("state/keys")).unwrap();
        let open = |path: &Path| Root::open(path, RootAccess::Write);
        assert!(matches!(open(Path::new("/")), Err(RootError::FileSystem)));
        assert!(matches!(open(&folder.path().join("none")), Err(RootError::Missing)));
        assert!(matches!(open(&folder.path().join("file")), Err(RootError::NotAFolder)));
        let protected = [ProtectedFolder { path: folder.path().join("state"), what: "the state" }];
        let around = open(folder.path()).unwrap().keep_away_from(&protected);
        assert!(matches!(around, Err(RootError::Protected("the state"))));
        let inside = open(&folder.path().join("state/keys")).unwrap().keep_away_from(&protected);
        assert!(matches!(inside, Err(RootError::InsideProtected("the state"))));
    }
}
