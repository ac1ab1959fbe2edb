//! The values that the cells of a session keep for each other: a cell's calls that read and write them.
//!
//! The calls of a run are carried out one after another, in the order in which the cell made them, also if it did not
//! await them. A call that needs nothing from the store is answered at once, without a task. An unconditional write is
//! part of the run's next commit, and the run reads it from its journal until then. A conditional write is committed at
//! once. The reply to an unconditional write is recorded in the commit of the write; for a conditional one the store keeps
//! the decision, so that the call gets the same reply if it is made again after a crash.
//!
//! A run knows how many values its session has from reading them after its own last commit. Other runs of the session may
//! write in the meantime, so the session can exceed its limits by what they write until their commits.

use std::collections::BTreeMap;

use contract::frame::{HostCall, ReplyValue};
use contract::ids::{CallId, RunId};
use contract::limits::{MAX_STATE_BYTES, MAX_STATE_KEY_BYTES, MAX_STATE_KEYS, MAX_STATE_VALUE_BYTES};
use executor::{Journal, Reservation, RunDataBudget, UncommittedValue, internal_message};
use serde::{Deserialize, Deserializer};
use serde_json::json;
use serde_json::value::RawValue;
use store::{ExpectedVersion, StoreError, ValueWrite};

use crate::bridge::{MAX_SMALL_REPLY, reject_with_code};

/// Bytes of the options of a call: more than a version takes.
const MAX_OPTIONS_BYTES: usize = 4 << 10;

/// The values of a session without their texts, as the run sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Bytes and version by key.
    by_key: BTreeMap<String, (usize, String)>,
    bytes: usize,
    /// The number of the run's commits of values when they were read.
    pub(crate) as_of: u64,
}

impl Sizes {
    pub(crate) fn set(&mut self, key: &str, bytes: usize, version: &str) {
        self.remove(key);
        self.bytes += bytes;
        self.by_key.insert(key.to_owned(), (bytes, version.to_owned()));
    }

    pub(crate) fn remove(&mut self, key: &str) {
        self.bytes -= self.by_key.remove(key).map_or(0, |(bytes, _)| bytes);
    }

    /// Checks that a value of this length fits under the key.
    fn check(&self, key: &str, bytes: usize) -> Result<(), Refusal> {
        let before = self.by_key.get(key).map(|(bytes, _)| *bytes);
        if before.is_none() && self.by_key.len() >= MAX_STATE_KEYS {
            return Err(Refusal::Keys);
        }
        let total = self.bytes - before.unwrap_or(0) + bytes;
        if total > MAX_STATE_BYTES { Err(Refusal::SessionBytes { total }) } else { Ok(()) }
    }
}

/// A call after its arguments were checked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Operation<'a> {
    Store { key: String, value: &'a str, expected: Option<ExpectedVersion> },
    Load { key: String },
    Forget { key: String, expected: Option<ExpectedVersion> },
    Keys,
}

/// Why a call is refused. The message is for the cell.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("cells of Tool Search have no session values; return what the next cell needs")]
    ToolSearch,
    #[error("`{0}` is not a function of session values; use store, load, forget or keys")]
    Function(String),
    #[error("`{0}` takes a key, which is a string that is not empty and has no control characters")]
    Key(String),
    #[error("the key has {0} bytes, but at most {MAX_STATE_KEY_BYTES} are allowed; use a shorter key")]
    LongKey(usize),
    #[error("store(key, value) needs a value that JSON can represent; to remove a key, use forget(key)")]
    NoValue,
    #[error(
        "the only option is `ifVersion`: a version that store, load or keys returned, or null for a key that must not exist"
    )]
    Options,
    #[error(
        "the value has {0} bytes as JSON, but at most {MAX_STATE_VALUE_BYTES} are allowed; store less, or divide it \
         among several keys"
    )]
    LongValue(usize),
    #[error("the session has {MAX_STATE_KEYS} keys, which is the limit; forget(key) those that are not needed")]
    Keys,
    #[error(
        "the session's values would take {total} bytes, but at most {MAX_STATE_BYTES} are allowed; forget(key) those that \
         are not needed"
    )]
    SessionBytes { total: usize },
}

impl Refusal {
    fn code(&self) -> &'static str {
        match self {
            Self::ToolSearch | Self::Function(_) | Self::Key(_) | Self::NoValue | Self::Options => "invalid_input",
            Self::LongKey(_) | Self::LongValue(_) | Self::SessionBytes { .. } => "value_too_large",
            Self::Keys => "too_many_keys",
        }
    }
}

/// What to do for a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Refuse(Refusal),
    /// Reply with this JSON; nothing is written.
    Reply(String),
    Write {
        write: ValueWrite,
        reply: String,
    },
    /// Write at once, and reply with this JSON unless the key has another version.
    WriteIf {
        write: ValueWrite,
        reply: String,
    },
    /// Read the value of the key from the store, and reply with it.
    Load(String),
    /// Read which values the session has, and decide again.
    Read,
}

/// Whether [`Sizes`] were read from the store for this call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    Fresh,
    Earlier,
}

/// Reads which values the session has, and adds what the run has written since its last commit.
pub(crate) async fn read_sizes(journal: &Journal) -> Result<Sizes, StoreError> {
    let (mut sizes, uncommitted) = loop {
        let (as_of, uncommitted) = (journal.value_commits(), journal.uncommitted_keys());
        let mut sizes = Sizes { as_of, ..Sizes::default() };
        for value in journal.store().session_value_sizes(journal.session()).await? {
            sizes.set(&value.key, usize::try_from(value.bytes).unwrap_or(usize::MAX), &value.version);
        }
        // If a commit has ended in the meantime, other runs may have replaced what it wrote.
        if journal.value_commits() == as_of {
            break (sizes, uncommitted);
        }
    };
    for (key, bytes, version) in uncommitted {
        match bytes {
            Some(bytes) => sizes.set(&key, bytes, &version),
            None => sizes.remove(&key),
        }
    }
    Ok(sizes)
}

/// Returns the reply with a reservation for its memory, or a rejection if journal or memory have no room for it.
pub(crate) fn kept(
    journal: &Journal,
    data: &RunDataBudget,
    reply: String,
    function: &str,
) -> (ReplyValue, Option<Reservation>) {
    if reply.len() > MAX_SMALL_REPLY
        && let Err(full) = journal.check_room_for(reply.len())
    {
        return (reject_with_code(full.code(), &full.to_string(), function), None);
    }
    match data.reserve(reply.len(), 0) {
        Ok(held) => (ReplyValue::Resolved(reply.into_bytes()), Some(held)),
        Err(refused) => (reject_with_code(refused.code(), &refused.to_string(), function), None),
    }
}

/// Rejects a call because the store cannot be read. The cell can make the call again.
pub(crate) fn unavailable(error: &StoreError, function: &str) -> ReplyValue {
    let message = internal_message("read session values", error, "the store is unavailable; call it again later");
    reject_with_code("internal_error", &message, function)
}

pub(crate) fn refuse(refusal: &Refusal, function: &str) -> ReplyValue {
    reject_with_code(refusal.code(), &refusal.to_string(), function)
}

/// The reply to a conditional write that has no effect.
pub(crate) fn conflict(write: &ValueWrite) -> ReplyValue {
    let function = if write.value.is_some() { "store" } else { "forget" };
    let message = match &write.expected {
        Some(ExpectedVersion::Absent) => format!("the key {:?} exists; load it and decide again", write.key),
        _ => format!("the key {:?} was written or removed by another cell; load it and decide again", write.key),
    };
    reject_with_code("version_conflict", &message, function)
}

pub(crate) fn loaded(value: &str, version: &str) -> String {
    format!(r#"{{"value":{value},"version":{}}}"#, json!(version))
}

/// The options of `store` and `forget`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WriteOptions {
    #[serde(default, deserialize_with = "given")]
    if_version: Option<Option<String>>,
}

/// Tells an option that is `null` from one that is not given.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl<'a> Operation<'a> {
    /// Checks a call, whose payload is an array of arguments. The value stays a text.
    pub(crate) fn read(call: &'a HostCall) -> Result<Self, Refusal> {
        let function = call.target.as_str();
        let text = std::str::from_utf8(&call.payload).unwrap_or_default();
        let arguments: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
        let argument = |index: usize| arguments.get(index).map(|argument| argument.get());
        let key = || read_key(function, argument(0));
        match function {
            "store" => {
                let key = key()?;
                let value = argument(1).ok_or(Refusal::NoValue)?;
                if value.len() > MAX_STATE_VALUE_BYTES {
                    return Err(Refusal::LongValue(value.len()));
                }
                Ok(Self::Store { key, value, expected: read_options(argument(2))? })
            }
            "load" => Ok(Self::Load { key: key()? }),
            "forget" => Ok(Self::Forget { key: key()?, expected: read_options(argument(1))? }),
            "keys" => Ok(Self::Keys),
            _ => Err(Refusal::Function(function.chars().take(100).collect())),
        }
    }

    /// Decides what to do, given what the run has written and, if they are known, the values that the session has.
    pub(crate) fn decide(
        self,
        run: &RunId,
        call: CallId,
        uncommitted: impl Fn(&str) -> Option<UncommittedValue>,
        sizes: Option<(&Sizes, Freshness)>,
    ) -> Decision {
        // The same if the call is made again after a crash.
        let version = format!("{run}:{call}");
        let fresh = sizes.filter(|(_, freshness)| *freshness == Freshness::Fresh).map(|(sizes, _)| sizes);
        match self {
            Self::Store { key, value, expected } => {
                let Some((known, freshness)) = sizes else { return Decision::Read };
                if let Err(refusal) = known.check(&key, value.len()) {
                    // Other cells may have removed values since.
                    return if freshness == Freshness::Fresh { Decision::Refuse(refusal) } else { Decision::Read };
                }
                let reply = json!({"version": version}).to_string();
                let write = ValueWrite { key, value: Some(value.to_owned()), version, expected };
                if write.expected.is_some() {
                    Decision::WriteIf { write, reply }
                } else {
                    Decision::Write { write, reply }
                }
            }
            Self::Load { key } => match uncommitted(&key) {
                Some(UncommittedValue { value: Some(value), version }) => Decision::Reply(loaded(&value, &version)),
                Some(UncommittedValue { value: None, .. }) => Decision::Reply("null".to_owned()),
                None => Decision::Load(key),
            },
            Self::Forget { key, expected: Some(expected) } => {
                let reply = (expected != ExpectedVersion::Absent).to_string();
                Decision::WriteIf { write: ValueWrite { key, value: None, version, expected: Some(expected) }, reply }
            }
            Self::Forget { key, expected: None } => {
                let exists = match uncommitted(&key) {
                    Some(last) => last.value.is_some(),
                    None => match fresh {
                        Some(sizes) => sizes.by_key.contains_key(&key),
                        None => return Decision::Read,
                    },
                };
                if !exists {
                    return Decision::Reply("false".to_owned());
                }
                let write = ValueWrite { key, value: None, version, expected: None };
                Decision::Write { write, reply: "true".to_owned() }
            }
            Self::Keys => {
                let Some(sizes) = fresh else { return Decision::Read };
                let entry = |(key, (bytes, version)): (&String, &(usize, String))| json!({"key": key, "version": version, "bytes": bytes});
                Decision::Reply(sizes.by_key.iter().map(entry).collect::<serde_json::Value>().to_string())
            }
        }
    }
}

fn read_key(function: &str, argument: Option<&str>) -> Result<String, Refusal> {
    let refused = || Refusal::Key(function.to_owned());
    let text = argument.ok_or_else(refused)?;
    // An escaped character takes at most six times its bytes.
    if text.len() > 6 * MAX_STATE_KEY_BYTES + 2 {
        return Err(if text.starts_with('"') { Refusal::LongKey(text.len()) } else { refused() });
    }
    let key: String = serde_json::from_str(text).map_err(|_| refused())?;
    if key.is_empty() || key.chars().any(char::is_control) {
        return Err(refused());
    }
    if key.len() > MAX_STATE_KEY_BYTES { Err(Refusal::LongKey(key.len())) } else { Ok(key) }
}

fn read_options(argument: Option<&str>) -> Result<Option<ExpectedVersion>, Refusal> {
    let Some(text) = argument else { return Ok(None) };
    if text.len() > MAX_OPTIONS_BYTES {
        return Err(Refusal::Options);
    }
    let options: Option<WriteOptions> = serde_json::from_str(text).map_err(|_| Refusal::Options)?;
    let expected = |version: Option<String>| version.map_or(ExpectedVersion::Absent, ExpectedVersion::Version);
    Ok(options.unwrap_or_default().if_version.map(expected))
}

#[cfg(test)]
mod tests;
