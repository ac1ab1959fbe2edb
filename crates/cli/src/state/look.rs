//! What `cellmate doctor` says of the store.

use std::time::Instant;

use executor::clock::now_ms;
use serde_json::{Value, json};
use store::StoreProbe;

use super::{ConfiguredStore, StateError, StoreSettings};

/// Machines whose clocks differ by more from the server's do not agree on whose lease is over. A lease is 3 s, and is
/// renewed every second.
pub(crate) const MAX_SKEW_MS: i64 = 1_000;

/// For a line, for JSON, and whether all is well.
pub(crate) async fn look(store: &ConfiguredStore) -> (String, Value, bool) {
    let kept = match store.choose() {
        Ok(kept) => kept,
        Err(error) => return (error.to_string(), json!({"error": error.to_string()}), false),
    };
    let place = kept.location.to_string();
    match looked(&kept).await {
        Ok((said, clock, is_well)) => {
            (format!("{place}: {said}"), json!({"location": place, "state": said, "clockSkewMs": clock}), is_well)
        }
        Err(error) => (error.to_string(), json!({"location": place, "error": error.to_string()}), false),
    }
}

async fn looked(kept: &StoreSettings) -> Result<(String, Option<i64>, bool), StateError> {
    let began = (Instant::now(), now_ms());
    let look = StoreProbe::at(&kept.location).await.map_err(|error| kept.failed(error))?;
    let took = began.0.elapsed().as_millis();
    let skew = look.clock.map(|clock| skew(clock, began.1, now_ms()));
    let (said, is_well) = match look.schema {
        None => ("not there yet; made when it is first needed".to_owned(), true),
        Some(schema) if schema > look.known_schema => {
            (format!("written by a newer program (schema {schema}, this one knows {})", look.known_schema), false)
        }
        Some(schema) if schema < look.known_schema => {
            (format!("answers in {took} ms; schema {schema} becomes {} when it is next used", look.known_schema), true)
        }
        Some(schema) => (format!("answers in {took} ms; schema {schema}"), true),
    };
    match skew.filter(|skew| skew.abs() > MAX_SKEW_MS) {
        Some(skew) => Ok((format!("{said}; {}", apart(skew)), Some(skew), false)),
        None => Ok((said, skew, is_well)),
    }
}

/// How far the server's clock is ahead of ours, for sure: it was asked at some time in between.
pub(crate) fn skew(server: i64, asked: i64, heard: i64) -> i64 {
    if server > heard {
        server - heard
    } else if server < asked {
        server - asked
    } else {
        0
    }
}

pub(crate) fn apart(skew: i64) -> String {
    let word = if skew > 0 { "behind" } else { "ahead of" };
    format!("this machine's clock is {} ms {word} the server's: set it, or runs are taken over too soon", skew.abs())
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
