//! Why a call failed, in words that help the model to call better.

use std::ffi::OsStr;
use std::path::Path;

use contract::limits::MAX_ERROR_BYTES;
use contract::spelling::edits;
use rustix::fs::{Dir, OFlags};
use rustix::io::Errno;

use crate::core::beneath::Links;
use crate::core::roots::{PathError, Place, Roots, shorten};

/// The error message of a call. The model reads it.
#[derive(Debug)]
pub(super) struct Failure(String);

impl Failure {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// Returns the message, cut to the limit of messages.
    pub(super) fn into_message(self) -> String {
        let mut end = self.0.len().min(MAX_ERROR_BYTES);
        while !self.0.is_char_boundary(end) {
            end -= 1;
        }
        let mut message = self.0;
        message.truncate(end);
        message
    }
}

impl From<PathError> for Failure {
    fn from(error: PathError) -> Self {
        Self(error.to_string())
    }
}

/// Returns why the system refused something at a place.
pub(super) fn refused(roots: &Roots, place: &Place, error: Errno) -> Failure {
    let path = shorten(&place.shown);
    Failure(match error {
        Errno::NOENT => missing(roots, place),
        Errno::XDEV => format!(
            "`{path}` leads outside its folder through a symbolic link, or through a link with an absolute target; such \
             links are not followed. {roots}"
        ),
        Errno::LOOP => {
            format!("`{path}` leads through too many symbolic links, or through one that must not be followed")
        }
        Errno::NOTDIR => format!("a part of `{path}` is a file, not a folder"),
        Errno::ISDIR => format!("`{path}` is a folder"),
        Errno::ACCESS | Errno::PERM => format!("the system denies access to `{path}`"),
        Errno::NAMETOOLONG => format!("`{path}` is longer than the system allows, or leads through too many folders"),
        Errno::ROFS => format!("`{path}` is on a file system that cannot be changed"),
        Errno::NOSPC | Errno::DQUOT => format!("there is no space left for `{path}`"),
        Errno::MFILE | Errno::NFILE => format!("`{path}` cannot be opened now: too many files are open; try again"),
        other => format!("`{path}` cannot be used: {}", std::io::Error::from(other)),
    })
}

/// Entries of a folder that are compared with a missing name, and names that are suggested.
const MAX_COMPARED: usize = 5_000;
const MAX_SUGGESTED: usize = 3;

/// Says which part of a path does not exist, and which similar names do.
fn missing(roots: &Roots, place: &Place) -> String {
    for folder in place.below.ancestors().skip(1) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let Ok(opened) = place.root.open_below(folder, flags, Links::Follow) else { continue };
        let absent = place.below.strip_prefix(folder).ok().and_then(|rest| rest.iter().next());
        let Some(absent) = absent.map(OsStr::to_string_lossy) else { break };
        let within = shorten(&roots.show(&place.root, folder));
        let similar = Dir::new(opened).map(|entries| similar(&absent, entries)).unwrap_or_default();
        let found = format!("`{}` does not exist in `{within}`", shorten(&absent));
        return match similar.as_slice() {
            [] => format!("{found}; list the folder with `ls`. {roots}"),
            names => format!("{found}; similar names there are {}. {roots}", names.join(", ")),
        };
    }
    format!("`{}` does not exist. {roots}", shorten(&place.shown))
}

/// Returns the names of a folder that are nearest to a word.
fn similar(word: &str, entries: Dir) -> Vec<String> {
    let word: String = word.chars().take(64).collect();
    let mut near = Vec::new();
    for entry in entries.take(MAX_COMPARED).flatten() {
        let Ok(name) = entry.file_name().to_str() else { continue };
        let length = name.chars().count();
        if matches!(name, "." | "..") || length > 64 {
            continue;
        }
        let distance = edits(&word, name);
        let stems = Path::new(&word).file_stem() == Path::new(name).file_stem();
        if stems || distance * 3 <= length.max(word.chars().count()) {
            near.push((distance, format!("`{}`", shorten(name))));
        }
    }
    near.sort();
    near.into_iter().take(MAX_SUGGESTED).map(|(_, name)| name).collect()
}
