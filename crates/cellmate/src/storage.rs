//! Where runs are stored, and the key file that seals suspended cells.

use std::path::{Path, PathBuf};

use contract::config::StoreConfig;
use executor::clock::now_ms;
use store::{Keys, Location};

use crate::error::{self, Error, ErrorKind, Result};

/// Where runs are stored.
///
/// Processes that share a file or a database share its runs: each of them can resume, approve and list what another
/// one started. They need the same key file.
#[derive(Clone, Debug)]
pub struct Store {
    place: Place,
}

#[derive(Clone, Debug)]
enum Place {
    Memory,
    Keyed(Result<Location>, KeyFile),
}

impl Store {
    /// Stores runs in memory. They end with the process.
    pub fn memory() -> Self {
        Self { place: Place::Memory }
    }

    /// Stores runs in an SQLite file, which is created if it does not exist.
    pub fn file(path: impl Into<PathBuf>, key: KeyFile) -> Self {
        Self { place: Place::Keyed(Ok(Location::File(path.into())), key) }
    }

    /// Stores runs in a Postgres database: `postgres://user:password@host/database`.
    pub fn postgres(url: impl AsRef<str>, key: KeyFile) -> Self {
        let bad = |message: String| Error::new(ErrorKind::InvalidConfig, message);
        let location = match Location::parse(url.as_ref()) {
            Ok(location @ Location::Postgres(_)) => Ok(location),
            Ok(_) => Err(bad("invalid Postgres address; it starts with `postgres://`".to_owned())),
            Err(error) => Err(bad(error.to_string())),
        };
        Self { place: Place::Keyed(location, key) }
    }

    /// Opens the store and checks that the key file is the one that the store's suspended cells are sealed with.
    pub(crate) async fn open(self, config: &StoreConfig) -> Result<store::Store> {
        let (location, keys) = match self.place {
            Place::Memory => (Location::Memory, Keys::ephemeral().map_err(error::randomness)?),
            Place::Keyed(location, key) => (location?, Keys::of_file(&key.path).map_err(|error| error::key(&error))?),
        };
        let store = store::Store::open(&location, keys).await.map_err(|error| cannot_open(&location, &error))?;
        store.check_keys(now_ms()).await.map_err(|error| error::store(&error))?;
        Ok(store.bounded(config.retention, config.quotas))
    }
}

fn cannot_open(location: &Location, error: &store::StoreError) -> Error {
    Error::new(error::store(error).kind(), format!("cannot open the store at {location}: {error}"))
}

/// The file with the keys that seal suspended cells.
///
/// Without the file, no one can read or change the memory of a suspended cell in the store. Keep it out of the store's
/// backups, and give it to every process that shares the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFile {
    path: PathBuf,
}

impl KeyFile {
    /// Opens a key file, or creates one with a new key that only its owner can read (mode 0600).
    ///
    /// Fails if others can read the file.
    ///
    /// ```
    /// use cellmate::{KeyFile, Store};
    /// # let folder = tempfile::tempdir()?;
    /// # let folder = folder.path();
    /// let store = Store::file(folder.join("runs.db"), KeyFile::open(folder.join("key"))?);
    /// # Ok::<_, cellmate::Error>(())
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        store::KeyFile::create_if_missing(path, now_ms()).map_err(|error| error::key(&error))?;
        store::KeyFile::read(path).map_err(|error| error::key(&error))?;
        Ok(Self { path: path.to_owned() })
    }
}
