//! `ls`: the entries of one folder.

use std::os::fd::AsFd;

use contract::limits::{LS_LIMIT, MAX_VISITED_ENTRIES, MAX_WALK_RESULT_BYTES};
use executor::ToolResult;
use rustix::fs::{AtFlags, Dir, FileType, statat};
use serde_json::{Value, json};

use super::CancelFlag;
use super::failure::{Failure, refused};
use super::input::Input;
use super::open::open_folder;
use super::text::{name_on_a_line, result};
use crate::core::roots::Roots;

pub(super) fn list(roots: &Roots, input: &Input<'_>, cancel: &CancelFlag) -> Result<ToolResult, Failure> {
    let place = roots.locate(input.text("path")?.unwrap_or("."))?;
    let limit = input.bounded(&LS_LIMIT)?;
    let folder = open_folder(roots, &place)?;
    let failed = |error| refused(roots, &place, error);
    let mut names = Vec::new();
    for entry in Dir::read_from(&folder).map_err(failed)? {
        cancel.check()?;
        let entry = entry.map_err(failed)?;
        if names.len() >= MAX_VISITED_ENTRIES {
            return Err(Failure::new(format!(
                "the folder has more than {MAX_VISITED_ENTRIES} entries; use `find` with a pattern"
            )));
        }
        let name = entry.file_name().to_owned();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push(name);
        }
    }
    names.sort_by_cached_key(|name| (name.to_string_lossy().to_lowercase(), name.clone()));
    let total = names.len();
    let (mut entries, mut body, mut bytes) = (Vec::new(), String::new(), 0);
    for name in names.iter().take(limit) {
        cancel.check()?;
        let shown = name.to_string_lossy();
        bytes += shown.len();
        if bytes > MAX_WALK_RESULT_BYTES {
            break;
        }
        // An entry that was removed since is left out.
        let Ok(found) = statat(folder.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let kind = FileType::from_raw_mode(found.st_mode);
        let mut entry = json!({"name": shown, "type": type_name(kind)});
        if kind == FileType::RegularFile
            && let Some(fields) = entry.as_object_mut()
        {
            fields.insert("bytes".to_owned(), Value::from(found.st_size));
        }
        entries.push(entry);
        body.push_str(&name_on_a_line(&shown));
        body.push_str(suffix(kind));
        body.push('\n');
    }
    let is_truncated = entries.len() < total;
    let mut notes = Vec::new();
    if is_truncated {
        notes.push(format!(
            "{} of {total} entries; use `limit` for more (at most {})",
            entries.len(),
            LS_LIMIT.range.end()
        ));
    }
    if body.is_empty() {
        "(the folder is empty)".clone_into(&mut body);
    }
    let details = json!({"path": place.shown, "entries": entries, "total": total, "truncated": is_truncated});
    Ok(result(details, body.trim_end_matches('\n'), notes))
}

/// Returns the word for a kind of entry in results.
pub(super) fn type_name(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        _ => "other",
    }
}

fn suffix(kind: FileType) -> &'static str {
    match kind {
        FileType::Directory => "/",
        FileType::Symlink => "@",
        _ => "",
    }
}
