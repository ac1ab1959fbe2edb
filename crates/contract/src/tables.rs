//! A catalog's tables as they are sent to a worker: texts under string keys.
//!
//! The guest prelude defines the keys: `all`, `tools`, `tool/<name>`, `mcp`, `mcp/<server>`, `namespaces`,
//! `namespace/<name>`, `api`, `api/<path>`. Tool Search cells have only `namespaces` and `namespace/openclaw`.
//!
//! The worker reads `alias/<server>/<name>` and `fold/<server>/<folded name>` for the guest: other spellings of a server's
//! tools, and of servers themselves if `<server>` is empty.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ids::CatalogHash;

/// Encoded tables and their hash. Equal tables have equal bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogTables {
    hash: CatalogHash,
    bytes: Arc<[u8]>,
}

impl CatalogTables {
    pub fn new(entries: &BTreeMap<String, String>) -> Self {
        let mut bytes = Vec::new();
        for (key, value) in entries {
            for field in [key, value] {
                bytes.extend_from_slice(&u32::try_from(field.len()).unwrap_or(u32::MAX).to_le_bytes());
                bytes.extend_from_slice(field.as_bytes());
            }
        }
        Self::from_bytes(bytes)
    }

    /// Wraps tables that were encoded earlier. Their contents are not checked.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self { hash: CatalogHash::of(&bytes), bytes: bytes.into() }
    }

    pub fn hash(&self) -> CatalogHash {
        self.hash
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn shared(&self) -> Arc<[u8]> {
        Arc::clone(&self.bytes)
    }
}
