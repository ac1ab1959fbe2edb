//! Reloads the configuration while a server runs.
//!
//! The files are polled: there are few of them, they may be on file systems without notifications, and editors replace
//! them in many ways. A file is compared by identity, size and times, and read only if these have changed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ::tools::plugins::Plugins;
use client_config::display::for_shell;
use client_config::{ConfigError, LoadedConfig, Places, Problem, ServerEntry, display};
use mcp::Upstream;
use mcp::server::{CallPolicy, OfferedSources};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::{AbortHandle, spawn_blocking};
use tokio::time::sleep;

use super::arguments::ApprovalArguments;
use crate::local_tools::{Local, ReloadedTools, plugin_folder, reloaded};
use crate::policy::{self, BadSettings};
use crate::upstream::Servers;

/// How often the files are compared.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// How long a changed file must stay the same before it is read: editors write in several steps.
const SETTLE_TIME: Duration = Duration::from_millis(300);

/// How often a file that keeps changing is compared again before it is read anyway.
const MAX_SETTLE_ROUNDS: usize = 10;

/// How long calls in progress on a server that is removed may take to finish.
const REMOVAL_PATIENCE: Duration = Duration::from_secs(60);

/// What tells one version of a file from another; `None` if there is no regular file.
type Stamp = Option<(u64, u64, u64, i64, i64, i64, i64)>;

/// The servers that are offered now, and the task that offers them.
#[derive(Clone)]
pub(super) struct OfferedServers {
    inner: Arc<Mutex<OfferState>>,
    offer: watch::Sender<OfferedSources>,
}

/// The servers and plugins, and the tasks that offer and watch them.
struct OfferState {
    servers: Servers,
    plugins: Plugins,
    offering: AbortHandle,
    watching: AbortHandle,
}

impl OfferedServers {
    /// Starts offering the servers. The plugins are offered already.
    pub(super) fn start(servers: Servers, plugins: Plugins, offer: watch::Sender<OfferedSources>) -> Self {
        let offering = tokio::spawn(servers.clone().offer(offer.clone())).abort_handle();
        let watching = tokio::spawn(announce_scopes(plugins.clone(), offer.clone())).abort_handle();
        Self { inner: Arc::new(Mutex::new(OfferState { servers, plugins, offering, watching })), offer }
    }

    /// Returns the plugins that are offered now.
    fn plugins(&self) -> Plugins {
        self.inner.lock().plugins.clone()
    }

    /// Offers the servers of a changed configuration instead, with a changed policy and local tools if they are given.
    /// Returns the servers that are no longer offered.
    fn replace(&self, loaded: &LoadedConfig, policy: Option<CallPolicy>, local: Option<Local>) -> Vec<Arc<Upstream>> {
        let mut current = self.inner.lock();
        let (servers, removed) = current.servers.reconfigured(loaded);
        current.offering.abort();
        // Both in one step: no run starts with the new servers and the former policy.
        self.offer.send_modify(|offered| {
            offered.sources = servers.sources();
            if let Some(policy) = policy {
                offered.policy = Some(Arc::new(policy));
            }
            if let Some(local) = &local {
                offered.local = local.tools.clone();
            }
        });
        if let Some(local) = local {
            current.watching.abort();
            current.watching = tokio::spawn(announce_scopes(local.plugins.clone(), self.offer.clone())).abort_handle();
            current.plugins = local.plugins;
        }
        current.offering = tokio::spawn(servers.clone().offer(self.offer.clone())).abort_handle();
        current.servers = servers;
        removed
    }

    /// Records whether the configuration is invalid, and why.
    fn set_invalid(&self, why: Option<Arc<str>>) {
        self.offer.send_if_modified(|offered| {
            let is_new = offered.invalid != why;
            offered.invalid = why;
            is_new
        });
    }

    /// Stops all servers and plugins.
    pub(super) async fn stop(&self) {
        let (servers, plugins) = {
            let current = self.inner.lock();
            (current.servers.clone(), current.plugins.clone())
        };
        // The client ends this process when it likes, and often before the first download is complete.
        servers.leave_downloads();
        tokio::join!(servers.stop(), plugins.stop());
    }
}

/// Offers the tools again whenever a plugin has created the scope of a namespace, until the receiver is dropped.
async fn announce_scopes(plugins: Plugins, offer: watch::Sender<OfferedSources>) {
    let Some(mut changes) = plugins.scope_changes() else { return };
    // Scopes that were created before must be noticed too.
    offer.send_modify(|_| {});
    loop {
        tokio::select! {
            () = changes.next() => offer.send_modify(|_| {}),
            () = offer.closed() => return,
        }
    }
}

/// What the reloader knows of the running process.
pub(super) struct Reloader {
    pub(super) places: Places,
    pub(super) loaded: LoadedConfig,
    /// The state folder, which has the installed plugins.
    pub(super) state_folder: PathBuf,
    pub(super) current: OfferedServers,
    pub(super) approvals: ApprovalArguments,
    /// The largest memory limit that the workers were started for.
    pub(super) memory_limit_bytes: u64,
    /// The sections of the configuration that are read only at the start.
    pub(super) fixed: &'static [&'static str],
}

#[derive(Debug, thiserror::Error)]
enum ReloadError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Settings(#[from] BadSettings),
    #[error("{0}")]
    Local(String),
}

impl Reloader {
    /// Watches the files until the task is aborted.
    pub(super) async fn watch(mut self) {
        if let Some(pipe) = self.places.named_files().iter().find(|path| is_special(path)) {
            // A pipe could not be read a second time.
            tracing::info!(file = %pipe.display(), "the configuration is not reloaded: it is not a regular file");
            return;
        }
        let mut seen = stamps(self.watched()).await;
        // The files may have changed since they were read at the start.
        self.reload().await;
        loop {
            // Another configuration may have other files. A change since they were read is noticed in this round: the
            // stamps of files that were watched before are those from before the reading.
            seen = merged(seen, &self.watched()).await;
            sleep(POLL_INTERVAL).await;
            let now = stamps(self.watched()).await;
            if now != seen {
                seen = settled(&self.watched(), now).await;
                self.reload().await;
            }
        }
    }

    /// Returns the files whose changes are noticed: those of the configuration, and the list of installed plugins.
    fn watched(&self) -> Vec<PathBuf> {
        let mut files = self.loaded.watched.clone();
        files.push(plugin_folder(&self.state_folder).index_file());
        files
    }

    async fn reload(&mut self) {
        let places = self.places.clone();
        // The blocking task fails only at shutdown.
        let Ok(loaded) = spawn_blocking(move || client_config::load(&places)).await else { return };
        match loaded.map_err(ReloadError::from).and_then(|loaded| self.apply(loaded)) {
            Ok(()) => self.current.set_invalid(None),
            Err(error) => {
                let why = telemetry::error_chain(&error);
                tracing::warn!(
                    error = why,
                    "the changed configuration is invalid, so no cell is started; suspended ones continue with the \
                     former configuration"
                );
                self.current.set_invalid(Some(why.into()));
            }
        }
    }

    /// Replaces the servers and the policy. Nothing changes if the settings are invalid.
    fn apply(&mut self, loaded: LoadedConfig) -> Result<(), ReloadError> {
        let policy = policy::read(&loaded.settings)?;
        report_new_problems(&self.loaded.problems, &loaded.problems);
        let unused = |settings: &Value| policy::unused_notice(settings, &check_command(&self.places));
        if let Some(notice) = unused(&loaded.settings).filter(|now| Some(now) != unused(&self.loaded.settings).as_ref())
        {
            tracing::warn!("{notice}");
        }
        let is_new_policy = policy_sections(&self.loaded.settings) != policy_sections(&loaded.settings);
        let largest = policy.config.largest_memory_limit();
        let former = self.current.plugins();
        let ReloadedTools { local, retired, problems } =
            reloaded(&policy, &loaded.settings, (&self.places, Some(&self.state_folder)), &former)
                .map_err(ReloadError::Local)?;
        let is_new_local = !local.plugins.are_same(&former);
        let policy = CallPolicy {
            config: policy.config,
            approval_policy: self.approvals.apply_to(policy.asking),
            exempt: policy.pass,
        };
        let is_refused = is_new_policy && largest > self.memory_limit_bytes;
        let policy = match is_new_policy {
            true if is_refused => {
                tracing::warn!(
                    limit = self.memory_limit_bytes,
                    "`memoryLimitBytes` is higher than when this process was started, so changed settings are not \
                     applied; restart it to apply them"
                );
                None
            }
            true => Some(policy),
            false => None,
        };
        // Local tools without the policy that was written with them could be more than the user allows.
        let local = ((policy.is_some() || is_new_local) && !is_refused).then_some(local);
        let retired = if local.is_some() { retired } else { Vec::new() };
        if is_new_local {
            problems.iter().for_each(|problem| tracing::warn!(problem, "a plugin cannot be used"));
        }
        for key in self.fixed {
            if section(&self.loaded.settings, key) != section(&loaded.settings, key) {
                tracing::warn!("a change of `{key}` is applied when this process is restarted");
            }
        }
        let changes = Changes::between(&self.loaded.servers, &loaded.servers);
        // Models read why a server cannot be used, so a changed problem is a change.
        if policy.is_some() || local.is_some() || !changes.is_empty() || self.loaded.problems != loaded.problems {
            tracing::info!(
                added = changes.added.join(", "),
                changed = changes.changed.join(", "),
                removed = changes.removed.join(", "),
                policy = policy.is_some(),
                plugins = is_new_local,
                "the configuration was reloaded"
            );
            for server in self.current.replace(&loaded, policy, local) {
                tokio::spawn(async move { server.remove(REMOVAL_PATIENCE).await });
            }
            for plugin in retired {
                tracing::info!(plugin = plugin.id(), "stopping a plugin that was disabled, removed or replaced");
                tokio::spawn(async move { plugin.retire().await });
            }
        }
        self.loaded = loaded;
        Ok(())
    }
}

/// Returns the command that checks the configuration at these places.
pub(super) fn check_command(places: &Places) -> String {
    let named = places.named_files().into_iter().map(|file| format!(" {}", for_shell(&display::path(&file))));
    format!("cellmate config check{}", named.collect::<String>())
}

fn section<'s>(settings: &'s Value, key: &str) -> Option<&'s Value> {
    settings.get(key).filter(|value| !value.is_null())
}

fn policy_sections(settings: &Value) -> [Option<&Value>; 3] {
    ["tools", "agents", "approvals"].map(|key| section(settings, key))
}

/// Logs problems that the former configuration did not have.
fn report_new_problems(before: &[Problem], now: &[Problem]) {
    for problem in now.iter().filter(|problem| !before.contains(problem)) {
        tracing::warn!(%problem, "part of the configuration cannot be used");
    }
}

/// The names of the enabled servers that differ between two configurations.
#[derive(Debug, Default, PartialEq, Eq)]
struct Changes {
    added: Vec<String>,
    changed: Vec<String>,
    removed: Vec<String>,
}

impl Changes {
    fn between(before: &[ServerEntry], now: &[ServerEntry]) -> Self {
        let find = |servers: &[ServerEntry], name: &str| {
            servers.iter().find(|server| server.enabled && server.name == name).cloned()
        };
        let mut changes = Self::default();
        for server in now.iter().filter(|server| server.enabled) {
            match find(before, &server.name) {
                None => changes.added.push(server.name.clone()),
                Some(before) if is_same(&before, server) => {}
                Some(_) => changes.changed.push(server.name.clone()),
            }
        }
        let gone = before.iter().filter(|server| server.enabled && find(now, &server.name).is_none());
        changes.removed = gone.map(|server| server.name.clone()).collect();
        changes
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Whether two entries are the same server with the same tools: their places in the files do not count.
fn is_same(one: &ServerEntry, other: &ServerEntry) -> bool {
    one.spec() == other.spec() && one.only_tools == other.only_tools && one.without_tools == other.without_tools
}

fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| !found.is_file())
}

fn stamp(path: &Path) -> Stamp {
    let found = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let times = (found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec());
    Some((found.dev(), found.ino(), found.size(), times.0, times.1, times.2, times.3))
}

async fn stamps(paths: Vec<PathBuf>) -> Vec<(PathBuf, Stamp)> {
    let read = move || paths.into_iter().map(|path| (path.clone(), stamp(&path))).collect();
    // The blocking task fails only at shutdown.
    spawn_blocking(read).await.unwrap_or_default()
}

/// Waits until the files stay the same for a moment, and returns their stamps.
async fn settled(paths: &[PathBuf], mut seen: Vec<(PathBuf, Stamp)>) -> Vec<(PathBuf, Stamp)> {
    for _ in 0..MAX_SETTLE_ROUNDS {
        sleep(SETTLE_TIME).await;
        let now = stamps(paths.to_vec()).await;
        if now == seen {
            return now;
        }
        seen = now;
    }
    seen
}

/// Returns the stamps of these files: the known ones, and fresh ones of files that were not watched before.
async fn merged(known: Vec<(PathBuf, Stamp)>, paths: &[PathBuf]) -> Vec<(PathBuf, Stamp)> {
    let fresh = stamps(paths.to_vec()).await;
    let kept = |path: &PathBuf| known.iter().find(|(one, _)| one == path).map(|(_, stamp)| *stamp);
    fresh.into_iter().map(|(path, stamp)| (path.clone(), kept(&path).unwrap_or(stamp))).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use client_config::{Origin, ServerEntry, Source};
    use mcp::Transport;

    use super::{Changes, stamp};

    fn server(name: &str, command: &str, line: usize) -> ServerEntry {
        ServerEntry {
            name: name.to_owned(),
            transport: Transport::Stdio {
                command: command.to_owned(),
                args: Vec::new(),
                env: BTreeMap::new(),
                cwd: None,
            },
            enabled: true,
            trusted: false,
            only_tools: None,
            without_tools: Vec::new(),
            startup: None,
            call: None,
            origin: Origin { file: PathBuf::from("/none"), line, source: Source::User },
            shown: command.to_owned(),
        }
    }

    #[test]
    fn changes_name_servers_that_were_added_changed_removed_and_switched_off() {
        let before = [server("same", "a", 1), server("other", "a", 2), server("gone", "a", 3), server("off", "a", 4)];
        let off = ServerEntry { enabled: false, ..server("off", "a", 9) };
        let narrowed = ServerEntry { without_tools: vec!["x".to_owned()], ..server("other", "a", 2) };
        let changes = Changes::between(&before, &[server("same", "a", 7), narrowed, server("new", "a", 8), off]);
        assert_eq!((changes.added, changes.changed), (vec!["new".to_owned()], vec!["other".to_owned()]));
        assert_eq!(changes.removed, ["gone", "off"]);
        assert!(Changes::between(&before, &before).is_empty());
    }

    #[test]
    fn a_stamp_changes_with_the_content_and_ignores_what_is_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.json5");
        assert_eq!(stamp(&file), None);
        std::fs::write(&file, "{}").unwrap();
        let first = stamp(&file);
        assert!(first.is_some() && stamp(&file) == first);
        // The same size, and by rename, as editors replace files.
        let other = folder.path().join("other");
        std::fs::write(&other, "[]").unwrap();
        std::fs::rename(&other, &file).unwrap();
        assert_ne!(stamp(&file), first);
        assert_eq!(stamp(folder.path()), None);
    }
}
