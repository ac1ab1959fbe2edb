//! Sets `CELLMATE_VERSION` to the package's version and the commit that is built.
//!
//! The commit is `$CELLMATE_COMMIT` if a packager sets it, else that of the git repository around the workspace; without
//! either, it is left out.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=CELLMATE_COMMIT");
    let package = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let given = std::env::var("CELLMATE_COMMIT").ok().filter(|commit| !commit.trim().is_empty());
    let version = match given.or_else(commit) {
        Some(commit) => format!("{package} ({})", commit.trim()),
        None => package,
    };
    println!("cargo::rustc-env=CELLMATE_VERSION={version}");
}

/// Returns the commit of the workspace's own repository, and has this script run again when another is checked out.
fn commit() -> Option<String> {
    let package = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR")?);
    let workspace = package.ancestors().nth(2)?.canonicalize().ok()?;
    let top = PathBuf::from(git(&package, &["rev-parse", "--show-toplevel"])?);
    // The sources may have been unpacked inside another project's repository.
    if top.canonicalize().ok()? != workspace {
        return None;
    }
    for name in ["HEAD", "logs/HEAD"] {
        let path = package.join(git(&package, &["rev-parse", "--git-path", name])?);
        // Cargo would run this script each time for a file that does not exist.
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    git(&package, &["rev-parse", "--short=10", "HEAD"])
}

fn git(folder: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).current_dir(folder).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned()).filter(|text| !text.is_empty())
}
