//! Stores a login in a plain file that only its owner can read, as other command-line programs do.
//!
//! The file is not encrypted. The key would have to be stored next to it, readable by the same programs of the same
//! user, and would protect nothing; against theft of the disk, encrypt the disk.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use telemetry::{LogIgnored, Redactor};

use super::challenge::Challenge;

/// How long another process may take to renew a token.
const LOCK_WAIT: Duration = Duration::from_secs(40);
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// The number of bytes of a hash in a file name.
const SHORT_HASH_BYTES: usize = 8;

/// A longer file cannot be a token file.
const MAX_FILE_BYTES: u64 = 256 << 10;

/// The tokens that an issuer granted for one server.
#[derive(Clone, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Grant {
    pub(crate) issuer: Option<String>,
    pub(crate) client_id: String,
    pub(crate) client_secret: Option<String>,
    pub(crate) access_token: String,
    pub(crate) refresh_token: Option<String>,
    /// The expiry in seconds since 1970, or `None` if the issuer does not name one.
    pub(crate) ends_at: Option<u64>,
    pub(crate) scopes: Vec<String>,
    /// The URL of the server's resource metadata, if its challenge named one.
    #[serde(default)]
    pub(crate) metadata: Option<String>,
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant").field("issuer", &self.issuer).field("ends_at", &self.ends_at).finish_non_exhaustive()
    }
}

impl Grant {
    /// Registers the tokens, so that they are removed from the log.
    pub(crate) fn register_secrets(&self) {
        let secrets = [Some(&self.access_token), self.refresh_token.as_ref(), self.client_secret.as_ref()];
        secrets.into_iter().flatten().for_each(|secret| Redactor::global().register(secret));
    }

    pub(crate) fn ends_by(&self, at: u64) -> bool {
        self.ends_at.is_some_and(|end| end <= at)
    }
}

/// The files of one server. The file name depends on the server's name and URL: if the URL changes, a new login is
/// required, so that no token is sent to a server that it was not issued for.
#[derive(Clone, Debug)]
pub(crate) struct TokenFile {
    folder: PathBuf,
    server: String,
}

impl TokenFile {
    pub(crate) fn new(folder: PathBuf, server: &str, url: &str) -> Self {
        Self { folder, server: short_hash(&[server, url]) }
    }

    /// Reads the login. An unreadable file counts as none; a new login replaces it.
    pub(crate) fn read(&self) -> Option<Grant> {
        self.files().into_iter().find_map(|path| {
            let small = fs::metadata(&path).is_ok_and(|file| file.len() <= MAX_FILE_BYTES);
            let bytes = small.then(|| fs::read(&path).ok()).flatten()?;
            serde_json::from_slice(&bytes).ok().inspect(Grant::register_secrets)
        })
    }

    /// Stores a login and deletes the server's other ones: a login of another issuer is no longer useful.
    pub(crate) fn write(&self, grant: &Grant) -> io::Result<()> {
        let issuer = short_hash(&[grant.issuer.as_deref().unwrap_or_default()]);
        let path = self.folder.join(format!("{}-{issuer}.json", self.server));
        self.put(&path, &serde_json::to_vec(grant)?)?;
        for other in self.files().into_iter().filter(|other| *other != path) {
            fs::remove_file(other).log_ignored("delete an earlier login");
        }
        Ok(())
    }

    /// Returns the server's last login challenge.
    pub(crate) fn challenge(&self) -> Option<Challenge> {
        Challenge::read(&fs::read_to_string(self.challenge_path()).ok()?)
    }

    pub(crate) fn write_challenge(&self, challenge: &Challenge) -> io::Result<()> {
        if self.challenge().as_ref() == Some(challenge) {
            return Ok(());
        }
        self.put(&self.challenge_path(), challenge.as_str().as_bytes())
    }

    /// Deletes the stored challenge after a login or logout.
    pub(crate) fn forget_challenge(&self) {
        match fs::remove_file(self.challenge_path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed.log_ignored("delete a login challenge"),
        }
    }

    fn challenge_path(&self) -> PathBuf {
        self.folder.join(format!("{}.refusal", self.server))
    }

    /// Replaces a file atomically.
    fn put(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let part = path.with_extension(format!("{}.part", std::process::id()));
        let written =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part).and_then(|mut file| {
                file.write_all(bytes)?;
                file.sync_all()
            });
        let moved = written.and_then(|()| fs::rename(&part, path));
        if moved.is_err() {
            fs::remove_file(&part).log_expected("delete an unfinished file");
        }
        moved
    }

    /// Deletes the login. Returns whether there was one.
    pub(crate) fn remove(&self) -> bool {
        self.files().into_iter().filter(|path| fs::remove_file(path).is_ok()).count() > 0
    }

    /// Locks the login while one process renews it; other processes wait and then read the new tokens.
    pub(crate) async fn lock(&self) -> io::Result<File> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let path = self.folder.join(format!("{}.lock", self.server));
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let locked = async {
            while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                tokio::time::sleep(LOCK_PAUSE).await;
            }
        };
        tokio::time::timeout(LOCK_WAIT, locked).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
        Ok(file)
    }

    fn files(&self) -> Vec<PathBuf> {
        let ours = |name: &str| name.starts_with(&self.server) && name.ends_with(".json");
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_name().to_str().is_some_and(ours)).map(|entry| entry.path()).collect()
    }
}

pub(crate) fn now_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn short_hash(parts: &[&str]) -> String {
    let digest = Sha256::digest(parts.join("\0").as_bytes());
    hex::encode(digest.get(..SHORT_HASH_BYTES).unwrap_or(&digest))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::{Challenge, Grant, TokenFile};

    fn grant(issuer: &str, token: &str) -> Grant {
        Grant {
            issuer: Some(issuer.to_owned()),
            client_id: "us".to_owned(),
            client_secret: None,
            access_token: token.to_owned(),
            refresh_token: None,
            ends_at: Some(7),
            scopes: Vec::new(),
            metadata: None,
        }
    }

    #[test]
    fn a_login_is_readable_only_by_its_owner_and_replaces_earlier_logins() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("tokens");
        let file = TokenFile::new(inner.clone(), "s", "https://s.example/mcp");
        assert_eq!((file.read(), file.remove()), (None, false));
        file.write(&grant("https://a.example", "hunter2")).unwrap();
        assert!(!format!("{:?}", file.read()).contains("hunter2"));
        let mode = |path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let paths: Vec<_> = std::fs::read_dir(&inner).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!((paths.len(), mode(&paths[0]), mode(&inner)), (1, 0o600, 0o700));
        file.write(&grant("https://b.example", "other")).unwrap();
        assert_eq!(std::fs::read_dir(&inner).unwrap().count(), 1);
        assert_eq!(file.read(), Some(grant("https://b.example", "other")));
        for (server, url) in [("t", "https://s.example/mcp"), ("s", "https://t.example/mcp")] {
            assert_eq!(TokenFile::new(inner.clone(), server, url).read(), None);
        }
        assert_eq!((file.remove(), file.read()), (true, None));
    }

    #[test]
    fn a_challenge_is_stored_separately_and_is_not_a_login() {
        let folder = tempfile::tempdir().unwrap();
        let file = TokenFile::new(folder.path().join("tokens"), "s", "u");
        assert_eq!(file.challenge(), None);
        let challenge = Challenge::read("Bearer scope=\"a b\"").unwrap();
        file.write_challenge(&challenge).unwrap();
        assert_eq!((file.challenge(), file.read(), file.remove()), (Some(challenge), None, false));
        file.forget_challenge();
        assert_eq!(file.challenge(), None);
    }

    #[tokio::test]
    async fn only_one_holder_has_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let file = TokenFile::new(folder.path().to_owned(), "s", "u");
        let held = file.lock().await.unwrap();
        let waiting = tokio::time::timeout(std::time::Duration::from_millis(120), file.lock()).await;
        assert!(waiting.is_err());
        drop(held);
        file.lock().await.unwrap();
    }
}
