//! `store`: where runs are stored, how long they are kept, and how much one agent may store.

use std::fmt;

use serde_json::Value;

use super::error::{ConfigError, Path};
use super::numbers::Numbers;
use super::reader::{self, ConfigReader};
use crate::limits::{self, Bound};

/// The resolved configuration. The reader chooses a default location if no `url` or `key_file` is given.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// `postgres://…` or the path of a file. It may contain a password.
    pub url: Option<String>,
    pub key_file: Option<String>,
    pub retention: Retention,
    pub quotas: Quotas,
}

impl fmt::Debug for StoreConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreConfig")
            .field("retention", &self.retention)
            .field("quotas", &self.quotas)
            .finish_non_exhaustive()
    }
}

/// How long ended runs and transcripts are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// For ended runs, with their journals and approvals.
    pub runs_seconds: u64,
    pub transcripts_seconds: u64,
}

impl Retention {
    pub const DEFAULT: Self = Self {
        runs_seconds: limits::KEEP_RUNS_SECONDS.default,
        transcripts_seconds: limits::KEEP_TRANSCRIPTS_SECONDS.default,
    };
}

/// The most that one agent may store at once. Over MCP, each principal is an agent of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotas {
    pub waiting_runs: u64,
    /// The sum of its suspended cells and the journals of all its stored runs.
    pub stored_bytes: u64,
    pub open_approvals: u64,
}

impl Quotas {
    pub const DEFAULT: Self = Self {
        waiting_runs: limits::MAX_WAITING_RUNS.default,
        stored_bytes: limits::MAX_STORED_BYTES.default,
        open_approvals: limits::MAX_OPEN_APPROVALS.default,
    };
}

pub(super) const KEPT: [&Bound; 2] = [&limits::KEEP_RUNS_SECONDS, &limits::KEEP_TRANSCRIPTS_SECONDS];
pub(super) const QUOTAS: [&Bound; 3] =
    [&limits::MAX_WAITING_RUNS, &limits::MAX_STORED_BYTES, &limits::MAX_OPEN_APPROVALS];

impl StoreConfig {
    /// Resolves the value of `store`; `null` for a configuration without it.
    pub fn resolve(store: &Value) -> Result<Self, Vec<ConfigError>> {
        let mut errors = Vec::new();
        let read = match store {
            Value::Null => None,
            given => reader::object(given, &Path::root("store"), &mut errors, Self::read),
        };
        if errors.is_empty() { Ok(read.unwrap_or_else(Self::empty)) } else { Err(errors) }
    }

    fn empty() -> Self {
        Self { url: None, key_file: None, retention: Retention::DEFAULT, quotas: Quotas::DEFAULT }
    }

    fn read(reader: &mut ConfigReader<'_, '_>) -> Self {
        let url = text(reader, "url");
        let key_file = text(reader, "keyFile");
        let kept = Numbers::read(reader, &KEPT);
        let quotas = reader.object("perPrincipal", |reader| Numbers::read(reader, &QUOTAS)).unwrap_or_default();
        Self {
            url,
            key_file,
            retention: Retention {
                runs_seconds: kept.get(&limits::KEEP_RUNS_SECONDS),
                transcripts_seconds: kept.get(&limits::KEEP_TRANSCRIPTS_SECONDS),
            },
            quotas: Quotas {
                waiting_runs: quotas.get(&limits::MAX_WAITING_RUNS),
                stored_bytes: quotas.get(&limits::MAX_STORED_BYTES),
                open_approvals: quotas.get(&limits::MAX_OPEN_APPROVALS),
            },
        }
    }
}

fn text(reader: &mut ConfigReader<'_, '_>, key: &'static str) -> Option<String> {
    let (value, path, errors) = reader.field(key)?;
    let text = value.as_str().filter(|text| !text.trim().is_empty());
    if text.is_none() {
        // The value is not shown, because it may contain a password even if it is not a string.
        errors.push(ConfigError::wrong_value(&path, &Value::Null, "a string"));
    }
    text.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Quotas, Retention, StoreConfig};

    #[test]
    fn missing_settings_have_their_defaults() {
        for nothing in [Value::Null, json!({})] {
            let config = StoreConfig::resolve(&nothing).unwrap();
            assert_eq!((config.url, config.key_file), (None, None));
            assert_eq!((config.retention, config.quotas), (Retention::DEFAULT, Quotas::DEFAULT));
        }
    }

    #[test]
    fn numbers_are_clamped_to_their_ranges_and_debug_output_has_no_password() {
        let config = StoreConfig::resolve(&json!({
            "url": "postgres://app:secret@db/cellmate",
            "keyFile": "/etc/cellmate/keys",
            "keepRunsSeconds": 3600,
            "keepTranscriptsSeconds": 1,
            "perPrincipal": {"maxWaitingRuns": 10, "maxStoredBytes": 0, "maxOpenApprovals": 3},
        }))
        .unwrap();
        assert_eq!(config.url.as_deref(), Some("postgres://app:secret@db/cellmate"));
        assert_eq!(config.key_file.as_deref(), Some("/etc/cellmate/keys"));
        assert_eq!(config.retention, Retention { runs_seconds: 3600, transcripts_seconds: 60 });
        assert_eq!(config.quotas, Quotas { waiting_runs: 10, stored_bytes: 1 << 20, open_approvals: 3 });
        assert!(!format!("{config:?}").contains("secret"));
    }

    #[test]
    fn errors_do_not_show_the_value_of_the_url() {
        let errors =
            StoreConfig::resolve(&json!({"url": ["postgres://app:secret@db"], "keepRunSeconds": 1})).unwrap_err();
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "`store.url`: expected a string, found `null`",
                "`store.keepRunSeconds`: unknown key; did you mean `keepRunsSeconds`?"
            ]
        );
    }
}
