//! Reads an object of the configuration field by field, then reports the keys that are not known.
//!
//! Every part of the configuration is read with this module, so that all errors look alike and reading does not stop at the
//! first one. A wrong field is reported and treated as absent.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::error::{ConfigError, Path, listed};
use super::openclaw::ForeignKeys;
use super::openclaw::keys::ForeignKey;
use crate::limits::Bound;
use crate::spelling::edits;

/// Reads the fields of one object. A key becomes known when its field is read.
#[derive(Debug)]
pub struct ConfigReader<'v, 'e> {
    path: &'e Path,
    fields: &'v Map<String, Value>,
    known_keys: Vec<&'static str>,
    /// Keys that are accepted but not used.
    foreign_keys: Vec<&'static str>,
    /// Whether unknown keys are accepted.
    accepts_unknown: bool,
    errors: &'e mut Vec<ConfigError>,
}

/// Reads `true`, `false` or an object. `switch` handles the boolean, `read` the object.
pub(super) fn switch_or_object<T: Default>(
    value: &Value,
    path: &Path,
    errors: &mut Vec<ConfigError>,
    switch: impl FnOnce(bool) -> T,
    read: impl FnOnce(&mut ConfigReader<'_, '_>) -> T,
) -> T {
    match value {
        Value::Bool(enabled) => switch(*enabled),
        Value::Object(_) => object(value, path, errors, read).unwrap_or_default(),
        Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            errors.push(ConfigError::wrong_value(path, value, "`true`, `false` or an object"));
            T::default()
        }
    }
}

/// Reads an object. A key that `read` neither reads nor accepts is an error.
pub fn object<T>(
    value: &Value,
    path: &Path,
    errors: &mut Vec<ConfigError>,
    read: impl FnOnce(&mut ConfigReader<'_, '_>) -> T,
) -> Option<T> {
    let Value::Object(fields) = value else {
        errors.push(ConfigError::wrong_value(path, value, "an object"));
        return None;
    };
    let (known_keys, foreign_keys) = (Vec::new(), Vec::new());
    let mut reader = ConfigReader { path, fields, known_keys, foreign_keys, accepts_unknown: false, errors };
    let read = read(&mut reader);
    reader.finish();
    Some(read)
}

/// Reads an object whose keys are chosen by the user. Entries for which `read` returns `None` are left out.
pub fn entries<T>(
    value: &Value,
    path: &Path,
    errors: &mut Vec<ConfigError>,
    mut read: impl FnMut(&Value, &Path, &mut Vec<ConfigError>) -> Option<T>,
) -> BTreeMap<String, T> {
    let Value::Object(fields) = value else {
        errors.push(ConfigError::wrong_value(path, value, "an object"));
        return BTreeMap::new();
    };
    let mut entries = BTreeMap::new();
    for (key, value) in fields {
        if key.trim().is_empty() {
            errors.push(ConfigError::wrong_value(path, &Value::from(key.as_str()), "keys that are not blank"));
        } else if let Some(entry) = read(value, &path.child(key), errors) {
            entries.insert(key.clone(), entry);
        }
    }
    entries
}

impl<'v> ConfigReader<'v, '_> {
    pub fn path(&self) -> &Path {
        self.path
    }

    pub fn report(&mut self, error: ConfigError) {
        self.errors.push(error);
    }

    /// Returns how many errors were reported so far. A reader that compares two counts knows whether what it read in between
    /// was wrong, and does not report what only follows from that.
    pub fn error_count(&self) -> usize {
        self.errors.len()
    }

    /// Accepts keys of OpenClaw that are not used. `openclaw::unused` reports them.
    pub fn accept(&mut self, foreign: ForeignKeys) {
        self.accept_table(foreign.0);
    }

    /// Accepts the keys of a table of OpenClaw's keys.
    pub(super) fn accept_table(&mut self, table: &'static [ForeignKey]) {
        self.foreign_keys.extend(table.iter().map(|foreign| foreign.name));
    }

    /// Accepts unknown keys, because OpenClaw adds some with every version. A key that differs in only one letter from one
    /// that is read is still an error.
    pub(super) fn accept_unknown(&mut self) {
        self.accepts_unknown = true;
    }

    /// Returns the raw value of a field, its path, and the list to report errors to; `None` if the field is absent.
    pub fn field(&mut self, key: &'static str) -> Option<(&'v Value, Path, &mut Vec<ConfigError>)> {
        self.known_keys.push(key);
        self.fields.get(key).map(|value| (value, self.path.child(key), &mut *self.errors))
    }

    /// Returns the raw value of a field without making its key known. The caller accepts the key, or reads the field
    /// afterwards.
    pub(super) fn raw(&self, key: &str) -> Option<&'v Value> {
        self.fields.get(key)
    }

    /// Reads `true` or `false`.
    pub fn flag(&mut self, key: &'static str) -> Option<bool> {
        let (value, path, errors) = self.field(key)?;
        if value.as_bool().is_none() {
            errors.push(ConfigError::wrong_value(&path, value, "`true` or `false`"));
        }
        value.as_bool()
    }

    /// Reads a whole number and clamps it to its range.
    pub fn number(&mut self, bound: &Bound) -> Option<u64> {
        let (value, path, errors) = self.field(bound.key)?;
        let number = whole(value).map(|raw| bound.clamp(raw));
        if number.is_none() {
            let expected = format!("a whole number from {} to {}", bound.range.start(), bound.range.end());
            errors.push(ConfigError::wrong_value(&path, value, &expected));
        }
        number
    }

    /// Reads a whole number that is at least `least`.
    pub(super) fn whole(&mut self, key: &'static str, least: u64) -> Option<u64> {
        let (value, path, errors) = self.field(key)?;
        let number = whole(value).filter(|number| *number >= least);
        if number.is_none() {
            errors.push(ConfigError::wrong_value(&path, value, &format!("a whole number from {least}")));
        }
        number
    }

    /// Reports a field that cannot be set here.
    pub(super) fn forbid(&mut self, key: &'static str, expected: &str) {
        if let Some((value, path, errors)) = self.field(key) {
            errors.push(ConfigError::wrong_value(&path, value, expected));
        }
    }

    /// Reads a string that is not blank. `expected` is for the error message.
    pub(super) fn text(&mut self, key: &'static str, expected: &str) -> Option<String> {
        let (value, path, errors) = self.field(key)?;
        let text = value.as_str().filter(|text| !text.trim().is_empty());
        if text.is_none() {
            errors.push(ConfigError::wrong_value(&path, value, expected));
        }
        text.map(str::to_owned)
    }

    /// Reads one of these words and returns the value that belongs to it.
    pub fn choice<T: Copy>(&mut self, key: &'static str, words: &[(&str, T)]) -> Option<T> {
        let (value, path, errors) = self.field(key)?;
        let chosen = choose(value, &path, words);
        chosen.map_err(|error| errors.push(error)).ok()
    }

    /// Reads a list. Invalid items are reported and left out.
    pub fn list<T>(
        &mut self,
        key: &'static str,
        item: impl FnMut(&Value, &Path) -> Result<T, ConfigError>,
    ) -> Option<Vec<T>> {
        let (value, path, errors) = self.field(key)?;
        list(value, &path, errors, item)
    }

    /// Reads an object. A key that `read` neither reads nor accepts is an error.
    pub fn object<T>(&mut self, key: &'static str, read: impl FnOnce(&mut ConfigReader<'_, '_>) -> T) -> Option<T> {
        let (value, path, errors) = self.field(key)?;
        object(value, &path, errors, read)
    }

    /// Reports the unknown keys.
    fn finish(self) {
        let is_known = |key: &str| self.known_keys.contains(&key) || self.foreign_keys.contains(&key);
        let is_near = |key: &str| self.known_keys.iter().any(|known| edits(key, known) <= 1);
        let unknown = self.fields.keys().filter(|key| !is_known(key) && (!self.accepts_unknown || is_near(key)));
        let error = |key: &String| ConfigError::unknown_key(self.path, key, &self.known_keys, &self.foreign_keys);
        self.errors.extend(unknown.map(error));
    }
}

/// Reads a list. Invalid items are reported and left out.
pub fn list<T>(
    value: &Value,
    path: &Path,
    errors: &mut Vec<ConfigError>,
    mut item: impl FnMut(&Value, &Path) -> Result<T, ConfigError>,
) -> Option<Vec<T>> {
    let Value::Array(items) = value else {
        errors.push(ConfigError::wrong_value(path, value, "a list"));
        return None;
    };
    let mut read = Vec::new();
    for (position, value) in items.iter().enumerate() {
        match item(value, &path.item(position)) {
            Ok(one) => read.push(one),
            Err(error) => errors.push(error),
        }
    }
    Some(read)
}

/// Returns the value that belongs to one of these words.
pub fn choose<T: Copy>(value: &Value, path: &Path, words: &[(&str, T)]) -> Result<T, ConfigError> {
    let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    let expected = match known.as_slice() {
        [only] => format!("`{only}`"),
        many => format!("one of {}", listed(many)),
    };
    let chosen = words.iter().find(|(word, _)| value.as_str() == Some(*word));
    chosen.map(|(_, meaning)| *meaning).ok_or_else(|| ConfigError::unknown_word(path, value, &expected, known))
}

/// Returns a whole number that is not negative. `1e4` and `10000.0` are accepted too, because some JSON5 parsers return
/// every number as a float.
fn whole(value: &Value) -> Option<u64> {
    let float = || value.as_f64().filter(|number| *number >= 0.0 && number.fract() == 0.0);
    // A number that is too large becomes `u64::MAX`, because the cast saturates.
    value.as_u64().or_else(|| float().map(|number| number as u64))
}

#[cfg(test)]
mod tests;
