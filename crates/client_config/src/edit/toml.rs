//! Edits TOML. The result is parsed again to check that the edit changed the intended value and nothing else.

use serde_json::{Map, Value};
use toml_edit::{Array, DocumentMut, InlineTable, Item, Key, Table};

use super::EditRefusal;
use crate::toml::parse;

pub(super) fn set(text: &str, path: &[&str], wanted: &Value) -> Result<String, EditRefusal> {
    let before = parse(text)?.to_json();
    let mut after = before.clone();
    put(&mut after, path, wanted).ok_or_else(|| EditRefusal::NotAnObject(path.join(".")))?;
    if before == after {
        return Ok(text.to_owned());
    }
    let edited = set_in_document(text, path, wanted).ok_or(EditRefusal::Unsupported)?;
    checked(edited, &after)
}

/// Removes the value at a path with the comments inside it; comments before and after it stay.
pub(super) fn remove(text: &str, path: &[&str]) -> Result<String, EditRefusal> {
    let before = parse(text)?.to_json();
    let mut after = before.clone();
    if take(&mut after, path).is_none() {
        return Ok(text.to_owned());
    }
    checked(without_tables(text, path), &after)
        .or_else(|_| checked(removed_from_document(text, path).ok_or(EditRefusal::Unsupported)?, &after))
}

fn checked(edited: String, wanted: &Value) -> Result<String, EditRefusal> {
    if parse(&edited)?.to_json() == *wanted { Ok(edited) } else { Err(EditRefusal::Unsupported) }
}

fn put(value: &mut Value, path: &[&str], wanted: &Value) -> Option<()> {
    let Some((key, rest)) = path.split_first() else {
        *value = wanted.clone();
        return Some(());
    };
    let below = value.as_object_mut()?.entry(*key).or_insert_with(|| Value::Object(Map::new()));
    put(below, rest, wanted)
}

/// Removes the value at a path, and its parent if that becomes empty: editing the text removes that, too.
fn take(value: &mut Value, path: &[&str]) -> Option<Value> {
    let (key, above) = path.split_last()?;
    let (parent, grandparents) = match above.split_last() {
        Some((parent, grandparents)) => (Some(parent), grandparents),
        None => (None, above),
    };
    let map = at(value, above)?.as_object_mut()?;
    let taken = map.shift_remove(*key)?;
    let empty = map.is_empty();
    if let Some(parent) = parent.filter(|_| empty) {
        at(value, grandparents)?.as_object_mut()?.shift_remove(*parent);
    }
    Some(taken)
}

fn at<'v>(value: &'v mut Value, path: &[&str]) -> Option<&'v mut Value> {
    path.iter().try_fold(value, |value, key| value.get_mut(key))
}

fn set_in_document(text: &str, path: &[&str], wanted: &Value) -> Option<String> {
    let mut document: DocumentMut = text.parse().ok()?;
    let (name, above) = path.split_last()?;
    let mut table = document.as_item_mut();
    for key in above {
        let implicit = || {
            let mut table = Table::new();
            table.set_implicit(true);
            Item::Table(table)
        };
        table = table.as_table_like_mut()?.entry(key).or_insert_with(implicit);
    }
    let like = table.as_table_like_mut()?;
    match (like.get_mut(name), item(wanted)?) {
        // Edited in place, which keeps its position and the comments before it.
        (Some(Item::Table(old)), Item::Table(new)) => {
            old.clear();
            new.into_iter().for_each(|(key, item)| drop(old.insert(&key, item)));
        }
        // Keeps the comment after it.
        (Some(Item::Value(old)), Item::Value(mut new)) => {
            *new.decor_mut() = old.decor().clone();
            *old = new;
        }
        (_, item) => drop(like.insert(name, item)),
    }
    Some(document.to_string())
}

fn removed_from_document(text: &str, path: &[&str]) -> Option<String> {
    let mut document: DocumentMut = text.parse().ok()?;
    let (name, above) = path.split_last()?;
    let mut table = document.as_item_mut();
    for key in above {
        table = table.get_mut(*key)?;
    }
    let like = table.as_table_like_mut()?;
    like.remove(name)?;
    let empty = like.is_empty();
    if let ([parent], true) = (above, empty) {
        document.remove(parent);
    }
    Some(document.to_string())
}

/// Returns the text without the lines of `[path]` and its subtables.
fn without_tables(text: &str, path: &[&str]) -> String {
    let mut kept = String::new();
    let mut inside = false;
    // Comments and blank lines that may belong to the removed table or to the one after it.
    let mut undecided = String::new();
    for line in text.split_inclusive('\n') {
        match header(line) {
            Some(keys) => inside = keys.len() >= path.len() && keys.iter().zip(path).all(|(key, wanted)| key == wanted),
            None if inside && line.trim_start().starts_with('#') => {
                undecided.push_str(line);
                continue;
            }
            None if inside && line.trim().is_empty() => {
                undecided.push_str(if undecided.is_empty() { "" } else { line });
                continue;
            }
            None if inside => undecided.clear(),
            None => {}
        }
        if !inside {
            kept.push_str(&undecided);
            kept.push_str(line);
            undecided.clear();
        }
    }
    // A table that was added at the end of the file was separated by a blank line.
    if inside && undecided.is_empty() && kept.ends_with("\n\n") {
        kept.pop();
    }
    kept.push_str(&undecided);
    kept
}

fn header(line: &str) -> Option<Vec<String>> {
    let inner = line.trim_start().strip_prefix('[')?;
    let inner = inner.strip_prefix('[').unwrap_or(inner);
    let keys = Key::parse(inner.get(..inner.rfind(']')?)?.trim_end_matches(']')).ok()?;
    Some(keys.iter().map(|key| key.get().to_owned()).collect())
}

fn item(value: &Value) -> Option<Item> {
    match value {
        Value::Object(members) => {
            let mut table = Table::new();
            for (key, value) in members {
                table.insert(key, Item::Value(plain(value)?));
            }
            Some(Item::Table(table))
        }
        other => plain(other).map(Item::Value),
    }
}

/// Converts a JSON value to TOML; `None` for `null`, which TOML does not have.
fn plain(value: &Value) -> Option<toml_edit::Value> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(truth) => (*truth).into(),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => whole.into(),
            None => number.as_f64()?.into(),
        },
        Value::String(text) => text.as_str().into(),
        Value::Array(items) => items.iter().map(plain).collect::<Option<Array>>()?.into(),
        Value::Object(members) => {
            let pairs = members.iter().map(|(key, value)| Some((key.as_str(), plain(value)?)));
            pairs.collect::<Option<InlineTable>>()?.into()
        }
    })
}
