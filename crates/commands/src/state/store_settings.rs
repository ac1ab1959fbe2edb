//! Which store and key file to use: from the command line, the environment or the configuration, in this order; by
//! default those in the state folder.

use std::fmt;
use std::path::PathBuf;

use clap::Args;
use client_config::{ExpansionError, Places, TOOL_LISTS, load, register_url};
use contract::config::StoreConfig;
use executor::clock::now_ms;
use serde_json::Value;
use store::{BadLocation, KeyFile, Keys, Location, Store};

use super::secret_file::{KEY_FILE_VARIABLE, places_here};
use super::{State, StateError, make_secret};

/// The environment variable that names the store. Its value is not visible in the process list, as that of `--store` is.
const STORE_VARIABLE: &str = "CELLMATE_STORE";

#[derive(Clone, Debug, Args)]
pub(crate) struct StoreArguments {
    /// Store for runs: a file, or `postgres://…`, which many machines may share; also $CELLMATE_STORE, or `store.url`
    /// in the configuration [default: `runs.db` in the state folder].
    #[arg(long, value_name = "URL", value_parser = address, global = true)]
    store: Option<Address>,
    /// File of the keys that seal suspended cells, the same on every machine that shares the store; also
    /// $CELLMATE_KEY_FILE, or `store.keyFile` in the configuration [default: `key` in the state folder].
    #[arg(long, value_name = "FILE", global = true)]
    key_file: Option<PathBuf>,
    /// Folder for this machine's state [default: `$XDG_STATE_HOME/cellmate`].
    #[arg(long, value_name = "FOLDER", global = true)]
    pub(crate) state_dir: Option<PathBuf>,
}

/// [`StoreArguments`] and `--config`, for commands that read the configuration only to find the store.
#[derive(Clone, Debug, Args)]
pub(crate) struct ConfiguredStore {
    #[command(flatten)]
    store: StoreArguments,
    /// Use this configuration file instead of the default ones; may be repeated.
    #[arg(long = "config", value_name = "FILE", global = true)]
    files: Vec<PathBuf>,
}

/// The value of `--store`, which may contain a password.
#[derive(Clone)]
struct Address(String);

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Address")
    }
}

/// Accepts any text: clap would print a rejected value, and with it the password.
fn address(text: &str) -> Result<Address, std::convert::Infallible> {
    Ok(Address(text.to_owned()))
}

/// Where the store, its keys and the state folder are. The store is not opened yet.
#[derive(Clone, Debug)]
pub(crate) struct StoreSettings {
    pub(crate) state: State,
    pub(crate) location: Location,
    pub(crate) key_file: PathBuf,
    config: StoreConfig,
}

impl ConfiguredStore {
    /// Returns where configuration files are looked for.
    pub(crate) fn places(&self) -> Places {
        places_here(&self.files)
    }

    pub(crate) fn arguments(&self) -> &StoreArguments {
        &self.store
    }

    pub(crate) fn choose(&self) -> Result<StoreSettings, StateError> {
        let places = self.places();
        self.store.choose(&load(&places)?.settings, &places)
    }
}

impl StoreArguments {
    /// Returns this machine's state folder, without creating it.
    pub(crate) fn folder(&self, places: &Places) -> Option<PathBuf> {
        self.state_dir.clone().or_else(|| places.state())
    }

    /// Returns the folder that stores each server's last tool list and last failure.
    pub(crate) fn lists(&self, places: &Places) -> Option<PathBuf> {
        Some(self.folder(places)?.join(TOOL_LISTS))
    }

    /// Whether the user named a store or a state folder on the command line.
    pub(crate) fn is_given(&self) -> bool {
        self.store.is_some() || self.state_dir.is_some()
    }

    /// Chooses the store and key file. `settings` is everything in the configuration but the servers.
    pub(crate) fn choose(&self, settings: &Value, places: &Places) -> Result<StoreSettings, StateError> {
        let state = State::open(self.state_dir.as_deref())?;
        let config = StoreConfig::resolve(settings.get("store").unwrap_or(&Value::Null)).map_err(|errors| {
            StateError::Settings(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
        })?;
        let expand =
            |text: &String| places.expand(text).map_err(|error| StateError::Settings(explain("store.keyFile", &error)));
        let given = self.store.as_ref().map(|address| address.0.clone());
        let named = given.or_else(|| places.variable(STORE_VARIABLE).map(str::to_owned));
        let location = match (named, &config.url) {
            (Some(named), _) => Location::parse(&named)?,
            (None, Some(url)) => {
                configured_location(url, places).map_err(|error| StateError::Settings(error.to_string()))?
            }
            (None, None) => Location::File(state.path("runs.db")),
        };
        if let Location::Postgres(url) = &location {
            // Its password must not reach the log, in which errors of the database are written.
            register_url(url);
        }
        let named = self.key_file.clone().or_else(|| places.variable(KEY_FILE_VARIABLE).map(PathBuf::from));
        let key_file = match (named, &config.key_file) {
            (Some(path), _) => path,
            (None, Some(path)) => places.resolve(&expand(path)?),
            (None, None) => state.path("key"),
        };
        Ok(StoreSettings { state, location, key_file, config })
    }
}

/// Why the location in `store.url` cannot be used. The message does not contain the location.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadStoreUrl {
    #[error("{}", explain("store.url", .0))]
    Unset(ExpansionError),
    #[error("`store.url`: {0}")]
    Location(BadLocation),
}

impl BadStoreUrl {
    /// Whether the location may be usable in another environment, such as that of a service.
    pub(crate) fn depends_on_environment(&self) -> bool {
        matches!(self, Self::Unset(ExpansionError::Variable(_) | ExpansionError::Input { .. }))
    }
}

/// Returns the store that `store.url` in the configuration names.
pub(crate) fn configured_location(url: &str, places: &Places) -> Result<Location, BadStoreUrl> {
    let location = Location::parse(&places.expand(url).map_err(BadStoreUrl::Unset)?).map_err(BadStoreUrl::Location)?;
    Ok(match location {
        Location::File(path) => Location::File(places.resolve(&path.display().to_string())),
        elsewhere => elsewhere,
    })
}

/// Says why a reference in a setting of `store` cannot be replaced. Unlike a server's entry, it cannot use secrets.
fn explain(setting: &str, error: &ExpansionError) -> String {
    match error {
        ExpansionError::MisplacedSecret(name) => format!(
            "`{setting}`: `${{secret:{name}}}` is not possible here, because `store` names the key that secrets are \
             sealed with; write `${{A_VARIABLE}}` and set the variable in the environment that cellmate starts in. \
             Secrets are possible in `env`, `headers`, `url` and `oauth` of a server, `apiKey` and `headers` of a \
             provider, and `env` of a plugin"
        ),
        ExpansionError::Variable(name) => format!(
            "`{setting}`: environment variable `{name}` is not set; set it in the environment that cellmate starts in"
        ),
        other => format!("`{setting}`: {other}"),
    }
}

impl StoreSettings {
    /// Opens the store with its keys; the first process creates both.
    pub(crate) async fn open(&self) -> Result<Store, StateError> {
        self.make_key()?;
        let store = self.open_with(Keys::of_file(&self.key_file)?).await?;
        store.check_keys(now_ms()).await.map_err(|error| self.failed(error))?;
        Ok(store)
    }

    /// Opens the store with the given keys, without checking them against the store.
    pub(crate) async fn open_with(&self, keys: Keys) -> Result<Store, StateError> {
        let store = Store::open(&self.location, keys).await.map_err(|error| self.failed(error))?;
        Ok(store.bounded(self.config.retention, self.config.quotas))
    }

    /// Returns the newest key, for sealing other things than cells.
    pub(crate) fn key(&self) -> Result<[u8; 32], StateError> {
        self.make_key()?;
        let keys = KeyFile::read(&self.key_file)?;
        let newest = keys.newest().ok_or_else(|| store::KeyFileError::Empty(self.key_file.clone()))?;
        Ok(newest.secret)
    }

    /// Creates the key file if it is the state folder's. A file that was named must exist: other machines may share it.
    pub(crate) fn make_key(&self) -> Result<(), StateError> {
        if self.key_file == self.state.path("key") && !self.key_file.exists() {
            make_secret(&self.key_file)?;
        }
        Ok(())
    }

    pub(crate) fn failed(&self, error: store::StoreError) -> StateError {
        StateError::Store { location: self.location.to_string(), error }
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use client_config::Places;
    use serde_json::json;
    use store::Location;

    use super::{Address, StoreArguments};

    fn places(environment: &[(&str, &str)]) -> Places {
        let owned = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Places::of(&[], PathBuf::from("/none/project"), owned.collect())
    }

    #[test]
    fn flags_win_over_the_environment_and_the_environment_over_the_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let typed = |store: Option<&str>| StoreArguments {
            store: store.map(|text| Address(text.to_owned())),
            key_file: None,
            state_dir: Some(folder.path().to_owned()),
        };
        let settings = json!({"store": {"url": "postgres://me:${PASS}@db/x", "keyFile": "~/keys"}});
        let here = places(&[("PASS", "s3cret"), ("HOME", "/home/me")]);
        let chosen = typed(None).choose(&settings, &here).unwrap();
        assert_eq!(chosen.location, Location::Postgres("postgres://me:s3cret@db/x".to_owned()));
        assert_eq!(chosen.key_file, Path::new("/home/me/keys"));
        assert!(!format!("{chosen:?}").contains("s3cret"));
        let here = places(&[("CELLMATE_STORE", "/var/runs.db"), ("CELLMATE_KEY_FILE", "/etc/key"), ("PASS", "x")]);
        let chosen = typed(None).choose(&settings, &here).unwrap();
        assert_eq!((chosen.location, chosen.key_file), (Location::File("/var/runs.db".into()), "/etc/key".into()));
        let chosen = typed(Some("/tmp/mine.db")).choose(&settings, &here).unwrap();
        assert_eq!(chosen.location, Location::File("/tmp/mine.db".into()));
        let chosen = typed(None).choose(&json!({}), &places(&[])).unwrap();
        assert_eq!(chosen.location, Location::File(folder.path().join("runs.db")));
        assert_eq!(chosen.key_file, folder.path().join("key"));
    }

    #[test]
    fn an_unusable_location_is_reported_without_its_text() {
        let folder = tempfile::tempdir().unwrap();
        let typed = StoreArguments {
            store: Some(Address("mysql://me:s3cret@db/x".to_owned())),
            key_file: None,
            state_dir: Some(folder.path().to_owned()),
        };
        let message = typed.choose(&json!({}), &places(&[])).unwrap_err().to_string();
        assert_eq!(message, "invalid store location; expected `postgres://user@host/database` or the path of a file");
        let untyped = StoreArguments { store: None, ..typed };
        let settings = json!({"store": {"url": "postgres://me:${PASS}@db/x"}});
        let message = untyped.choose(&settings, &places(&[])).unwrap_err().to_string();
        let expected = "configuration: `store.url`: environment variable `PASS` is not set; set it in the environment \
            that cellmate starts in";
        assert_eq!(message, expected);
    }
}
