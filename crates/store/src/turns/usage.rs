//! What models were used for: turns and tokens per day, principal, agent, session and model.

use contract::limits::MODEL_USAGE_DAYS;
use sqlx::Row;

use super::HeldTurn;
use crate::Millis;
use crate::backend::{Backend, Durability};
use crate::error::StoreError;
use crate::statement::Statement;

const DAY_MS: i64 = 24 * 3_600 * 1_000;

/// A request to a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelUse {
    /// The model's name, with its provider.
    pub model: String,
    /// Whether it is the first request of its turn, with which the turn is counted.
    pub is_first: bool,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_tokens: u64,
    pub cache_write_tokens: u64,
}

/// By what usage is summed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageGroup {
    Day,
    Agent,
    Session,
    Model,
}

impl UsageGroup {
    /// Returns an expression for the group's key, as text that sorts in order.
    fn key(self) -> &'static str {
        match self {
            // Days since 1970 have five digits until the year 2243.
            Self::Day => "CAST(day AS TEXT)",
            Self::Agent => "agent_id",
            Self::Session => "session_id",
            Self::Model => "model",
        }
    }
}

/// Which usage is summed up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageFilter {
    pub principal: Option<String>,
    pub agent: Option<String>,
    pub session: Option<String>,
    /// Usage before this time is left out, in whole days.
    pub since: Millis,
    /// Only groups whose keys come after this one.
    pub after: Option<String>,
}

/// The usage of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageTotals {
    /// The number of the day since 1970, or an id or name.
    pub key: String,
    pub turns: u64,
    pub calls: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_tokens: u64,
    pub cache_write_tokens: u64,
}

/// Adds a request to a model to the usage of its day.
pub(super) fn add<'a>(held: &'a HeldTurn, model_use: &'a ModelUse, now: Millis) -> Statement<'a> {
    // Numbers come from providers, and sums of them must stay in range.
    let tokens = |number: u64| i64::try_from(number.min(1 << 40)).unwrap_or(0);
    Statement::new(
        "INSERT INTO model_usage (day, principal, agent_id, session_id, model, turns, calls, input_tokens, \
         output_tokens, cache_read_tokens, cache_write_tokens) VALUES ($1, $2, $3, $4, $5, $6, 1, $7, $8, $9, $10) \
         ON CONFLICT (day, principal, agent_id, session_id, model) DO UPDATE SET \
         turns = model_usage.turns + excluded.turns, calls = model_usage.calls + 1, \
         input_tokens = model_usage.input_tokens + excluded.input_tokens, \
         output_tokens = model_usage.output_tokens + excluded.output_tokens, \
         cache_read_tokens = model_usage.cache_read_tokens + excluded.cache_read_tokens, \
         cache_write_tokens = model_usage.cache_write_tokens + excluded.cache_write_tokens",
    )
    .bind(now.div_euclid(DAY_MS))
    .bind(held.principal.as_str())
    .bind(held.agent_id.as_str())
    .bind(held.session_id.as_str())
    .bind(model_use.model.as_str())
    .bind(i64::from(model_use.is_first))
    .bind(tokens(model_use.input_tokens))
    .bind(tokens(model_use.output_tokens))
    .bind(tokens(model_use.cache_read_tokens))
    .bind(tokens(model_use.cache_write_tokens))
}

pub(crate) async fn totals(
    backend: &Backend,
    filter: &UsageFilter,
    group: UsageGroup,
    limit: u32,
) -> Result<Vec<UsageTotals>, StoreError> {
    let key = group.key();
    let conditions =
        [("principal =", &filter.principal), ("agent_id =", &filter.agent), ("session_id =", &filter.session)];
    let mut given: Vec<(String, &String)> =
        conditions.into_iter().filter_map(|(condition, value)| Some((condition.to_owned(), value.as_ref()?))).collect();
    if let Some(after) = &filter.after {
        given.push((format!("{key} >"), after));
    }
    let more: String =
        given.iter().enumerate().map(|(place, (condition, _))| format!(" AND {condition} ${}", place + 3)).collect();
    let sums = ["turns", "calls", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"]
        .map(|column| format!("CAST(SUM({column}) AS BIGINT)"))
        .join(", ");
    let sql =
        format!("SELECT {key}, {sums} FROM model_usage WHERE day >= $1{more} GROUP BY {key} ORDER BY {key} LIMIT $2");
    let query = sqlx::query(&sql).bind(filter.since.div_euclid(DAY_MS)).bind(i64::from(limit));
    let query = given.iter().fold(query, |query, (_, value)| query.bind((*value).clone()));
    let rows = query.fetch_all(backend.reader()).await?;
    let number = |row: &sqlx::any::AnyRow, at: usize| -> Result<u64, StoreError> {
        Ok(u64::try_from(row.try_get::<i64, _>(at)?).unwrap_or(0))
    };
    let read = |row: &sqlx::any::AnyRow| {
        Ok(UsageTotals {
            key: row.try_get(0)?,
            turns: number(row, 1)?,
            calls: number(row, 2)?,
            input_tokens: number(row, 3)?,
            output_tokens: number(row, 4)?,
            cache_read_tokens: number(row, 5)?,
            cache_write_tokens: number(row, 6)?,
        })
    };
    rows.iter().map(read).collect()
}

/// Deletes the oldest day of usage, if it is too old, and returns the number of its rows.
pub(crate) async fn delete_some(backend: &Backend, now: Millis) -> Result<u64, StoreError> {
    let oldest = now.div_euclid(DAY_MS).saturating_sub(MODEL_USAGE_DAYS);
    let deleted = sqlx::query("DELETE FROM model_usage WHERE day < $1 AND day = (SELECT MIN(day) FROM model_usage)")
        .bind(oldest)
        .execute(backend.writer(Durability::Relaxed))
        .await?;
    Ok(deleted.rows_affected())
}
