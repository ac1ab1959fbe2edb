//! Caches the result of connecting to a server for later commands that do not connect.

use std::path::Path;
use std::sync::Arc;

use executor::ToolSource;
use executor::clock::now_ms;

use super::cache::CatalogFile;
use super::listing::Listing;
use super::status::LastFailure;
use crate::client::{ConnectError, Server, ServerSpec};

/// Stores the listing or the failure of a connection. Errors are ignored: without the cache, the next command connects
/// to the server itself.
pub fn remember(folder: &Path, spec: &ServerSpec, met: &Result<Arc<Server>, ConnectError>) {
    let file = CatalogFile::of(folder, spec);
    match met {
        Ok(server) => {
            let (tools, left_out) = (server.tools(), server.left_out());
            drop(file.write(&Listing { tools, left_out, listed_at: now_ms(), remembered: false }));
            file.forget_trouble();
        }
        Err(error) => drop(file.write_trouble(&LastFailure::new(error.why.to_string()))),
    }
}
