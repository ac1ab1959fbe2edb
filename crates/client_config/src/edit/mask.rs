//! Masks a file for display: keys, commands and URLs stay; comments and values that may be secret are hidden.

use std::ops::Range;

use serde_json::Value;

use super::RevealedValue;
use crate::display;
use crate::document::Format;
use crate::tree::{Kind, Member, Tree};

const CONTAINERS: [&str; 4] = ["mcpServers", "servers", "mcp_servers", "context_servers"];

/// Keys of a server's entry whose strings are shown.
const OPEN_KEYS: [&str; 10] = [
    "type",
    "source",
    "transport",
    "cwd",
    "workingDirectory",
    "envFile",
    "bearer_token_env_var",
    "bearerTokenEnv",
    "path",
    "lifecycle",
];
const URLS: [&str; 4] = ["url", "httpUrl", "serverUrl", "baseUrl"];

/// Returns the masked text; empty if the text cannot be parsed.
pub(crate) fn masked(text: &str, format: Format) -> String {
    masked_except(text, format, &[])
}

/// Returns the masked text, in which the revealed values are shown; empty if the text cannot be parsed.
pub(super) fn masked_except(text: &str, format: Format, revealed: &[RevealedValue]) -> String {
    let Ok(tree) = format.parse(text) else { return String::new() };
    let mut mask = Mask { leaves: Vec::new(), hidden: Vec::new() };
    mask.outside(&tree);
    for one in revealed {
        let path: Vec<&str> = one.path.iter().map(String::as_str).collect();
        if let Some(there) = tree.at(&path).filter(|there| there.to_json() == one.value) {
            mask.show_again(there);
        }
    }
    mask.hide_comments(text, format);
    mask.hidden.sort_by_key(|(range, _)| range.start);
    let mut shown = String::new();
    let mut at = 0;
    for (range, with) in mask.hidden {
        shown.push_str(text.get(at..range.start).unwrap_or_default());
        shown.push_str(&with);
        at = range.end.max(at);
    }
    shown.push_str(text.get(at..).unwrap_or_default());
    shown
}

/// Whether a key on the way to a value is named like a secret.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Secrecy {
    Open,
    Secret,
}

struct Mask {
    /// The spans of keys and plain values. Between them are only punctuation, white space and comments.
    leaves: Vec<Range<usize>>,
    hidden: Vec<(Range<usize>, String)>,
}

impl Mask {
    fn outside(&mut self, tree: &Tree) {
        for member in tree.members() {
            self.leaves.push(member.key_span.clone());
            let value = &member.value;
            match member.key.as_str() {
                key if CONTAINERS.contains(&key) && value.is_map() => self.container(value),
                "mcp" if value.is_map() && value.get("servers").is_none() => self.container(value),
                "imports" | "trustedProjects" => self.open(value),
                "tools" | "agents" | "approvals" | "models" | "gateway" => self.settings(value, Secrecy::Open),
                "store" if value.is_map() => self.store(value),
                _ => self.outside(value),
            }
        }
        for item in tree.items().unwrap_or_default() {
            self.outside(item);
        }
        if matches!(tree.kind, Kind::Text(_) | Kind::Number(_)) {
            self.hide(tree, display::HIDDEN);
        }
    }

    /// Shows our settings, except values that are named or look like a secret: other programs use these keys, too.
    fn settings(&mut self, tree: &Tree, secrecy: Secrecy) {
        match &tree.kind {
            Kind::Map(members) => members.iter().for_each(|member| {
                self.leaves.push(member.key_span.clone());
                let (key, value) = (member.key.as_str(), &member.value);
                // Any header or variable may carry a key, whatever its name is.
                let is_secret = display::names_a_secret(key) || key == "headers" || key == "env";
                match &value.kind {
                    Kind::Text(text) if secrecy == Secrecy::Open && URLS.contains(&key) => {
                        self.show_as(value, text, &display::url(text));
                    }
                    _ => self.settings(value, if is_secret { Secrecy::Secret } else { secrecy }),
                }
            }),
            Kind::List(items) => items.iter().for_each(|item| self.settings(item, secrecy)),
            Kind::Text(text) if secrecy == Secrecy::Open && !display::looks_random(text) => self.open(tree),
            Kind::Text(text) if is_reference(text) => self.open(tree),
            Kind::Number(_) if secrecy == Secrecy::Open => self.open(tree),
            Kind::Text(_) | Kind::Number(_) => self.hide(tree, display::HIDDEN),
            Kind::Null | Kind::Bool(_) => self.leaves.push(tree.span.clone()),
        }
    }

    /// Shows the settings of the store, with its URL as URLs of servers are shown: it may contain a password.
    fn store(&mut self, tree: &Tree) {
        for member in tree.members() {
            self.leaves.push(member.key_span.clone());
            match (member.key.as_str(), &member.value.kind) {
                ("url", Kind::Text(text)) => self.show_as(&member.value, text, &display::url(text)),
                ("keyFile", Kind::Text(_)) => self.open(&member.value),
                _ => self.settings(&member.value, Secrecy::Open),
            }
        }
    }

    fn container(&mut self, tree: &Tree) {
        for member in tree.members() {
            self.leaves.push(member.key_span.clone());
            self.entry(&member.value);
        }
    }

    fn entry(&mut self, tree: &Tree) {
        for member in tree.members() {
            self.leaves.push(member.key_span.clone());
            self.field(member);
        }
    }

    fn field(&mut self, member: &Member) {
        let value = &member.value;
        match (member.key.as_str(), &value.kind) {
            ("command", Kind::Text(_)) => self.open(value),
            ("command", Kind::Map(_)) => self.entry(value),
            ("command" | "args", Kind::List(items)) => self.arguments(items),
            (key, Kind::Text(text)) if URLS.contains(&key) => self.show_as(value, text, &display::url(text)),
            (key, Kind::Text(_)) if OPEN_KEYS.contains(&key) => self.open(value),
            (_, Kind::Bool(_) | Kind::Number(_) | Kind::Null) => self.leaves.push(value.span.clone()),
            (key, Kind::List(_)) if key == "env_vars" || key.to_ascii_lowercase().contains("tools") => self.open(value),
            _ => self.closed(value),
        }
    }

    fn arguments(&mut self, items: &[Tree]) {
        let texts: Vec<String> = items.iter().map(|item| item.text().unwrap_or_default().to_owned()).collect();
        for ((item, text), shown) in items.iter().zip(&texts).zip(display::arguments(&texts)) {
            self.show_as(item, text, &shown);
        }
    }

    fn show_as(&mut self, tree: &Tree, text: &str, shown: &str) {
        if text == shown { self.open(tree) } else { self.hide(tree, shown) }
    }

    fn open(&mut self, tree: &Tree) {
        match tree.items() {
            Some(items) => items.iter().for_each(|item| self.open(item)),
            None => self.leaves.push(tree.span.clone()),
        }
    }

    /// Hides every string and number below, except references to variables.
    fn closed(&mut self, tree: &Tree) {
        match &tree.kind {
            Kind::Text(text) if is_reference(text) => self.open(tree),
            Kind::Map(members) => members.iter().for_each(|member| {
                self.leaves.push(member.key_span.clone());
                self.closed(&member.value);
            }),
            Kind::List(items) => items.iter().for_each(|item| self.closed(item)),
            Kind::Text(_) | Kind::Number(_) => self.hide(tree, display::HIDDEN),
            Kind::Null | Kind::Bool(_) => self.leaves.push(tree.span.clone()),
        }
    }

    /// Shows every value below that was hidden.
    fn show_again(&mut self, tree: &Tree) {
        tree.members().iter().for_each(|member| self.show_again(&member.value));
        tree.items().unwrap_or_default().iter().for_each(|item| self.show_again(item));
        if matches!(tree.kind, Kind::Text(_) | Kind::Number(_)) {
            self.hidden.retain(|(range, _)| *range != tree.span);
        }
    }

    fn hide(&mut self, tree: &Tree, with: &str) {
        self.leaves.push(tree.span.clone());
        self.hidden.push((tree.span.clone(), Value::from(with).to_string()));
    }

    fn hide_comments(&mut self, text: &str, format: Format) {
        self.leaves.sort_by_key(|range| range.start);
        let ends = self.leaves.iter().map(|range| range.start).chain([text.len()]);
        let starts = [0].into_iter().chain(self.leaves.iter().map(|range| range.end));
        let gaps: Vec<Range<usize>> = starts.zip(ends).map(|(start, end)| start..end).collect();
        for gap in gaps {
            let mut at = gap.start;
            while let Some((from, length)) = text.get(at..gap.end).and_then(|rest| comment(rest, format)) {
                let mark = if format == Format::Toml { "# …" } else { "/* … */" };
                self.hidden.push((at + from..at + from + length, mark.to_owned()));
                at += from + length;
            }
        }
    }
}

/// Finds the first comment in the text between two values; returns its offset and length.
fn comment(text: &str, format: Format) -> Option<(usize, usize)> {
    let from = match format {
        Format::Toml => text.find('#')?,
        Format::Json => text.find("//").into_iter().chain(text.find("/*")).min()?,
    };
    let rest = text.get(from..)?;
    let length = match rest.strip_prefix("/*") {
        Some(inner) => inner.find("*/").map_or(rest.len(), |end| end + 4),
        None => rest.find('\n').unwrap_or(rest.len()),
    };
    Some((from, length))
}

fn is_reference(text: &str) -> bool {
    let inner = text.strip_prefix("${").or_else(|| text.strip_prefix("{env:")).and_then(|rest| rest.strip_suffix('}'));
    inner.is_some_and(|inner| !inner.contains(":-") && !inner.contains(['{', '}', '$']))
}
