//! Edits configuration files in place: everything but the edited value stays the same, byte for byte.

mod json;
mod mask;
mod toml;
mod write;

use std::path::{Path, PathBuf};

use serde_json::Value;
use similar::TextDiff;

use crate::display;
use crate::document::{self, Format};
use crate::files::{self, FileError};
use crate::key_path::KeyPath;
use crate::references::References;
use crate::tree::{SyntaxError, Tree};

pub(crate) use mask::masked;
pub use write::{WriteError, WrittenFile};

/// Unchanged lines shown around a change.
const CONTEXT_LINES: usize = 2;

/// Whether a change is written or only shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    Write,
    Show,
}

/// Why a file cannot be edited.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    #[error("`{}`: {why}; fix it, then try again", file.display())]
    File { file: PathBuf, why: FileError },
    #[error("`{}`: {why}; fix it, then try again", file.display())]
    Syntax { file: PathBuf, why: SyntaxError },
    #[error("`{}`: `{key}` is not an object, so nothing can be added to it; fix it, then try again", file.display())]
    NotAnObject { file: PathBuf, key: String },
    #[error(
        "`{}`: {} has no such item; its items are counted from 0, and [{items}] adds one", file.display(), named(list)
    )]
    NoSuchItem { file: PathBuf, list: String, items: usize },
    #[error("`{}` cannot be edited without changing other parts of it; edit it by hand", file.display())]
    Unsupported { file: PathBuf },
}

/// Why a text cannot be edited. The caller adds the file.
#[derive(Debug)]
enum EditRefusal {
    Syntax(SyntaxError),
    NotAnObject(String),
    NoSuchItem { list: String, items: usize },
    Unsupported,
}

/// Names a list for people to read.
fn named(list: &str) -> String {
    if list.is_empty() { "the file".to_owned() } else { format!("`{list}`") }
}

impl From<SyntaxError> for EditRefusal {
    fn from(error: SyntaxError) -> Self {
        Self::Syntax(error)
    }
}

/// Whether a server is offered to cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    On,
    Off,
}

/// A file's text before and after an edit.
pub struct Change {
    pub file: PathBuf,
    format: Format,
    before: Option<String>,
    after: String,
    revealed: Vec<RevealedValue>,
}

/// A value that a diff shows, because it is known not to be secret.
#[derive(Clone)]
struct RevealedValue {
    path: Vec<String>,
    value: Value,
}

impl std::fmt::Debug for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Change").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Change {
    /// Reads a file to edit it; a missing file is empty.
    pub fn open(file: &Path) -> Result<Self, EditError> {
        let wrong = |why| EditError::File { file: file.to_owned(), why };
        let before = files::read_users(file).map_err(wrong)?;
        let after = before.clone().unwrap_or_default();
        Ok(Self { file: file.to_owned(), format: Format::of(file), before, after, revealed: Vec::new() })
    }

    /// Returns a copy, to which more can be added.
    pub fn again(&self) -> Self {
        Self {
            file: self.file.clone(),
            format: self.format,
            before: self.before.clone(),
            after: self.after.clone(),
            revealed: self.revealed.clone(),
        }
    }

    /// Lets the diff show this value at this path. Other values that are there stay hidden.
    pub(crate) fn reveal(&mut self, path: &[&str], value: &Value) {
        let path = path.iter().map(|key| (*key).to_owned()).collect();
        self.revealed.push(RevealedValue { path, value: value.clone() });
    }

    pub(crate) fn tree(&self) -> Result<Tree, EditError> {
        self.format.parse(&self.after).map_err(|why| self.refused(EditRefusal::Syntax(why)))
    }

    /// Returns the file's values before the edit.
    pub(crate) fn tree_before(&self) -> Result<Tree, EditError> {
        let before = self.before.as_deref().unwrap_or_default();
        self.format.parse(before).map_err(|why| self.refused(EditRefusal::Syntax(why)))
    }

    /// Returns the variables and secrets that the servers in the file refer to, after the edit.
    pub fn references(&self) -> Result<References, EditError> {
        let tree = self.tree()?;
        let mut all = References::default();
        for servers in document::servers(&tree) {
            let entries = servers.members.iter();
            entries.for_each(|member| all.extend(&References::of_entry(&member.value, servers.dialect)));
        }
        Ok(all)
    }

    /// Sets the value at a path, and creates missing objects on the way.
    pub fn set(&mut self, path: &[&str], value: &Value) -> Result<(), EditError> {
        let edited = match self.format {
            Format::Json => json::set(&self.after, path, value),
            Format::Toml => toml::set(&self.after, path, value),
        };
        self.after = edited.map_err(|refused| self.refused(refused))?;
        Ok(())
    }

    /// Sets the value at a path that may go through lists.
    pub fn set_at(&mut self, path: &KeyPath, value: &Value) -> Result<(), EditError> {
        let edited = match (self.format, path.keys()) {
            (Format::Json, _) => json::set_at(&self.after, path.steps(), value),
            (Format::Toml, Some(keys)) => toml::set(&self.after, &keys, value),
            (Format::Toml, None) => Err(EditRefusal::Unsupported),
        };
        self.after = edited.map_err(|refused| self.refused(refused))?;
        Ok(())
    }

    /// Removes the value at a path that may go through lists, if there is one.
    pub fn remove_at(&mut self, path: &KeyPath) -> Result<(), EditError> {
        let edited = match (self.format, path.keys()) {
            (Format::Json, _) => json::remove_at(&self.after, path.steps()),
            (Format::Toml, Some(keys)) => toml::remove(&self.after, &keys),
            (Format::Toml, None) => Err(EditRefusal::Unsupported),
        };
        self.after = edited.map_err(|refused| self.refused(refused))?;
        Ok(())
    }

    /// Removes the object at a path if it is empty and has no comments. Returns whether it did. Files in TOML stay as they
    /// are.
    pub fn remove_empty_object(&mut self, path: &KeyPath) -> Result<bool, EditError> {
        let edited = match self.format {
            Format::Json => json::remove_empty_object(&self.after, path.steps()),
            Format::Toml => Ok(None),
        };
        let Some(after) = edited.map_err(|refused| self.refused(refused))? else { return Ok(false) };
        self.after = after;
        Ok(true)
    }

    /// Whether the file has a server with this name.
    pub fn has_server(&self, name: &str) -> Result<bool, EditError> {
        Ok(!document::paths_to(&self.tree()?, name).is_empty())
    }

    /// Adds a server, or replaces the one with its name.
    pub fn set_server(&mut self, name: &str, entry: &Value) -> Result<(), EditError> {
        let container = document::container_for(&self.tree()?, self.format, name);
        let path: Vec<&str> = container.iter().copied().chain([name]).collect();
        self.set(&path, entry)
    }

    /// Sets one key of a server's entry, if the file has a server with this name.
    pub fn set_in_server(&mut self, name: &str, key: &str, value: &Value) -> Result<(), EditError> {
        for mut path in document::paths_to(&self.tree()?, name) {
            path.push(key);
            self.set(&path, value)?;
        }
        Ok(())
    }

    /// Removes one key of a server's entry, if the file has it.
    pub fn remove_from_server(&mut self, name: &str, key: &str) -> Result<(), EditError> {
        for mut path in document::paths_to(&self.tree()?, name) {
            path.push(key);
            self.remove(&path)?;
        }
        Ok(())
    }

    /// Adds VS Code's `inputs`, which its servers refer to by id, unless the file has them.
    pub(crate) fn add_inputs(&mut self, inputs: &Tree) -> Result<(), EditError> {
        let there = document::inputs(&self.tree()?);
        for input in inputs.items().unwrap_or_default() {
            let known = input.get("id").and_then(Tree::text).is_none_or(|id| there.contains_key(id));
            if !known {
                self.append(&["inputs"], &input.to_json())?;
            }
        }
        Ok(())
    }

    /// Switches all servers with this name on or off, with the key that the entry already uses for that. Returns whether
    /// there was one.
    pub fn switch_server(&mut self, name: &str, switch: Switch) -> Result<bool, EditError> {
        let tree = self.tree()?;
        let paths = document::paths_to(&tree, name);
        for path in &paths {
            let entry = tree.at(path);
            let has = |key: &str| entry.is_some_and(|entry| entry.get(key).is_some());
            let on = switch == Switch::On;
            let keys = match (has("enabled"), has("disabled"), on) {
                (true, true, _) => vec![("enabled", on), ("disabled", !on)],
                (false, true, _) => vec![("disabled", !on)],
                (true, false, _) | (false, false, false) => vec![("enabled", on)],
                // A server is enabled by default.
                (false, false, true) => Vec::new(),
            };
            for (key, value) in keys {
                let path: Vec<&str> = path.iter().copied().chain([key]).collect();
                self.set(&path, &Value::Bool(value))?;
            }
        }
        Ok(!paths.is_empty())
    }

    /// Removes all servers with this name. Returns whether there was one.
    pub fn remove_server(&mut self, name: &str) -> Result<bool, EditError> {
        let paths = document::paths_to(&self.tree()?, name);
        paths.iter().try_for_each(|path| self.remove(path))?;
        Ok(!paths.is_empty())
    }

    /// Appends a value to a list, which is created if missing.
    pub(crate) fn append(&mut self, path: &[&str], value: &Value) -> Result<(), EditError> {
        let edited = match self.format {
            Format::Json => json::append(&self.after, path, value),
            Format::Toml => Err(EditRefusal::Unsupported),
        };
        self.after = edited.map_err(|refused| self.refused(refused))?;
        Ok(())
    }

    /// Removes the value at a path, if there is one.
    pub fn remove(&mut self, path: &[&str]) -> Result<(), EditError> {
        let edited = match self.format {
            Format::Json => json::remove(&self.after, path),
            Format::Toml => toml::remove(&self.after, path),
        };
        self.after = edited.map_err(|refused| self.refused(refused))?;
        Ok(())
    }

    pub(crate) fn before(&self) -> Option<&str> {
        self.before.as_deref()
    }

    pub(crate) fn after(&self) -> &str {
        &self.after
    }

    /// Whether the file does not exist yet.
    pub fn is_new(&self) -> bool {
        self.before.is_none()
    }

    /// Whether the text stays the same.
    pub fn is_empty(&self) -> bool {
        self.before.as_deref().unwrap_or_default() == self.after
    }

    /// Returns a diff for people to read, without comments and values that may be secret.
    pub fn diff(&self) -> String {
        let before = self.before.as_deref().unwrap_or_default();
        let masked = |text| mask::masked_except(text, self.format, &self.revealed);
        let (masked_before, masked_after) = (masked(before), masked(&self.after));
        if before != self.after && masked_before == masked_after {
            return format!("{}: only hidden values change\n", display::path(&self.file));
        }
        let name = display::path(&self.file);
        let old = if self.is_new() { "(new file)" } else { name.as_str() };
        let diff = TextDiff::from_lines(&masked_before, &masked_after);
        diff.unified_diff().context_radius(CONTEXT_LINES).header(old, &name).missing_newline_hint(false).to_string()
    }

    /// Replaces the file atomically, and keeps the old one in `backups`.
    pub(crate) fn write(&self, backups: Option<&Path>) -> Result<WrittenFile, WriteError> {
        write::replace(&self.file, self.before.as_deref(), &self.after, backups)
    }

    fn refused(&self, refused: EditRefusal) -> EditError {
        let file = self.file.clone();
        match refused {
            EditRefusal::Syntax(why) => EditError::Syntax { file, why },
            EditRefusal::NotAnObject(key) => EditError::NotAnObject { file, key },
            EditRefusal::NoSuchItem { list, items } => EditError::NoSuchItem { file, list, items },
            EditRefusal::Unsupported => EditError::Unsupported { file },
        }
    }
}

#[cfg(test)]
mod tests;
