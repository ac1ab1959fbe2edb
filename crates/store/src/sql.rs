//! Parts of SQL statements, and the classification of SQL errors.

/// The most rows per statement, far below SQLite's limit of 32,766 parameters.
pub(crate) const ROWS_A_STATEMENT: usize = 64;

/// Returns the placeholders of several rows: `($1, $2), ($3, $4)`.
pub(crate) fn places(rows: usize, columns: usize) -> String {
    let row = |row: usize| {
        let places: Vec<String> = (1..=columns).map(|column| format!("${}", row * columns + column)).collect();
        format!("({})", places.join(", "))
    };
    (0..rows).map(row).collect::<Vec<_>>().join(", ")
}

/// Returns the placeholders of a list: `$3, $4, $5`.
pub(crate) fn list(first: usize, count: usize) -> String {
    let places: Vec<String> = (first..first + count).map(|place| format!("${place}")).collect();
    places.join(", ")
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

#[cfg(test)]
mod tests {
    #[test]
    fn placeholders_are_numbered_across_all_rows() {
        assert_eq!(super::places(2, 3), "($1, $2, $3), ($4, $5, $6)");
    }
}
