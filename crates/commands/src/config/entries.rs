//! Mistakes in the entries of servers that do not make them unusable: keys that are not used, and values of another type.

use client_config::{ConfigFile, KeyPath, display, parse_value};
use contract::config::openclaw::{UnusedKind, UnusedSetting};
use contract::limits::MAX_CONFIG_FILE_BYTES;
use contract::spelling::{edits, nearest};
use serde_json::Value;

use super::schema;

/// Where our files may have servers. Clients have them elsewhere, too, with keys of their own.
const CONTAINERS: [&[&str]; 5] =
    [&["mcpServers"], &["mcp", "servers"], &["servers"], &["mcp_servers"], &["context_servers"]];

/// Keys that are read besides those of the schema, because other clients write them.
const CLIENTS_KEYS: [&str; 26] = [
    "allowedTools",
    "auth",
    "baseUrl",
    "bearerTokenEnv",
    "blockedTools",
    "connectionTimeoutMs",
    "disabled_tools",
    "enabled_tools",
    "env_http_headers",
    "env_vars",
    "environment",
    "excludeTools",
    "headersHelper",
    "httpUrl",
    "http_headers",
    "includeTools",
    "requestTimeoutMs",
    "serverUrl",
    "startup_timeout_ms",
    "startup_timeout_sec",
    "timeout",
    "tool_timeout_sec",
    "tools",
    "transport",
    "workingDirectory",
    // A note of the user's, which some clients show.
    "description",
];

/// Objects of an entry whose values are texts.
const TEXTS: [&str; 5] = ["env", "environment", "headers", "http_headers", "env_http_headers"];

/// The most edits between a mistyped key and the one that is suggested. Keys of other clients are often a little similar
/// to one of ours.
const MAX_EDITS: usize = 2;

/// How serious a problem of a configuration is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    /// A part of the configuration cannot be used.
    Error,
    Warning,
    /// A setting has no effect, and nothing is lost by it.
    Note,
}

impl Severity {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// A mistake in an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EntryMistake {
    pub(super) path: KeyPath,
    pub(super) severity: Severity,
    pub(super) message: String,
    /// The key that is not used, if the mistake is one.
    pub(super) unused: Option<UnusedSetting>,
}

/// Returns the whole file with secrets, if it is JSON; the types of hidden values cannot be checked.
pub(super) fn unmasked(file: &ConfigFile) -> Option<Value> {
    let metadata = std::fs::metadata(&file.file).ok()?;
    // A pipe can be read only once.
    if !metadata.is_file() || metadata.len() > MAX_CONFIG_FILE_BYTES as u64 {
        return None;
    }
    let text = std::fs::read_to_string(&file.file).ok()?;
    parse_value(&text).ok()
}

/// Returns the mistakes in the entries of a configuration's servers.
pub(super) fn mistakes(config: &Value) -> Vec<EntryMistake> {
    let known = schema::server_keys();
    let mut found = Vec::new();
    for container in CONTAINERS {
        let Some(servers) = container.iter().try_fold(config, |value, key| value.get(key)) else { continue };
        let path = container.iter().fold(KeyPath::root(), |path, key| path.child(key));
        for (name, entry) in servers.as_object().into_iter().flatten() {
            for (key, value) in entry.as_object().into_iter().flatten() {
                let path = path.child(name).child(key);
                if TEXTS.contains(&key.as_str()) {
                    found.extend(wrong_texts(&path, value));
                }
                if !known.contains(key) && !CLIENTS_KEYS.contains(&key.as_str()) {
                    found.push(unknown_key(path, key, &known));
                }
            }
        }
    }
    found
}

fn unknown_key(path: KeyPath, key: &str, known: &[String]) -> EntryMistake {
    let candidates = known.iter().map(String::as_str).chain(CLIENTS_KEYS);
    let meant = nearest(key, candidates).filter(|meant| edits(key, meant) <= MAX_EDITS);
    let (severity, kind, message) = match meant {
        Some(meant) => (Severity::Warning, UnusedKind::Unknown, format!("unknown key; did you mean `{meant}`?")),
        None => (Severity::Note, UnusedKind::NotApplicable, REASON.to_owned()),
    };
    let unused = Some(UnusedSetting { path: path.to_string(), kind, reason: REASON });
    EntryMistake { message: format!("`{path}`: {message}"), path, severity, unused }
}

/// Why a key that is similar to none of ours has no effect.
const REASON: &str = "it is not a key of a server's entry that Cellmate uses";

/// Returns a warning for each value that is a number or a switch where a text belongs. It is used as text.
fn wrong_texts(path: &KeyPath, texts: &Value) -> Vec<EntryMistake> {
    let found = texts.as_object().into_iter().flatten().filter_map(|(name, value)| {
        let sort = match value {
            Value::Number(_) => "a number",
            Value::Bool(_) => "true or false",
            // Others are used as they are, or make the entry unusable.
            Value::Null | Value::String(_) | Value::Array(_) | Value::Object(_) => return None,
        };
        let path = path.child(name);
        let message = format!("`{path}`: expected a string, found {sort}, which is passed as text; write it in quotes");
        Some(EntryMistake { path, severity: Severity::Warning, message: display::plain(&message), unused: None })
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Severity, mistakes};

    #[test]
    fn mistyped_keys_of_entries_are_reported_with_the_key_that_is_meant() {
        let config = json!({
            "mcpServers": {"a": {"command": "x", "trustd": true, "env": {"A": 3, "B": "3", "C": null, "D": true}}},
            "mcp": {"servers": {"b": {"comand": "x"}}},
            "tools": {"trustd": true},
        });
        let found: Vec<(Severity, String)> =
            mistakes(&config).into_iter().map(|mistake| (mistake.severity, mistake.message)).collect();
        let text = |name: &str, sort: &str| {
            format!(
                "`mcpServers.a.env.{name}`: expected a string, found {sort}, which is passed as text; write it in quotes"
            )
        };
        let expected = [
            "`mcpServers.a.trustd`: unknown key; did you mean `trusted`?".to_owned(),
            text("A", "a number"),
            text("D", "true or false"),
            "`mcp.servers.b.comand`: unknown key; did you mean `command`?".to_owned(),
        ];
        assert_eq!(found, expected.map(|message| (Severity::Warning, message)));
    }

    #[test]
    fn keys_of_other_clients_are_noted_unless_they_are_used() {
        let entry = json!({"command": "x", "httpUrl": "", "timeout": 1, "alwaysAllow": [], "gallery": true});
        let found = mistakes(&json!({"servers": {"a": entry}}));
        assert!(found.iter().all(|mistake| mistake.severity == Severity::Note), "{found:?}");
        let messages: Vec<&str> = found.iter().map(|mistake| mistake.message.as_str()).collect();
        assert_eq!(
            messages,
            [
                "`servers.a.alwaysAllow`: it is not a key of a server's entry that Cellmate uses",
                "`servers.a.gallery`: it is not a key of a server's entry that Cellmate uses",
            ]
        );
    }
}
