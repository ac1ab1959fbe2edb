//! The sending end of a worker's socket, and the catalogs that went down it.

use std::collections::VecDeque;
use std::io;

use contract::frame::ToWorker;
use contract::ids::CatalogHash;
use contract::limits::{MAX_WORKER_CATALOG_BYTES, MAX_WORKER_CATALOGS};
use contract::tables::CatalogTables;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::OwnedWriteHalf;

/// Held while one frame is sent, catalog first where the worker lacks it.
#[derive(Debug)]
pub(super) struct Line {
    socket: OwnedWriteHalf,
    shelf: Shelf,
}

impl Line {
    pub(super) fn new(socket: OwnedWriteHalf) -> Self {
        Self { socket, shelf: Shelf::default() }
    }

    /// The bytes to send so that the worker holds these tables when it reads the frame.
    pub(super) fn with_catalog(&mut self, tables: &CatalogTables, frame: &ToWorker) -> Vec<u8> {
        let mut bytes = Vec::new();
        for forgotten in self.shelf.make_room(tables) {
            bytes.extend(ToWorker::Forget { hash: forgotten }.encode());
        }
        if self.shelf.put(tables) {
            let catalog = ToWorker::Catalog { hash: tables.hash(), tables: tables.bytes().to_vec() };
            bytes.extend(catalog.encode());
        }
        bytes.extend(frame.encode());
        bytes
    }

    /// Writes what the socket takes at once and returns what is left.
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

/// Which catalogs the worker holds, the last used at the back. The worker has the same bounds and
/// treats going past them as madness; so they are kept here.
#[derive(Debug, Default)]
struct Shelf {
    held: VecDeque<(CatalogHash, usize)>,
    bytes: usize,
}

impl Shelf {
    /// Whether the tables are new to the worker; marks them as used.
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

    use super::Shelf;

    fn tables(number: usize) -> CatalogTables {
        CatalogTables::new(&BTreeMap::from([("all".to_owned(), number.to_string())]))
    }

    #[test]
    fn the_shelf_evicts_the_least_recently_used_tables() {
        let mut shelf = Shelf::default();
        for number in 0..MAX_WORKER_CATALOGS {
            assert!(shelf.make_room(&tables(number)).is_empty());
            assert!(shelf.put(&tables(number)));
        }
        assert!(!shelf.put(&tables(0)));
        assert_eq!(shelf.make_room(&tables(999)), [tables(1).hash()]);
        assert!(shelf.put(&tables(999)));
        assert!(shelf.make_room(&tables(0)).is_empty());
    }
}
