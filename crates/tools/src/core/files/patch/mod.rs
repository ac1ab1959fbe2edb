//! `apply_patch`: changes several files with one patch, or none of them.
//!
//! All sections are applied in memory first; files are written only if every hunk has its place.

mod apply;
mod parse;

use std::sync::Arc;

use contract::limits::{MAX_EDITED_FILE_BYTES, MAX_PATCH_FILES, MAX_PATCHED_BYTES};
use executor::ToolResult;
use serde_json::json;

use self::parse::{Section, parse};
use super::CancelFlag;
use super::failure::{Failure, refused};
use super::input::Input;
use super::replace::{NewFolders, Original, Permissions, Step, Target, commit};
use super::text::is_binary;
use crate::core::roots::{Place, Roots, shorten};

pub(super) fn apply_patch(roots: &Roots, input: &Input<'_>, cancel: &CancelFlag) -> Result<ToolResult, Failure> {
    let sections = parse(input.required_text("input")?).map_err(Failure::new)?;
    let mut plan = Plan { roots, files: Vec::new(), bytes: 0 };
    let mut moved = Vec::new();
    for section in &sections {
        cancel.check()?;
        if let Some(move_) = plan.apply(section, cancel)? {
            moved.push(move_);
        }
    }
    plan.write(cancel)?;
    Ok(plan.into_result(moved))
}

/// A file that the patch changes.
struct PlannedFile<'r> {
    place: Place,
    /// `None` if the folder does not exist.
    target: Option<Target<'r>>,
    /// The file before the patch, if there is one.
    original: Option<Original>,
    /// The content after the patch, if there is to be a file.
    now: Option<Vec<u8>>,
    /// The file that was moved here, whose permissions this one gets.
    moved_from: Option<usize>,
}

/// What the patch does to each file.
struct Plan<'r> {
    roots: &'r Roots,
    files: Vec<PlannedFile<'r>>,
    bytes: usize,
}

impl<'r> Plan<'r> {
    /// Applies a section in memory. Returns the paths of a file that it moves.
    fn apply(&mut self, section: &Section<'_>, cancel: &CancelFlag) -> Result<Option<(String, String)>, Failure> {
        match section {
            Section::Add { path, content } => {
                let file = self.file(path, cancel)?;
                self.must_be_free(file)?;
                self.set(file, Some(content.clone().into_bytes()))?;
                Ok(None)
            }
            Section::Delete { path } => {
                let file = self.file(path, cancel)?;
                self.content(file)?;
                self.set(file, None)?;
                Ok(None)
            }
            Section::Update { path, new_path, hunks } => {
                let from = self.file(path, cancel)?;
                let content = self.content(from)?;
                let shown = self.shown(from);
                if is_binary(content) {
                    return Err(Failure::new(format!("`{shown}` is a binary file; a patch changes only text")));
                }
                let changed = apply::apply(content, hunks).map_err(|problem| Failure::new(problem.explain(&shown)))?;
                let to = match new_path {
                    Some(new_path) => self.file(new_path, cancel)?,
                    None => from,
                };
                if to == from {
                    self.set(from, Some(changed))?;
                    return Ok(None);
                }
                self.must_be_free(to)?;
                self.set(to, Some(changed))?;
                self.set(from, None)?;
                if let Some(file) = self.files.get_mut(to) {
                    file.moved_from = Some(from);
                }
                Ok(Some((self.path(from), self.path(to))))
            }
        }
    }

    /// Returns the number of a file, and reads it if the patch names it for the first time.
    fn file(&mut self, path: &str, cancel: &CancelFlag) -> Result<usize, Failure> {
        let place = self.roots.locate_for_change(path)?;
        let is_same =
            |file: &PlannedFile<'_>| Arc::ptr_eq(&file.place.root, &place.root) && file.place.below == place.below;
        if let Some(known) = self.files.iter().position(is_same) {
            return Ok(known);
        }
        if self.files.len() >= MAX_PATCH_FILES {
            return Err(Failure::new(format!("the patch names more than {MAX_PATCH_FILES} files; split it")));
        }
        let target = Target::find_if_any(self.roots, &place)?;
        let original = match &target {
            Some(target) if target.check_changeable()?.is_some() => Some(target.read(cancel)?),
            Some(_) | None => None,
        };
        let now = original.as_ref().map(|original| original.content.clone());
        self.count(2 * now.as_ref().map_or(0, Vec::len))?;
        self.files.push(PlannedFile { place, target, original, now, moved_from: None });
        Ok(self.files.len() - 1)
    }

    fn count(&mut self, bytes: usize) -> Result<(), Failure> {
        self.bytes += bytes;
        if self.bytes <= MAX_PATCHED_BYTES {
            return Ok(());
        }
        Err(Failure::new(format!("the files of the patch have more than {MAX_PATCHED_BYTES} bytes together; split it")))
    }

    fn path(&self, file: usize) -> String {
        self.files.get(file).map(|file| file.place.shown.clone()).unwrap_or_default()
    }

    fn shown(&self, file: usize) -> String {
        shorten(&self.path(file))
    }

    fn must_be_free(&self, file: usize) -> Result<(), Failure> {
        match self.files.get(file).and_then(|file| file.now.as_ref()) {
            None => Ok(()),
            Some(_) => Err(Failure::new(format!(
                "`{}` exists; change it with `*** Update File:`, or delete it first in the same patch. Nothing was changed",
                self.shown(file)
            ))),
        }
    }

    /// Returns the current content of a file that must exist.
    fn content(&self, file: usize) -> Result<&[u8], Failure> {
        let Some(planned) = self.files.get(file) else { return Err(Failure::new("a file of the patch is missing")) };
        match &planned.now {
            Some(content) => Ok(content),
            None if planned.original.is_some() => {
                let shown = self.shown(file);
                Err(Failure::new(format!(
                    "`{shown}` was deleted or moved earlier in the same patch. Nothing was changed"
                )))
            }
            None => Err(refused(self.roots, &planned.place, rustix::io::Errno::NOENT)),
        }
    }

    fn set(&mut self, file: usize, content: Option<Vec<u8>>) -> Result<(), Failure> {
        let bytes = content.as_ref().map_or(0, Vec::len);
        self.count(bytes)?;
        if bytes > MAX_EDITED_FILE_BYTES {
            let shown = self.shown(file);
            return Err(Failure::new(format!("`{shown}` would have more than {MAX_EDITED_FILE_BYTES} bytes")));
        }
        if let Some(planned) = self.files.get_mut(file) {
            planned.now = content;
        }
        Ok(())
    }

    /// Writes what has changed.
    fn write(&mut self, cancel: &CancelFlag) -> Result<(), Failure> {
        // Dropped last: only then are new folders empty again if the patch fails.
        let mut folders = NewFolders::default();
        for file in &mut self.files {
            if file.now.is_some() && file.target.is_none() {
                folders.create_for(self.roots, &file.place)?;
                file.target = Some(Target::find(self.roots, file.place.clone())?);
            }
        }
        let (mut steps, mut deletions) = (Vec::new(), Vec::new());
        for file in &self.files {
            let Some(target) = &file.target else { continue };
            match (&file.original, &file.now) {
                (Some(original), Some(now)) if original.content != *now => {
                    steps.push(Step::Replace(target.stage(now, &original.permissions(), cancel)?, original));
                }
                (None, Some(now)) => {
                    let from = file.moved_from.and_then(|from| self.files.get(from)?.original.as_ref());
                    let permissions = from.map_or(Permissions::New, Original::permissions);
                    steps.push(Step::Create(target.stage(now, &permissions, cancel)?));
                }
                (Some(original), None) => deletions.push(Step::Delete(target, original)),
                (Some(_), Some(_)) | (None, None) => {}
            }
        }
        // Deletions come last: until then, every content exists somewhere.
        steps.extend(deletions);
        commit(steps, cancel)?;
        folders.keep();
        Ok(())
    }

    fn into_result(self, moved: Vec<(String, String)>) -> ToolResult {
        let (mut added, mut modified, mut deleted) = (Vec::new(), Vec::new(), Vec::new());
        for file in self.files {
            let path = file.place.shown;
            match (file.original.map(|original| original.content), file.now) {
                // A moved file counts as modified, under its new path.
                (None, Some(_)) if file.moved_from.is_some() => modified.push(path),
                (None, Some(_)) => added.push(path),
                (Some(_), None) if moved.iter().any(|(from, _)| *from == path) => {}
                (Some(_), None) => deleted.push(path),
                (Some(before), Some(now)) if before != now => modified.push(path),
                (Some(_), Some(_)) | (None, None) => {}
            }
        }
        let mut text = "Done.".to_owned();
        for (letter, paths) in [('A', &added), ('M', &modified), ('D', &deleted)] {
            paths.iter().for_each(|path| text.push_str(&format!("\n{letter} {}", shorten(path))));
        }
        let moved: Vec<_> = moved.iter().map(|(from, to)| json!({"from": from, "to": to})).collect();
        let summary = json!({"added": added, "modified": modified, "deleted": deleted});
        ToolResult { details: Some(json!({"summary": summary, "moved": moved})), ..ToolResult::text(text) }
    }
}
