//! A catalog's tables in a worker: many short texts under string keys. Cells read them through one import; all cells of
//! the catalog share them, and none copies them.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use contract::frame::{BadFrame, Reader};
use contract::ids::CatalogHash;
use contract::limits::{MAX_CATALOG_BYTES, MAX_WORKER_CATALOG_BYTES, MAX_WORKER_CATALOGS};
use contract::spelling::folded;

#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) hash: CatalogHash,
    bytes: Vec<u8>,
    index: HashMap<Box<[u8]>, Range<usize>>,
}

impl Tables {
    /// Reads `[u32 key length][key][u32 value length][value]…`, as `contract::tables` writes it.
    pub(crate) fn parse(hash: CatalogHash, bytes: Vec<u8>) -> Result<Self, BadFrame> {
        let mut index = HashMap::new();
        let mut from = Reader::new(&bytes);
        let mut at = 0;
        while at < bytes.len() {
            let key = from.bytes()?;
            let value = from.bytes()?;
            let start = at + 4 + key.len() + 4;
            at = start + value.len();
            index.insert(key.into(), start..at);
        }
        Ok(Self { hash, bytes, index })
    }

    /// Returns the position of the value of `key`, for [`Tables::slice`].
    pub(crate) fn find(&self, key: &[u8]) -> Option<Range<usize>> {
        self.index.get(key).cloned()
    }

    /// Returns the listed name for another spelling of a tool of a server, or of a server if `server` is empty: the name
    /// that the server itself uses, or one with other separators and another case, if only one name is like it.
    pub(crate) fn meant(&self, server: &str, name: &str) -> Option<String> {
        let exact = self.find(format!("alias/{server}/{name}").as_bytes());
        let found = exact.or_else(|| self.find(format!("fold/{server}/{}", folded(name)).as_bytes()))?;
        String::from_utf8(self.slice(found)?.to_vec()).ok()
    }

    pub(crate) fn slice(&self, range: Range<usize>) -> Option<&[u8]> {
        self.bytes.get(range)
    }
}

/// All catalogs of one worker, within bounds. The host decides which are kept.
#[derive(Debug, Default)]
pub(crate) struct Catalogs {
    held: Mutex<HashMap<CatalogHash, Arc<Tables>>>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum CatalogError {
    #[error("the catalog has {0} bytes, at most {MAX_CATALOG_BYTES} are allowed")]
    TooLarge(usize),
    #[error("a worker holds at most {MAX_WORKER_CATALOGS} catalogs of {MAX_WORKER_CATALOG_BYTES} bytes together")]
    Full,
    #[error(transparent)]
    Malformed(#[from] BadFrame),
}

impl Catalogs {
    pub(crate) fn keep(&self, hash: CatalogHash, bytes: Vec<u8>) -> Result<(), CatalogError> {
        if bytes.len() > MAX_CATALOG_BYTES {
            return Err(CatalogError::TooLarge(bytes.len()));
        }
        let size = bytes.len();
        let tables = Arc::new(Tables::parse(hash, bytes)?);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let total: usize = held.values().map(|tables| tables.bytes.len()).sum();
        if held.len() >= MAX_WORKER_CATALOGS || total + size > MAX_WORKER_CATALOG_BYTES {
            return Err(CatalogError::Full);
        }
        held.insert(hash, tables);
        Ok(())
    }

    pub(crate) fn forget(&self, hash: CatalogHash) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).remove(&hash);
    }

    pub(crate) fn get(&self, hash: CatalogHash) -> Option<Arc<Tables>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).get(&hash).cloned()
    }
}
