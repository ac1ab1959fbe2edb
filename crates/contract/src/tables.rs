//! A catalog's tables, as a host sends them to a worker: strings under string keys.
//!
//! The guest prelude defines the keys: `all`, `tools`, `tool/<name>`, `mcp`, `mcp/<server>`, `namespaces`,
//! `namespace/<name>`, `api`, `api/<path>`. Cells of the tool `tool_search_code` have only `namespaces` and
//! `namespace/openclaw`.
//!
//! The guest cannot read `alias/<server>/<name>` and `fold/<server>/<folded name>` itself; the worker looks them up for
//! it. They are other spellings of a server's tools, or of a server's name if `<server>` is empty.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ids::CatalogHash;

/// Encoded tables and their hash. Equal tables have equal bytes: each key and each value is its length, as a
/// little-endian `u32`, and its text, in the order of the keys.
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

    pub fn shared_bytes(&self) -> Arc<[u8]> {
        Arc::clone(&self.bytes)
    }
}
