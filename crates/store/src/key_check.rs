//! Checks that this process has the keys with which the snapshots in the store are encrypted. Without the check, two
//! machines with different keys of the same number would notice only when a snapshot cannot be decrypted.

use sqlx::Row;

use crate::Millis;
use crate::backend::{Backend, Durability};
use crate::error::StoreError;
use crate::seal::key_id_bytes;

/// Selects the number of the newest key of the store. Its row is never removed.
pub(crate) const NEWEST_KEY: &str = "SELECT MAX(key_id) FROM sealing_keys";

/// Compares the fingerprint of each key with the stored one (column `mark`), and stores it if there is none. A key that
/// differs is an error if a run that can still be resumed needs the other one.
pub(crate) async fn check_keys(backend: &Backend, now: Millis) -> Result<(), StoreError> {
    let stored = stored_fingerprints(backend).await?;
    let newest = stored.iter().map(|(id, _)| *id).max();
    if let Some(newest) = newest.filter(|newest| backend.keys.fingerprints().iter().all(|(id, _)| id < newest)) {
        tracing::warn!(
            key = newest,
            "the key file lacks the newest key of the store, so cells that it sealed cannot be resumed here; copy the \
             newest key file to this machine"
        );
    }
    for (id, fingerprint) in backend.keys.fingerprints() {
        match stored.iter().find(|(known, _)| *known == id) {
            Some((_, stored)) if *stored == fingerprint => continue,
            Some(_) => {
                let cells = cells_sealed_with(backend, id, now).await?;
                if cells > 0 {
                    return Err(StoreError::OtherKey { id, cells });
                }
            }
            None => {}
        }
        sqlx::query(
            "INSERT INTO sealing_keys (key_id, mark) VALUES ($1, $2) \
             ON CONFLICT (key_id) DO UPDATE SET mark = excluded.mark",
        )
        .bind(i64::from(id))
        .bind(fingerprint)
        .execute(backend.writer(Durability::Synced))
        .await?;
    }
    Ok(())
}

pub(crate) async fn newest_key(backend: &Backend) -> Result<Option<u32>, StoreError> {
    Ok(stored_fingerprints(backend).await?.into_iter().map(|(id, _)| id).max())
}

/// Returns the number of runs that can be resumed and whose snapshot is encrypted with this key.
pub(crate) async fn cells_sealed_with(backend: &Backend, id: u32, now: Millis) -> Result<u64, StoreError> {
    let row = sqlx::query(
        "SELECT COUNT(*) FROM runs WHERE state IN ('running', 'waiting') AND expires_at > $1 \
         AND snapshot IS NOT NULL AND substr(snapshot, 2, 4) = $2",
    )
    .bind(now)
    .bind(key_id_bytes(id).to_vec())
    .fetch_one(backend.reader())
    .await?;
    Ok(u64::try_from(row.try_get::<i64, _>(0)?).unwrap_or(0))
}

async fn stored_fingerprints(backend: &Backend) -> Result<Vec<(u32, String)>, StoreError> {
    let rows = sqlx::query("SELECT key_id, mark FROM sealing_keys").fetch_all(backend.reader()).await?;
    rows.iter()
        .map(|row| {
            let id = u32::try_from(row.try_get::<i64, _>(0)?);
            Ok((id.map_err(|_| StoreError::Corrupt("invalid key number".to_owned()))?, row.try_get(1)?))
        })
        .collect()
}
