//! Parts of SQL statements, the classification of SQL errors, and reads that are repeated.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::StoreError;

/// The most rows per statement, far below SQLite's limit of 32,766 parameters.
pub(crate) const ROWS_PER_STATEMENT: usize = 64;

/// Returns the placeholders of a `VALUES` clause with several rows: `($1, $2), ($3, $4)`.
pub(crate) fn row_placeholders(rows: usize, columns: usize) -> String {
    // Built for every commit, so without a text for each placeholder.
    let mut text = String::with_capacity(rows * columns * "$1000, ".len());
    for row in 0..rows {
        text.push_str(if row == 0 { "(" } else { "), (" });
        write_placeholders(&mut text, row * columns + 1, columns);
    }
    if rows > 0 {
        text.push(')');
    }
    text
}

fn write_placeholders(text: &mut String, first: usize, count: usize) {
    for number in first..first + count {
        text.push_str(if number == first { "$" } else { ", $" });
        text.push_str(itoa::Buffer::new().format(number));
    }
}

/// Returns consecutive placeholders for an `IN` clause: `$3, $4, $5`.
pub(crate) fn placeholders(first: usize, count: usize) -> String {
    let mut text = String::with_capacity(count * "$1000, ".len());
    write_placeholders(&mut text, first, count);
    text
}

/// Whether a retry may succeed: the server is unavailable, starting up or overloaded.
pub(crate) fn is_transient(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::PoolTimedOut | sqlx::Error::Tls(_) => true,
        sqlx::Error::Database(error) => error.code().is_some_and(|code| {
            let class = code.get(..2).unwrap_or_default();
            code.len() == SQLSTATE_LETTERS && (matches!(class, "08" | "57" | "53" | "40") || code == LOCK_NOT_AVAILABLE)
        }),
        _ => false,
    }
}

/// The length of a Postgres error code. SQLite's codes are shorter numbers; none of its errors is transient, because
/// its `busy_timeout` has already waited for the lock.
const SQLSTATE_LETTERS: usize = 5;
const LOCK_NOT_AVAILABLE: &str = "55P03";

/// How long reads and commits are repeated while the server is unavailable; longer than a server restart takes.
pub(crate) const RETRY_TIMEOUT: Duration = Duration::from_secs(4);
pub(crate) const PAUSE: Duration = Duration::from_millis(50);

/// Reads, and reads again while the server is unavailable, so that cells do not notice a restart.
pub(crate) async fn read_again<T, F>(read: impl Fn() -> F + Send) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>> + Send,
{
    read_again_since(Instant::now(), read).await
}

/// Reads, and reads again while the server is unavailable, until the time since `began` is over.
pub(crate) async fn read_again_since<T, F>(began: Instant, read: impl Fn() -> F + Send) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>> + Send,
{
    loop {
        match read().await {
            Err(StoreError::Sql(error)) if is_transient(&error) && began.elapsed() < RETRY_TIMEOUT => {
                tokio::time::sleep(PAUSE).await;
            }
            found => return found,
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn placeholders_are_numbered_across_all_rows() {
        assert_eq!(super::row_placeholders(2, 3), "($1, $2, $3), ($4, $5, $6)");
        assert_eq!(super::row_placeholders(1, 1), "($1)");
        assert_eq!(super::row_placeholders(0, 3), "");
        assert_eq!(super::placeholders(9, 3), "$9, $10, $11");
        assert_eq!(super::placeholders(1, 0), "");
    }
}
