//! `/api/v1/usage`: what models were used for.

use axum::Json;
use axum::extract::State;
use executor::clock::now_ms;
use serde_json::{Value, json};
use store::{PageKey, UsageFilter, UsageGroup, UsageTotals};

use super::Api;
use super::access::Viewer;
use super::error::ApiError;
use super::request::{Query, page};
use super::schema::Presence::Required;
use super::schema::{integer, object, page as page_of, text};

const DAY_MS: i64 = 24 * 3_600 * 1_000;

/// The words for what usage is summed up by.
pub(super) const GROUPS: [&str; 4] = ["day", "agent", "session", "model"];

pub(super) fn page_schema() -> Value {
    page_of(object(&[
        ("key", Required, text()),
        ("turns", Required, integer()),
        ("modelCalls", Required, integer()),
        ("inputTokens", Required, integer()),
        ("outputTokens", Required, integer()),
        ("cacheReadTokens", Required, integer()),
        ("cacheWriteTokens", Required, integer()),
    ]))
}

pub(super) async fn list(State(api): State<Api>, viewer: Viewer, query: Query) -> Result<Json<Value>, ApiError> {
    let group = match query.text("by") {
        Some("agent") => UsageGroup::Agent,
        Some("session") => UsageGroup::Session,
        Some("model") => UsageGroup::Model,
        _ => UsageGroup::Day,
    };
    let (limit, days) = (query.number("limit"), query.number("days"));
    let own = |text: Option<&str>| text.map(str::to_owned);
    let filter = UsageFilter {
        principal: own(viewer.only()),
        agent: own(query.text("agent")),
        session: own(query.text("session")),
        // Today is one of the days.
        since: now_ms().saturating_sub(i64::from(days.saturating_sub(1)).saturating_mul(DAY_MS)),
        after: query.after()?.map(|key| key.id),
    };
    let rows = api.store().model_usage(&filter, group, limit.saturating_add(1)).await?;
    let key = |row: &UsageTotals| PageKey { at: 0, id: row.key.clone() };
    let show = |row: &UsageTotals| {
        let key = match group {
            UsageGroup::Day => row.key.parse().map_or_else(|_| row.key.clone(), date),
            UsageGroup::Agent | UsageGroup::Session | UsageGroup::Model => row.key.clone(),
        };
        json!({
            "key": key, "turns": row.turns, "modelCalls": row.calls, "inputTokens": row.input_tokens,
            "outputTokens": row.output_tokens, "cacheReadTokens": row.cache_read_tokens,
            "cacheWriteTokens": row.cache_write_tokens,
        })
    };
    Ok(Json(page(rows, limit, key, show)))
}

/// Returns the date of a day, given as the number of days since 1970-01-01, in UTC.
fn date(day: i64) -> String {
    // Years begin with March here, so that a leap day is the last day of its year. An era has 400 years.
    let day = day.saturating_add(719_468);
    let (era, day_of_era) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day_of_month:02}")
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn a_day_is_shown_as_its_date() {
        let days = [(0, "1970-01-01"), (59, "1970-03-01"), (11_016, "2000-02-29"), (20_773, "2026-11-16")];
        for (day, expected) in days {
            assert_eq!(date(day), expected);
        }
        assert_eq!(date(-1), "1969-12-31");
    }
}
