//! The store section of `cellmate doctor`, and the clock skew that `cellmate mcp` warns about.

use std::time::Instant;

use client_config::display;
use executor::clock::now_ms;
use serde_json::{Value, json};
use store::{KeyFile, StoreProbe};

use super::{ConfiguredStore, StateError, StoreSettings};

/// The largest clock difference from the database server that is safe: a lease lasts 3 s and is renewed every second,
/// so machines that differ by more do not agree on when a lease expires.
pub(crate) const MAX_SKEW_MS: i64 = 1_000;

/// The result of checking the store, as a line of text and as JSON.
#[derive(Debug)]
pub(crate) struct StoreCheck {
    pub(crate) text: String,
    pub(crate) json: Value,
    pub(crate) is_ok: bool,
}

pub(crate) async fn check_store(store: &ConfiguredStore) -> StoreCheck {
    let settings = match store.choose() {
        Ok(settings) => settings,
        Err(error) => {
            let text = error.to_string();
            return StoreCheck { json: json!({"error": text}), text, is_ok: false };
        }
    };
    let location = settings.location.to_string();
    match probe(&settings).await {
        Ok((state, skew, is_ok)) => StoreCheck {
            text: format!("{location}: {state}"),
            json: json!({"location": location, "state": state, "clockSkewMs": skew}),
            is_ok,
        },
        Err(error) => {
            let text = error.to_string();
            StoreCheck { json: json!({"location": location, "error": text}), text, is_ok: false }
        }
    }
}

/// Returns the store's state in words, the clock skew if it is on a server, and whether the store can be used.
async fn probe(settings: &StoreSettings) -> Result<(String, Option<i64>, bool), StateError> {
    let began = (Instant::now(), now_ms());
    let probe = StoreProbe::at(&settings.location).await.map_err(|error| settings.failed(error))?;
    let took = began.0.elapsed().as_millis();
    let skew = probe.clock.map(|clock| skew(clock, began.1, now_ms()));
    let (state, is_ok) = match probe.schema {
        None => ("does not exist yet; created on first use".to_owned(), true),
        Some(schema) if schema > probe.known_schema => {
            let known = probe.known_schema;
            (format!("written by a newer version of cellmate (schema {schema}, this version supports {known})"), false)
        }
        Some(schema) if schema < probe.known_schema => {
            (format!("answers in {took} ms; schema {schema}, migrated to {} on next use", probe.known_schema), true)
        }
        Some(schema) => (format!("answers in {took} ms; schema {schema}"), true),
    };
    let (state, is_ok) = match missing_key(settings, probe.newest_key) {
        Some(id) => {
            let file = display::path(&settings.key_file);
            (format!("{state}; {file} lacks key {id}, its newest; copy the newest key file to this machine"), false)
        }
        None => (state, is_ok),
    };
    match skew.filter(|skew| skew.abs() > MAX_SKEW_MS) {
        Some(skew) => Ok((format!("{state}; {}", skew_warning(skew)), Some(skew), false)),
        None => Ok((state, skew, is_ok)),
    }
}

/// Returns the newest key of the store if the key file has only older ones, as after a rotation on another machine.
fn missing_key(settings: &StoreSettings, newest: Option<i64>) -> Option<i64> {
    let file = KeyFile::read(&settings.key_file).ok()?;
    let own = file.newest().map(|key| i64::from(key.id))?;
    newest.filter(|newest| own < *newest)
}

/// Returns the least that the server's clock is ahead of this machine's, negative if it is behind.
///
/// The server read its clock at some time between `asked` and `answered`, so a value in between counts as no skew.
pub(crate) fn skew(server: i64, asked: i64, answered: i64) -> i64 {
    if server > answered {
        server - answered
    } else if server < asked {
        server - asked
    } else {
        0
    }
}

pub(crate) fn skew_warning(skew: i64) -> String {
    let word = if skew > 0 { "behind" } else { "ahead of" };
    format!(
        "this machine's clock is {} ms {word} the database server's; correct it, or runs are taken over too soon",
        skew.abs()
    )
}

#[cfg(test)]
mod tests {
    use super::skew;

    #[test]
    fn clock_skew_is_reported_only_beyond_the_round_trip_time() {
        assert_eq!(skew(150, 100, 200), 0);
        assert_eq!(skew(250, 100, 200), 50);
        assert_eq!(skew(40, 100, 200), -60);
    }
}
