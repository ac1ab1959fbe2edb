//! Backs up a whole store into one file, and restores it. A backup of one engine can be restored into the other.

mod format;
pub(crate) mod restore;

use std::io::{self, Write};

use futures_util::TryStreamExt;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Executor, Row};

use crate::backend::{Backend, Dialect};
use crate::error::StoreError;
use crate::migrations;
use format::{Column, ColumnKind, Encoder, Value};

pub use restore::{BackupSummary, RestoreOptions, check};

/// The tables in a backup: all except `usage`, which is counted again, and `schema_version`, which is the program's.
pub const TABLES: [&str; 21] = [
    "catalogs",
    "runs",
    "legs",
    "calls",
    "approvals",
    "rules",
    "outputs",
    "output_pieces",
    "session_values",
    "value_writes",
    "transcript",
    "turns",
    "turn_steps",
    "deliveries",
    "conversations",
    "responses",
    "items",
    "model_usage",
    "turn_messages",
    "tokens",
    "sealing_keys",
];

/// Why a backup cannot be written, checked or restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("cannot read the backup: {0}")]
    Read(#[source] io::Error),
    #[error("cannot write the backup: {0}")]
    Write(#[source] io::Error),
    #[error("the file is not a Cellmate backup; check its path")]
    NotABackup,
    #[error("the backup is truncated; use another backup")]
    Cut,
    #[error("the backup is damaged ({0}); use another backup")]
    Damaged(&'static str),
    #[error("the backup has an unknown format ({found}); upgrade this program")]
    Format { found: u32 },
    #[error(
        "the backup was written by a newer version of this program (schema {found}; this version supports up to {known}); upgrade this program"
    )]
    TooNew { found: i64, known: i64 },
    #[error("the store is not empty; pass `--replace` to replace its contents with the backup")]
    NotEmpty,
    #[error("the backup changed after it was checked, so nothing was restored; try again")]
    Changed,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for BackupError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// Writes a consistent backup while other processes use the store.
pub(crate) async fn write(
    backend: &Backend,
    out: &mut (dyn Write + Send),
    keys: Option<&str>,
) -> Result<u64, BackupError> {
    let mut transaction = backend.reader().begin().await?;
    if backend.dialect == Dialect::Postgres {
        transaction.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY").await?;
    }
    let row = transaction.fetch_one("SELECT version FROM schema_version").await?;
    let (found, known) = (row.try_get::<i64, _>(0)?, migrations::VERSION);
    if found > known {
        return Err(StoreError::TooNew { found, known }.into());
    }
    let mut encoder = Encoder::begin(out, found).map_err(BackupError::Write)?;
    for table in TABLES {
        let columns = columns(&mut transaction, backend.dialect, table).await?;
        encoder.table(table, &columns).map_err(BackupError::Write)?;
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        let sql = format!("SELECT {} FROM {table}", names.join(", "));
        let mut rows = sqlx::query(&sql).fetch(&mut *transaction);
        while let Some(row) = rows.try_next().await? {
            encoder.row(&values(&row, &columns)?).map_err(BackupError::Write)?;
        }
    }
    if let Some(keys) = keys {
        encoder.keys(keys).map_err(BackupError::Write)?;
    }
    encoder.end().map_err(BackupError::Write)
}

/// Returns a table's columns from the engine, so that columns added by later versions are included.
async fn columns(connection: &mut AnyConnection, dialect: Dialect, table: &str) -> Result<Vec<Column>, BackupError> {
    let sql = match dialect {
        Dialect::Sqlite => "SELECT name, type FROM pragma_table_info($1) ORDER BY cid",
        Dialect::Postgres => {
            "SELECT CAST(column_name AS TEXT), CAST(data_type AS TEXT) FROM information_schema.columns \
             WHERE table_schema = current_schema() AND table_name = $1 ORDER BY ordinal_position"
        }
    };
    let rows = sqlx::query(sql).bind(table.to_owned()).fetch_all(connection).await?;
    rows.iter()
        .map(|row| {
            let (name, kind): (String, String) = (row.try_get(0)?, row.try_get(1)?);
            let kind = match kind.to_ascii_uppercase().as_str() {
                "BIGINT" => ColumnKind::Integer,
                "TEXT" => ColumnKind::Text,
                "BLOB" | "BYTEA" => ColumnKind::Bytes,
                other => return Err(StoreError::Corrupt(format!("column `{table}.{name}` of type {other}")).into()),
            };
            Ok(Column { name, kind })
        })
        .collect()
}

fn values(row: &AnyRow, columns: &[Column]) -> Result<Vec<Value>, BackupError> {
    let value = |(position, column): (usize, &Column)| -> Result<Value, sqlx::Error> {
        Ok(match column.kind {
            ColumnKind::Integer => row.try_get::<Option<i64>, _>(position)?.map_or(Value::Null, Value::Integer),
            ColumnKind::Text => row.try_get::<Option<String>, _>(position)?.map_or(Value::Null, Value::Text),
            ColumnKind::Bytes => row.try_get::<Option<Vec<u8>>, _>(position)?.map_or(Value::Null, Value::Bytes),
        })
    };
    Ok(columns.iter().enumerate().map(value).collect::<Result<_, _>>()?)
}
