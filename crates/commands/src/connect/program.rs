//! The path of this program, as a client's configuration names it.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Returns the path under which this program was started. A link stays a link: an upgrade may replace its target by a
/// file with another name.
pub(super) fn path() -> Option<PathBuf> {
    let running = env::current_exe().ok()?;
    let found = env::args_os().next().and_then(|typed| as_found(&typed, &running, env::var_os("PATH").as_deref()));
    Some(found.unwrap_or(running))
}

/// Returns the absolute path that the shell found for the typed name. `None` if that is not the running program: the
/// process that starts a program chooses the name freely.
fn as_found(typed: &OsStr, running: &Path, search: Option<&OsStr>) -> Option<PathBuf> {
    let real = running.canonicalize().ok()?;
    let is_running = |path: &PathBuf| path.canonicalize().is_ok_and(|found| found == real);
    if Path::new(typed).components().nth(1).is_some() {
        return std::path::absolute(typed).ok().filter(is_running);
    }
    let folders = env::split_paths(search?).filter(|folder| folder.is_absolute());
    folders.map(|folder| folder.join(typed)).find(is_running)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::as_found;

    #[test]
    fn a_link_stays_a_link_and_another_program_is_not_taken_for_this_one() {
        let folder = tempfile::tempdir().unwrap();
        let [versions, links, others] = ["versions", "links", "others"].map(|name| folder.path().join(name));
        for made in [&versions, &links, &others] {
            fs::create_dir(made).unwrap();
        }
        let running = versions.join("cellmate-1");
        fs::write(&running, "").unwrap();
        fs::write(others.join("cellmate"), "").unwrap();
        let link = links.join("cellmate");
        symlink(&running, &link).unwrap();
        let search = std::env::join_paths([std::path::Path::new("relative"), &others, &links]).unwrap();
        let found = |typed: &OsStr| as_found(typed, &running, Some(&search));
        assert_eq!(found(OsStr::new("cellmate")), Some(link.clone()));
        assert_eq!(found(link.as_os_str()), Some(link.clone()));
        assert_eq!(found(running.as_os_str()), Some(running.clone()));
        for other in [others.join("cellmate").as_os_str(), OsStr::new("sh"), OsStr::new(""), OsStr::new("./cellmate")] {
            assert_eq!(found(other), None, "{other:?}");
        }
        assert_eq!(as_found(OsStr::new("cellmate"), &running, None), None);
        assert_eq!(as_found(link.as_os_str(), &folder.path().join("removed"), Some(&search)), None);
    }
}
