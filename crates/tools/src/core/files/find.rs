//! `find`: paths by glob.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

use contract::limits::{FIND_LIMIT, MAX_GLOB_BYTES, MAX_WALK_RESULT_BYTES};
use executor::ToolResult;
use globset::{GlobBuilder, GlobMatcher};
use parking_lot::Mutex;
use rustix::fs::FileType;
use serde_json::json;

use super::CancelFlag;
use super::failure::Failure;
use super::input::Input;
use super::text::{name_on_a_line, result};
use super::walk::{Entry, Selection, Tree};
use crate::core::roots::{Roots, shorten};

/// The kinds of entries that are returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kinds {
    Files,
    Folders,
    Any,
}

impl Kinds {
    fn read(input: &Input<'_>) -> Result<Self, Failure> {
        match input.text("type")? {
            None | Some("file") => Ok(Self::Files),
            Some("directory") => Ok(Self::Folders),
            Some("any") => Ok(Self::Any),
            Some(_) => Err(Failure::new("`type` must be `file`, `directory` or `any`")),
        }
    }

    fn include(self, kind: FileType) -> bool {
        match self {
            Self::Any => true,
            Self::Folders => kind == FileType::Directory,
            // A link to a file is as good as the file.
            Self::Files => matches!(kind, FileType::RegularFile | FileType::Symlink),
        }
    }
}

/// A glob. Without `/` it is for names, otherwise for paths relative to the start of the search.
struct Pattern {
    glob: GlobMatcher,
    is_for_names: bool,
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, Failure> {
        if text.is_empty() || text.len() > MAX_GLOB_BYTES {
            return Err(Failure::new(format!("`pattern` must have 1 to {MAX_GLOB_BYTES} bytes")));
        }
        let plain = text.strip_prefix("./").unwrap_or(text).trim_start_matches('/');
        let glob = GlobBuilder::new(plain).literal_separator(true).build();
        let glob = glob.map_err(|error| {
            Failure::new(format!(
                "`{}` is not a glob, such as `*.rs` or `src/**/*.ts`: {}",
                shorten(text),
                error.kind()
            ))
        })?;
        Ok(Self { glob: glob.compile_matcher(), is_for_names: !plain.contains('/') })
    }

    fn matches(&self, entry: &Entry<'_>) -> bool {
        if self.is_for_names { self.glob.is_match(entry.name) } else { self.glob.is_match(entry.path) }
    }
}

pub(super) fn find(roots: &Roots, input: &Input<'_>, cancel: &CancelFlag) -> Result<ToolResult, Failure> {
    let pattern = Pattern::parse(input.required_text("pattern")?)?;
    let place = roots.locate(input.text("path")?.unwrap_or("."))?;
    let (limit, kinds) = (input.bounded(&FIND_LIMIT)?, Kinds::read(input)?);
    let tree = Tree::open(roots, &place, Selection::read(input)?)?;
    let (found, bytes) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
    let walked = tree.walk(
        cancel,
        || (),
        |(), entry| {
            if !kinds.include(entry.kind) || !pattern.matches(entry) {
                return ControlFlow::Continue(());
            }
            let path = roots.show(&place.root, &place.below.join(entry.path));
            let total = bytes.fetch_add(path.len(), Ordering::Relaxed) + path.len();
            let mut found = found.lock();
            if found.len() >= limit || total > MAX_WALK_RESULT_BYTES {
                return ControlFlow::Break(());
            }
            found.push((path, entry.kind == FileType::Directory));
            ControlFlow::Continue(())
        },
    )?;
    let mut found = found.into_inner();
    found.sort_unstable();
    let mut body = String::new();
    for (path, is_folder) in &found {
        body.push_str(&name_on_a_line(path));
        body.push_str(if *is_folder { "/\n" } else { "\n" });
    }
    if body.is_empty() {
        body.push_str("no paths match");
    }
    let mut notes: Vec<String> = walked.end.note(found.len()).into_iter().collect();
    if walked.unread > 0 {
        notes.push(format!("{} folders could not be read", walked.unread));
    }
    let paths: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
    let details = json!({
        "paths": paths,
        "truncated": walked.end.reason().is_some(),
        "reason": walked.end.reason(),
        "unreadFolders": walked.unread,
    });
    Ok(result(details, body.trim_end_matches('\n'), notes))
}
