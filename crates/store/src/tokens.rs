//! Named HTTP tokens. The store has only their hashes.

use serde::Serialize;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use crate::Millis;
use crate::backend::{Backend, Durability};
use crate::error::StoreError;
use crate::locking::begin_with_locks;

/// The tokens that may be in force at once. Servers keep all that are in use in memory.
pub const MAX_TOKENS: usize = 1_000;

/// The revoked and expired tokens that are kept, newest first, so that the table stays bounded.
const MAX_ENDED_TOKENS: usize = 1_000;

const COLUMNS: &str = "token_id, name, hash, scopes, created_at, expires_at, revoked_at, last_used_at";

/// A token to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewToken {
    pub token_id: String,
    /// The principal that the token authenticates.
    pub name: String,
    /// The SHA-256 of the secret, in hexadecimal.
    pub hash: String,
    /// The permissions, separated by commas.
    pub scopes: String,
    pub created_at: Millis,
    pub expires_at: Option<Millis>,
}

/// A token as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredToken {
    pub token_id: String,
    pub name: String,
    #[serde(skip)]
    pub hash: String,
    pub scopes: String,
    pub created_at: Millis,
    pub expires_at: Option<Millis>,
    pub revoked_at: Option<Millis>,
    pub last_used_at: Option<Millis>,
}

impl StoredToken {
    /// Whether the token authenticates its principal.
    pub fn is_in_force(&self, now: Millis) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|expires_at| now < expires_at)
    }
}

pub(crate) async fn create(backend: &Backend, token: &NewToken) -> Result<(), StoreError> {
    let mut transaction = begin_with_locks(backend, &["tokens"], "EXCLUSIVE").await?;
    delete_old_ended(&mut transaction, token.created_at).await?;
    let row =
        sqlx::query("SELECT COUNT(*) FROM tokens WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $1)")
            .bind(token.created_at)
            .fetch_one(&mut *transaction)
            .await?;
    if usize::try_from(row.try_get::<i64, _>(0)?).unwrap_or(usize::MAX) >= MAX_TOKENS {
        return Err(StoreError::TooManyTokens { limit: MAX_TOKENS });
    }
    sqlx::query(
        "INSERT INTO tokens (token_id, name, hash, scopes, created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6)",
    )
    .bind(token.token_id.clone())
    .bind(token.name.clone())
    .bind(token.hash.clone())
    .bind(token.scopes.clone())
    .bind(token.created_at)
    .bind(token.expires_at)
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    Ok(())
}

pub(crate) async fn all(backend: &Backend) -> Result<Vec<StoredToken>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM tokens ORDER BY name, created_at, token_id");
    let rows = sqlx::query(&sql).fetch_all(backend.reader()).await?;
    rows.iter().map(read).collect()
}

pub(crate) async fn by_hash(backend: &Backend, hash: &str) -> Result<Option<StoredToken>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM tokens WHERE hash = $1");
    let row = sqlx::query(&sql).bind(hash.to_owned()).fetch_optional(backend.reader()).await?;
    row.as_ref().map(read).transpose()
}

pub(crate) async fn revoke(backend: &Backend, token_id: &str, now: Millis) -> Result<bool, StoreError> {
    let revoked = sqlx::query("UPDATE tokens SET revoked_at = $1 WHERE token_id = $2 AND revoked_at IS NULL")
        .bind(now)
        .bind(token_id.to_owned())
        .execute(backend.writer(Durability::Synced))
        .await?;
    Ok(revoked.rows_affected() == 1)
}

pub(crate) async fn touch(backend: &Backend, token_id: &str, now: Millis) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE tokens SET last_used_at = $1 WHERE token_id = $2 AND (last_used_at IS NULL OR last_used_at < $1)",
    )
    .bind(now)
    .bind(token_id.to_owned())
    .execute(backend.writer(Durability::Relaxed))
    .await?;
    Ok(())
}

async fn delete_old_ended(connection: &mut AnyConnection, now: Millis) -> Result<(), sqlx::Error> {
    const ENDED: &str = "(revoked_at IS NOT NULL OR expires_at <= $1)";
    let sql = format!(
        "DELETE FROM tokens WHERE {ENDED} AND token_id NOT IN \
         (SELECT token_id FROM tokens WHERE {ENDED} ORDER BY created_at DESC, token_id LIMIT $2)"
    );
    let kept = i64::try_from(MAX_ENDED_TOKENS).unwrap_or(i64::MAX);
    sqlx::query(&sql).bind(now).bind(kept).execute(connection).await?;
    Ok(())
}

fn read(row: &AnyRow) -> Result<StoredToken, StoreError> {
    Ok(StoredToken {
        token_id: row.try_get(0)?,
        name: row.try_get(1)?,
        hash: row.try_get(2)?,
        scopes: row.try_get(3)?,
        created_at: row.try_get(4)?,
        expires_at: row.try_get(5)?,
        revoked_at: row.try_get(6)?,
        last_used_at: row.try_get(7)?,
    })
}
