//! Edits JSON, JSON with comments and JSON5 by cutting and inserting, so that all other bytes stay the same.
//!
//! This is our own editor, because libraries that keep comments support only a part of JSON5.

use std::ops::Range;

use serde_json::Value;

use super::EditRefusal;
use crate::json5::{after_trivia, parse};
use crate::key_path::{KeyPath, Step, value_at};
use crate::tree::{Kind, Member, Tree};

/// The maximum length of a list that is written on one line.
const MAX_LINE: usize = 100;

pub(super) fn set(text: &str, path: &[&str], value: &Value) -> Result<String, EditRefusal> {
    set_at(text, &keys(path), value)
}

/// Sets the value at a path that may go through lists. An item can be replaced, or added at the end of its list.
pub(super) fn set_at(text: &str, path: &[Step], value: &Value) -> Result<String, EditRefusal> {
    let tree = parse(text)?;
    let style = Style::of(text);
    if tree.span.is_empty() {
        return Ok(append_first_value(text, &style, &nested(path, value)?));
    }
    let mut current = &tree;
    for (depth, step) in path.iter().enumerate() {
        let above = || KeyPath::format_steps(path.get(..depth).unwrap_or_default());
        let rest = path.get(depth + 1..).unwrap_or_default();
        let is_end = |value: &Tree| rest.is_empty() || matches!(value.kind, Kind::Null);
        match (&current.kind, step) {
            (Kind::Map(_), Step::Key(key)) => match current.member(key) {
                None => return Ok(insert(text, &style, current, key, &nested(rest, value)?)),
                Some(member) if is_end(&member.value) => {
                    return Ok(replace(text, &style, member.key_span.start, &member.value, &nested(rest, value)?));
                }
                Some(member) => current = &member.value,
            },
            (Kind::List(items), step) => {
                let position = step.position().ok_or_else(|| EditRefusal::NotAnObject(above()))?;
                match items.get(position) {
                    Some(item) if is_end(item) => {
                        return Ok(replace(text, &style, item.span.start, item, &nested(rest, value)?));
                    }
                    Some(item) => current = item,
                    None if position == items.len() => {
                        return Ok(add_item(text, &style, current, items, &nested(rest, value)?));
                    }
                    None => return Err(EditRefusal::NoSuchItem { list: above(), items: items.len() }),
                }
            }
            _ => return Err(EditRefusal::NotAnObject(above())),
        }
    }
    Ok(text.to_owned())
}

pub(super) fn append(text: &str, path: &[&str], value: &Value) -> Result<String, EditRefusal> {
    let tree = parse(text)?;
    match tree.at(path).and_then(|list| list.items().zip(Some(list))) {
        None => set(text, path, &Value::Array(vec![value.clone()])),
        Some((items, list)) => Ok(add_item(text, &Style::of(text), list, items, value)),
    }
}

pub(super) fn remove(text: &str, path: &[&str]) -> Result<String, EditRefusal> {
    remove_at(text, &keys(path))
}

/// Removes the value at a path that may go through lists, if there is one.
pub(super) fn remove_at(text: &str, path: &[Step]) -> Result<String, EditRefusal> {
    let mut text = text.to_owned();
    // A key may occur more than once: an earlier one would take effect if only the last were removed.
    loop {
        let tree = parse(&text)?;
        let Some((last, parent_path)) = path.split_last() else { return Ok(text) };
        let Some(parent) = value_at(&tree, parent_path) else { return Ok(text) };
        if let Some(items) = parent.items() {
            let spans: Vec<Range<usize>> = items.iter().map(|item| item.span.clone()).collect();
            return Ok(last.position().map_or_else(|| text.clone(), |position| cut(&text, &spans, position)));
        }
        let is_removed = |member: &Member| matches!(last, Step::Key(key) if *key == member.key);
        let Some(position) = parent.members().iter().rposition(is_removed) else { return Ok(text) };
        let members = parent.members().iter();
        let spans: Vec<Range<usize>> = members.map(|member| member.key_span.start..member.value.span.end).collect();
        text = cut(&text, &spans, position);
    }
}

/// Removes the object at a path if nothing is between its braces, not even a comment. Returns `None` if it is not such an
/// object.
pub(super) fn remove_empty_object(text: &str, path: &[Step]) -> Result<Option<String>, EditRefusal> {
    let tree = parse(text)?;
    let object = value_at(&tree, path).and_then(|value| text.get(value.span.clone()));
    let inside = object.and_then(|object| object.strip_prefix('{')?.strip_suffix('}'));
    match inside.is_some_and(|inside| inside.trim().is_empty()) {
        true => remove_at(text, path).map(Some),
        false => Ok(None),
    }
}

fn keys(path: &[&str]) -> Vec<Step> {
    path.iter().map(|key| Step::Key((*key).to_owned())).collect()
}

fn add_item(text: &str, style: &Style, list: &Tree, items: &[Tree], value: &Value) -> String {
    let spans = items.first().zip(items.last()).map(|(first, last)| (first.span.start, last.span.end));
    insert_into(text, style, list, spans, |style, indent| match indent {
        Some(indent) => style.render(value, indent),
        None => value.to_string(),
    })
}

/// Wraps the value in one object for each key, and in one list for each first item.
fn nested(path: &[Step], value: &Value) -> Result<Value, EditRefusal> {
    path.iter().enumerate().rev().try_fold(value.clone(), |inner, (depth, step)| match step {
        Step::Key(key) => Ok(Value::Object([(key.clone(), inner)].into_iter().collect())),
        Step::Index(0) => Ok(Value::Array(vec![inner])),
        Step::Index(_) => Err(EditRefusal::NoSuchItem {
            list: KeyPath::format_steps(path.get(..depth).unwrap_or_default()),
            items: 0,
        }),
    })
}

/// Adds the value to a file that is empty or has only comments.
fn append_first_value(text: &str, style: &Style, value: &Value) -> String {
    let gap = if text.is_empty() || text.ends_with('\n') { "" } else { style.newline };
    format!("{text}{gap}{}{}", style.render(value, ""), style.newline)
}

/// Replaces a value. `start` is where it begins in its line, with its key.
fn replace(text: &str, style: &Style, start: usize, old: &Tree, value: &Value) -> String {
    if old.to_json() == *value {
        return text.to_owned();
    }
    let rendered = match indentation(text, start) {
        Some(indent) => style.render(value, indent),
        None => value.to_string(),
    };
    splice(text, vec![(old.span.clone(), rendered)])
}

fn insert(text: &str, style: &Style, map: &Tree, key: &str, value: &Value) -> String {
    let key = Value::from(key);
    let members = map.members();
    let spans = members.first().zip(members.last()).map(|(first, last)| (first.key_span.start, last.value.span.end));
    insert_into(text, style, map, spans, |style, indent| match indent {
        Some(indent) => format!("{key}: {}", style.render(value, indent)),
        None => format!("{key}: {value}"),
    })
}

/// Inserts after the last member of an object or list, on a new line if the first member is on its own line.
fn insert_into(
    text: &str,
    style: &Style,
    into: &Tree,
    first_and_last: Option<(usize, usize)>,
    render: impl Fn(&Style, Option<&str>) -> String,
) -> String {
    let Some((first, end)) = first_and_last else { return insert_first(text, style, into, render) };
    let next = after_trivia(text, end);
    let comma = text.get(next..).is_some_and(|rest| rest.starts_with(','));
    let after = if comma { next + 1 } else { end };
    let separator = (end..end, if comma { "" } else { "," }.to_owned());
    let closing = if comma { "," } else { "" };
    let (at, new) = match indentation(text, first) {
        Some(indent) => {
            let new = format!("{}{indent}{}{closing}", style.newline, render(style, Some(indent)));
            (line_tail(text, after), new)
        }
        None => (after, format!(" {}{closing}", render(style, None))),
    };
    splice(text, vec![separator, (at..at, new)])
}

/// Inserts into an object or list that is empty or has only comments.
fn insert_first(text: &str, style: &Style, into: &Tree, render: impl Fn(&Style, Option<&str>) -> String) -> String {
    let outer = line_indentation(text, into.span.start);
    let inner = format!("{outer}{}", style.unit);
    let open = into.span.start + 1;
    let closes_on_its_line = text.get(open..into.span.end).is_some_and(|inside| !inside.contains('\n'));
    let end = if closes_on_its_line { format!("{}{outer}", style.newline) } else { String::new() };
    let new = format!("{}{inner}{}{end}", style.newline, render(style, Some(&inner)));
    splice(text, vec![(open..open, new)])
}

/// Removes one of the members of an object or the items of a list, which have these spans.
fn cut(text: &str, spans: &[Range<usize>], position: usize) -> String {
    let Some(Range { start, end }) = spans.get(position).cloned() else { return text.to_owned() };
    let next = after_trivia(text, end);
    let mut cuts: Vec<Range<usize>> = Vec::new();
    let mut removed = start..end;
    if text.get(next..).is_some_and(|rest| rest.starts_with(',')) {
        if text.get(end..next).is_some_and(|gap| gap.trim().is_empty()) {
            removed.end = next + 1;
        } else {
            cuts.push(next..next + 1);
        }
    } else if let Some(previous) = position.checked_sub(1).and_then(|before| spans.get(before)) {
        // Most clients reject a trailing comma.
        let comma = after_trivia(text, previous.end);
        cuts.push(comma..comma + 1);
    }
    cuts.push(whole_lines(text, removed));
    splice(text, cuts.into_iter().map(|range| (range, String::new())).collect())
}

/// Extends the range to whole lines if nothing else is on them, else to the blanks before it.
fn whole_lines(text: &str, range: Range<usize>) -> Range<usize> {
    let blank = |c: char| c == ' ' || c == '\t';
    let before = text.get(..range.start).unwrap_or_default();
    let after = text.get(range.end..).unwrap_or_default();
    let start = before.trim_end_matches(blank);
    let rest = after.trim_start_matches(blank);
    let line_end = rest.strip_prefix('\n').or_else(|| rest.strip_prefix("\r\n"));
    match line_end {
        Some(rest) if start.is_empty() || start.ends_with('\n') => start.len()..text.len() - rest.len(),
        _ if start.ends_with('\n') => range.start..text.len() - rest.len(),
        _ => start.len()..range.end,
    }
}

/// Returns the white space before this position, or `None` if something else is before it on its line.
fn indentation(text: &str, at: usize) -> Option<&str> {
    let line = text.get(..at)?.rsplit_once('\n')?.1;
    line.chars().all(|c| c == ' ' || c == '\t').then_some(line)
}

fn line_indentation(text: &str, at: usize) -> &str {
    let before = text.get(..at).unwrap_or_default();
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    let line = text.get(start..).unwrap_or_default();
    let length = line.find(|c| c != ' ' && c != '\t').unwrap_or(line.len());
    line.get(..length).unwrap_or_default()
}

/// Returns the end of the line if only comments follow on it, else the given place.
fn line_tail(text: &str, at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    let line = rest.split('\n').next().unwrap_or_default();
    let line = line.strip_suffix('\r').unwrap_or(line);
    let mut left = line.trim_start();
    while let Some(comment) = left.strip_prefix("/*") {
        match comment.split_once("*/") {
            Some((_, after)) => left = after.trim_start(),
            None => return at,
        }
    }
    if left.is_empty() || left.starts_with("//") { at + line.len() } else { at }
}

/// Replaces the ranges by these texts.
fn splice(text: &str, mut splices: Vec<(Range<usize>, String)>) -> String {
    splices.sort_by_key(|(range, _)| range.start);
    let mut edited = String::new();
    let mut at = 0;
    for (range, replacement) in splices {
        edited.push_str(text.get(at..range.start).unwrap_or_default());
        edited.push_str(&replacement);
        at = range.end;
    }
    edited.push_str(text.get(at..).unwrap_or_default());
    edited
}

/// The line breaks and indentation of a file, for rendering new values like the old ones.
struct Style {
    newline: &'static str,
    /// The white space of a level of indentation.
    unit: String,
}

impl Style {
    fn of(text: &str) -> Self {
        let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let indent = |line: &str| line.len() - line.trim_start_matches([' ', '\t']).len();
        let first =
            text.lines().find(|line| indent(line) > 0 && !line.trim().is_empty() && !line.trim().starts_with('*'));
        let unit = match first {
            Some(line) if line.starts_with('\t') => "\t".to_owned(),
            Some(line) => " ".repeat(indent(line).min(8)),
            None => "  ".to_owned(),
        };
        Self { newline, unit }
    }

    fn render(&self, value: &Value, indent: &str) -> String {
        let inner = format!("{indent}{}", self.unit);
        match value {
            Value::Object(members) if !members.is_empty() => {
                let lines = members.iter().map(|(key, value)| {
                    format!("{inner}{}: {}", Value::from(key.as_str()), self.render(value, &inner))
                });
                self.block('{', lines.collect(), indent, '}')
            }
            Value::Array(items) if !items.is_empty() => {
                let line = format!("[{}]", items.iter().map(Value::to_string).collect::<Vec<_>>().join(", "));
                if line.len() <= MAX_LINE && items.iter().all(|item| !item.is_object() && !item.is_array()) {
                    return line;
                }
                let lines = items.iter().map(|item| format!("{inner}{}", self.render(item, &inner)));
                self.block('[', lines.collect(), indent, ']')
            }
            plain => plain.to_string(),
        }
    }

    fn block(&self, open: char, lines: Vec<String>, indent: &str, close: char) -> String {
        let newline = self.newline;
        format!("{open}{newline}{}{newline}{indent}{close}", lines.join(&format!(",{newline}")))
    }
}
