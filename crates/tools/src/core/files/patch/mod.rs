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
    for section in &sections {
        cancel.check()?;
        plan.apply(section, cancel)?;
    }
    plan.write(cancel)?;
    Ok(plan.into_result())
}

/// A file that the patch names.
struct PlannedFile<'r> {
    place: Place,
    /// `None` if the folder does not exist.
    target: Option<Target<'r>>,
    /// The file before the patch, if there is one.
    original: Option<Original>,
    /// The content after the sections that have been applied; `None` if there is no file after them.
    content_after: Option<Vec<u8>>,
    /// The index in the plan of the file that was moved here, perhaps in several steps. This one gets its permissions.
    moved_from: Option<usize>,
}

/// The changes that the patch makes to each file. Methods take a file as its index in `files`.
struct Plan<'r> {
    roots: &'r Roots,
    files: Vec<PlannedFile<'r>>,
    /// How many bytes of contents the plan has read or written in memory, copies included.
    bytes: usize,
}

impl<'r> Plan<'r> {
    /// Applies a section in memory.
    fn apply(&mut self, section: &Section<'_>, cancel: &CancelFlag) -> Result<(), Failure> {
        match section {
            Section::Add { path, content } => {
                let file = self.file_index(path, cancel)?;
                self.check_absent(file)?;
                self.set_content(file, Some(content.clone().into_bytes()))
            }
            Section::Delete { path } => {
                let file = self.file_index(path, cancel)?;
                self.content(file)?;
                self.set_content(file, None)
            }
            Section::Update { path, new_path, hunks } => {
                let from = self.file_index(path, cancel)?;
                let content = self.content(from)?;
                let shown = self.shown(from);
                if is_binary(content) {
                    return Err(Failure::new(format!("`{shown}` is a binary file; a patch changes only text")));
                }
                let changed = apply::apply(content, hunks).map_err(|problem| Failure::new(problem.explain(&shown)))?;
                let to = match new_path {
                    Some(new_path) => self.file_index(new_path, cancel)?,
                    None => from,
                };
                if to == from {
                    return self.set_content(from, Some(changed));
                }
                self.check_absent(to)?;
                let origin = self.files.get(from).and_then(|file| file.moved_from).unwrap_or(from);
                self.set_content(to, Some(changed))?;
                self.set_content(from, None)?;
                if let Some(file) = self.files.get_mut(to) {
                    file.moved_from = (origin != to).then_some(origin);
                }
                Ok(())
            }
        }
    }

    /// Returns the index of a file. If the patch names the file for the first time, reads it and adds it to the plan.
    fn file_index(&mut self, path: &str, cancel: &CancelFlag) -> Result<usize, Failure> {
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
        let content_after = original.as_ref().map(|original| original.content.clone());
        self.add_bytes(2 * content_after.as_ref().map_or(0, Vec::len))?;
        self.files.push(PlannedFile { place, target, original, content_after, moved_from: None });
        Ok(self.files.len() - 1)
    }

    /// Adds to the bytes of the plan. Fails if they exceed `MAX_PATCHED_BYTES`.
    fn add_bytes(&mut self, bytes: usize) -> Result<(), Failure> {
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

    /// Fails if the file exists after the sections that have been applied.
    fn check_absent(&self, file: usize) -> Result<(), Failure> {
        match self.files.get(file).and_then(|file| file.content_after.as_ref()) {
            None => Ok(()),
            Some(_) => Err(Failure::new(format!(
                "`{}` exists; change it with `*** Update File:`, or delete it first in the same patch. Nothing was changed",
                self.shown(file)
            ))),
        }
    }

    /// Returns the content of a file after the sections that have been applied. Fails if there is no file after them.
    fn content(&self, file: usize) -> Result<&[u8], Failure> {
        let Some(planned) = self.files.get(file) else { return Err(Failure::new("a file of the patch is missing")) };
        match &planned.content_after {
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

    /// Sets the content of a file in memory; `None` deletes it.
    fn set_content(&mut self, file: usize, content: Option<Vec<u8>>) -> Result<(), Failure> {
        let bytes = content.as_ref().map_or(0, Vec::len);
        self.add_bytes(bytes)?;
        if bytes > MAX_EDITED_FILE_BYTES {
            let shown = self.shown(file);
            return Err(Failure::new(format!("`{shown}` would have more than {MAX_EDITED_FILE_BYTES} bytes")));
        }
        if let Some(planned) = self.files.get_mut(file) {
            if content.is_none() {
                planned.moved_from = None;
            }
            planned.content_after = content;
        }
        Ok(())
    }

    /// Writes the files that have changed to the disk, or none of them.
    fn write(&mut self, cancel: &CancelFlag) -> Result<(), Failure> {
        // Declared first, so that it is dropped last: if the patch fails, it removes the new folders, which are empty
        // only after the staged files in them were dropped.
        let mut folders = NewFolders::default();
        for file in &mut self.files {
            if file.content_after.is_some() && file.target.is_none() {
                folders.create_for(self.roots, &file.place)?;
                file.target = Some(Target::find(self.roots, file.place.clone())?);
            }
        }
        let (mut steps, mut deletions) = (Vec::new(), Vec::new());
        for file in &self.files {
            let Some(target) = &file.target else { continue };
            let moved = file.moved_from.and_then(|from| self.files.get(from)?.original.as_ref());
            match (&file.original, &file.content_after) {
                (Some(original), Some(after)) if original.content != *after || moved.is_some() => {
                    let permissions = moved.unwrap_or(original).permissions();
                    steps.push(Step::Replace(target.stage(after, &permissions, cancel)?, original));
                }
                (None, Some(after)) => {
                    let permissions = moved.map_or(Permissions::New, Original::permissions);
                    steps.push(Step::Create(target.stage(after, &permissions, cancel)?));
                }
                (Some(original), None) => deletions.push(Step::Delete(target, original)),
                (Some(_), Some(_)) | (None, None) => {}
            }
        }
        // Deletions come last, so that the content of a moved file is on the disk at any time.
        steps.extend(deletions);
        commit(steps, cancel)?;
        folders.keep();
        Ok(())
    }

    /// Returns the result of the tool, with the paths of the files by what happened to them.
    fn into_result(self) -> ToolResult {
        let files = self.files.iter().enumerate();
        let moved: Vec<(usize, usize)> = files.filter_map(|(to, file)| Some((file.moved_from?, to))).collect();
        let (mut added, mut modified, mut deleted) = (Vec::new(), Vec::new(), Vec::new());
        for (index, file) in self.files.iter().enumerate() {
            let path = file.place.shown.clone();
            match (&file.original, &file.content_after) {
                // A moved file counts as modified, under its new path.
                (_, Some(_)) if file.moved_from.is_some() => modified.push(path),
                (None, Some(_)) => added.push(path),
                (Some(_), None) if moved.iter().any(|(from, _)| *from == index) => {}
                (Some(_), None) => deleted.push(path),
                (Some(before), Some(after)) if before.content != *after => modified.push(path),
                (Some(_), Some(_)) | (None, None) => {}
            }
        }
        let moved: Vec<_> =
            moved.iter().map(|(from, to)| json!({"from": self.path(*from), "to": self.path(*to)})).collect();
        let mut text = "Done.".to_owned();
        for (letter, paths) in [('A', &added), ('M', &modified), ('D', &deleted)] {
            paths.iter().for_each(|path| text.push_str(&format!("\n{letter} {}", shorten(path))));
        }
        let summary = json!({"added": added, "modified": modified, "deleted": deleted});
        ToolResult { details: Some(json!({"summary": summary, "moved": moved})), ..ToolResult::text(text) }
    }
}
