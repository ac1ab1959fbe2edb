//! The file of the user's secrets in the state folder: sealed with the key file, readable only by its owner.
//!
//! The file belongs to the user and this machine, as login tokens and trust records do, so `--state-dir` and
//! `--key-file`, which select a store, do not change where it is and how it is sealed.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use client_config::{Places, SecretSource, users_section};
use parking_lot::Mutex;
use store::{KeyFile, KeyFileError, MAX_SEALED_BYTES, Secrets, SecretsError};

use super::{State, StateError, lock_beside, make_secret, replace_private_file};

const FILE: &str = "secrets";

/// The environment variable that names the key file.
pub(super) const KEY_FILE_VARIABLE: &str = "CELLMATE_KEY_FILE";

/// Why the secrets cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SecretFileError {
    #[error("cannot find a folder for secrets; set HOME or XDG_STATE_HOME")]
    NoHome,
    #[error("cannot use `{path}`: {error}")]
    File { path: PathBuf, error: io::Error },
    #[error("`{0}` can be read by others; run `chmod 600` on it")]
    Exposed(PathBuf),
    #[error("`{0}` has more than {MAX_SEALED_BYTES} bytes, so it is not a file of secrets")]
    TooLong(PathBuf),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Key(#[from] KeyFileError),
    #[error(transparent)]
    Secrets(#[from] SecretsError),
}

/// Where the secrets and the keys that seal them are. Neither need exist.
#[derive(Clone, Debug)]
pub(crate) struct SecretFile {
    path: PathBuf,
    key_file: PathBuf,
}

impl SecretFile {
    pub(crate) fn of(places: &Places) -> Result<Self, SecretFileError> {
        let state = places.state().ok_or(SecretFileError::NoHome)?;
        let key_file = configured_key_file(places).unwrap_or_else(|| state.join("key"));
        Ok(Self { path: state.join(FILE), key_file })
    }

    /// Returns the path of the secrets. Unlike [`Self::of`], it does not read the configuration for the keys.
    fn path_in(places: &Places) -> Option<PathBuf> {
        Some(places.state()?.join(FILE))
    }

    /// Reads the secrets; none if there is no file yet.
    pub(crate) fn read(&self) -> Result<Secrets, SecretFileError> {
        match self.sealed()? {
            Some(sealed) => Ok(Secrets::open(&sealed, &KeyFile::read(&self.key_file)?)?),
            None => Ok(Secrets::default()),
        }
    }

    /// Changes the secrets and seals them with the newest key. Of two processes that do so at once, one waits.
    pub(crate) fn change<T>(
        &self,
        change: impl FnOnce(&mut Secrets) -> Result<T, SecretsError>,
    ) -> Result<T, SecretFileError> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let state = State::open(Some(folder))?;
        // Another key file must exist: other machines may share it.
        if self.key_file == state.path("key") && !self.key_file.exists() {
            make_secret(&self.key_file)?;
        }
        let _lock = lock_beside(&self.path).map_err(|error| self.failed(error))?;
        let mut secrets = self.read()?;
        let changed = change(&mut secrets)?;
        let sealed = secrets.seal(&KeyFile::read(&self.key_file)?)?;
        replace_private_file(&self.path, sealed).map_err(|error| self.failed(error))?;
        Ok(changed)
    }

    /// Seals the secrets with the newest key, if there are any and an older one seals them.
    pub(crate) fn reseal(&self) -> Result<(), SecretFileError> {
        let Some(sealed) = self.sealed()? else { return Ok(()) };
        let newest = KeyFile::read(&self.key_file)?.newest().map(|key| key.id);
        if Secrets::sealing_key(&sealed) == newest { Ok(()) } else { self.change(|_| Ok(())) }
    }

    /// Returns the number of the key of this key file that seals the secrets.
    pub(crate) fn sealing_key(&self, key_file: &Path) -> Option<u32> {
        let sealed = self.is_sealed_by(key_file).then(|| self.sealed().ok().flatten()).flatten()?;
        Secrets::sealing_key(&sealed)
    }

    /// Whether the keys that seal the secrets are in this file.
    pub(crate) fn is_sealed_by(&self, key_file: &Path) -> bool {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        real(&self.key_file) == real(key_file)
    }

    fn sealed(&self) -> Result<Option<Vec<u8>>, SecretFileError> {
        let file = match fs::File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.failed(error)),
        };
        let found = file.metadata().map_err(|error| self.failed(error))?;
        if found.mode() & 0o077 != 0 {
            return Err(SecretFileError::Exposed(self.path.clone()));
        }
        let mut sealed = Vec::new();
        file.take(MAX_SEALED_BYTES as u64 + 1).read_to_end(&mut sealed).map_err(|error| self.failed(error))?;
        if sealed.len() > MAX_SEALED_BYTES {
            return Err(SecretFileError::TooLong(self.path.clone()));
        }
        Ok(Some(sealed))
    }

    fn failed(&self, error: io::Error) -> SecretFileError {
        SecretFileError::File { path: self.path.clone(), error }
    }
}

/// Returns the key file that the environment or the user's own configuration names, if any.
fn configured_key_file(places: &Places) -> Option<PathBuf> {
    if let Some(path) = places.variable(KEY_FILE_VARIABLE) {
        return Some(PathBuf::from(path));
    }
    // If the configuration cannot be read, loading it reports that.
    let (_, section) = users_section(places, "store").ok()??;
    let path = section.get("keyFile")?.as_str()?;
    Some(places.resolve(&places.expand(path).ok()?))
}

/// Returns where this process looks for configuration, with the user's secrets.
pub(crate) fn places_here(files: &[PathBuf]) -> Places {
    let places = Places::here(files);
    let secrets = StoredSecrets::new(places.clone());
    places.with_secrets(Arc::new(secrets))
}

type Stamp = (u64, i64, i64, u64);

/// Returns inode, modification time and length of a file; a changed file differs in one of them.
fn stamp(path: &Path) -> Option<Stamp> {
    let found = fs::metadata(path).ok()?;
    Some((found.ino(), found.mtime(), found.mtime_nsec(), found.len()))
}

/// The secrets for `${secret:NAME}`. The file is read when the first one is needed, and again when it has changed.
struct StoredSecrets {
    /// Places without secrets.
    places: Places,
    read: Mutex<Option<(Stamp, Secrets)>>,
}

impl StoredSecrets {
    fn new(places: Places) -> Self {
        Self { places, read: Mutex::new(None) }
    }
}

impl SecretSource for StoredSecrets {
    fn secret(&self, name: &str) -> Result<Option<String>, String> {
        let path = SecretFile::path_in(&self.places).ok_or_else(|| SecretFileError::NoHome.to_string())?;
        let Some(stamp) = stamp(&path) else { return Ok(None) };
        let mut read = self.read.lock();
        if !matches!(&*read, Some((known, _)) if *known == stamp) {
            let secrets = SecretFile::of(&self.places).and_then(|file| file.read());
            *read = Some((stamp, secrets.map_err(|error| error.to_string())?));
        }
        Ok(read.as_ref().and_then(|(_, secrets)| secrets.get(name)).map(|secret| secret.value().to_owned()))
    }

    fn file(&self) -> Option<PathBuf> {
        SecretFile::path_in(&self.places)
    }
}
