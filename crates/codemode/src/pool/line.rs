//! The sending half of a worker's socket, and the catalogs that were sent on it.

use std::collections::VecDeque;
use std::io;

use contract::frame::ToWorker;
use contract::ids::CatalogHash;
use contract::limits::{MAX_WORKER_CATALOG_BYTES, MAX_WORKER_CATALOGS};
use contract::tables::CatalogTables;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::OwnedWriteHalf;

/// Sends frames to a worker. Locked while a frame and the catalog that it needs are sent.
#[derive(Debug)]
pub(super) struct WorkerSender {
    socket: OwnedWriteHalf,
    sent: SentCatalogs,
}

impl WorkerSender {
    pub(super) fn new(socket: OwnedWriteHalf) -> Self {
        Self { socket, sent: SentCatalogs::default() }
    }

    /// Returns the bytes to send so that the worker has these tables when it reads the frame.
    pub(super) fn with_catalog(&mut self, tables: &CatalogTables, frame: &ToWorker) -> Vec<u8> {
        let mut bytes = Vec::new();
        for forgotten in self.sent.make_room(tables) {
            bytes.extend(ToWorker::Forget { hash: forgotten }.encode());
        }
        if self.sent.put(tables) {
            let catalog = ToWorker::Catalog { hash: tables.hash(), tables: tables.bytes().to_vec() };
            bytes.extend(catalog.encode());
        }
        bytes.extend(frame.encode());
        bytes
    }

    /// Writes as much as the socket accepts without waiting, and returns the number of bytes written.
    pub(super) fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        match self.socket.try_write(bytes) {
            Ok(written) => Ok(written),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn send_rest(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.socket.write_all(bytes).await
    }
}

/// The catalogs that the worker has, the last used at the back. The worker has the same limits and treats exceeding
/// them as a violation of the protocol, so they are enforced here.
#[derive(Debug, Default)]
struct SentCatalogs {
    held: VecDeque<(CatalogHash, usize)>,
    bytes: usize,
}

impl SentCatalogs {
    /// Marks the tables as used. Returns whether they are new to the worker.
    fn put(&mut self, tables: &CatalogTables) -> bool {
        let known = self.held.iter().position(|(hash, _)| *hash == tables.hash());
        match known.and_then(|position| self.held.remove(position)) {
            Some(entry) => {
                self.held.push_back(entry);
                false
            }
            None => {
                self.bytes += tables.bytes().len();
                self.held.push_back((tables.hash(), tables.bytes().len()));
                true
            }
        }
    }

    /// Removes the least recently used catalogs until the tables fit, and returns them.
    fn make_room(&mut self, tables: &CatalogTables) -> Vec<CatalogHash> {
        let mut forgotten = Vec::new();
        if self.held.iter().any(|(hash, _)| *hash == tables.hash()) {
            return forgotten;
        }
        while self.held.len() >= MAX_WORKER_CATALOGS || self.bytes + tables.bytes().len() > MAX_WORKER_CATALOG_BYTES {
            let Some((hash, bytes)) = self.held.pop_front() else { break };
            self.bytes -= bytes;
            forgotten.push(hash);
        }
        forgotten
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use contract::limits::MAX_WORKER_CATALOGS;
    use contract::tables::CatalogTables;

    use super::SentCatalogs;

    fn tables(number: usize) -> CatalogTables {
        CatalogTables::new(&BTreeMap::from([("all".to_owned(), number.to_string())]))
    }

    #[test]
    fn the_least_recently_used_catalog_is_forgotten_first() {
        let mut sent = SentCatalogs::default();
        for number in 0..MAX_WORKER_CATALOGS {
            assert!(sent.make_room(&tables(number)).is_empty());
            assert!(sent.put(&tables(number)));
        }
        assert!(!sent.put(&tables(0)));
        assert_eq!(sent.make_room(&tables(999)), [tables(1).hash()]);
        assert!(sent.put(&tables(999)));
        assert!(sent.make_room(&tables(0)).is_empty());
    }
}
