//! Starts a plugin when it is needed, restarts it after failures, and stops it when it is idle. `process::Lifecycle`
//! decides; this file acts.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use contract::config::PluginEntry;
use contract::limits::{MAX_PLUGIN_CONFIG_BYTES, MAX_PLUGIN_REQUESTS};
use contract::text::{line, plain};
use executor::ProgressSink;
use parking_lot::{Mutex, MutexGuard};
use process::{Action, Event, Lifecycle, MAX_FRAME_BYTES, Phase, Process, Restart, jitter};
use serde_json::{Value, json};
use telemetry::{Redactor, is_credential_name};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::connection::{Answer, CloseReason, Connection, MAX_SHOWN_CHARS, RequestError, log_end};
use super::installed::InstalledPlugin;
use super::manifest::Manifest;

/// The version of the protocol.
pub const PROTOCOL_VERSION: u64 = 1;

/// How long a plugin may take from its start to its answer to `initialize`.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest remaining back-off that a call waits for; otherwise it fails at once.
const MAX_BACKOFF_WAIT: Duration = Duration::from_secs(5);

/// How long a stop may take: asking the plugin to exit, SIGTERM and SIGKILL together.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// How much of a plugin's last standard error its status shows.
const MAX_STDERR_CHARS: usize = 500;

/// Options for running plugins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PluginOptions {
    /// How long a plugin may be idle before it is stopped. `None`: never.
    pub idle_stop: Option<Duration>,
    pub restart: Restart,
}

impl PluginOptions {
    pub const DEFAULT: Self = Self { idle_stop: Some(Duration::from_secs(10 * 60)), restart: Restart::DEFAULT };
}

type Lookup = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;
type Expander = Arc<dyn Fn(&str) -> Result<String, String> + Send + Sync>;

/// The origin of the environment variables of plugins.
#[derive(Clone)]
pub struct Variables {
    /// Returns the value of a variable of this process.
    pub inherited: Lookup,
    /// Expands the references in a configured value, such as `${secret:NAME}`, or says which one is not set.
    pub expand: Expander,
}

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Variables").finish_non_exhaustive()
    }
}

/// What is needed to start a plugin.
#[derive(Clone)]
pub(super) struct Launch {
    pub(super) installed: InstalledPlugin,
    pub(super) manifest: Arc<Manifest>,
    pub(super) settings: PluginEntry,
    pub(super) variables: Variables,
}

/// Why a plugin cannot be called. People and cells read it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    #[error("the plugin could not be started: {0}")]
    NotStarted(Arc<str>),
    #[error(
        "the plugin failed {failures} times in a row and is not started for another {seconds} s; last failure: {last}"
    )]
    NotRestarted { failures: u32, seconds: u64, last: Arc<str> },
    #[error("the plugin can be started again in {seconds} s; last failure: {last}")]
    BackingOff { seconds: u64, last: Arc<str> },
    #[error("the plugin was disabled, removed or replaced by another version; run a new cell")]
    Removed,
    #[error("the plugin was not ready in time")]
    Deadline,
}

/// The state of a plugin's process, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginStatus {
    pub state: &'static str,
    pub restarts: u64,
    pub failures: u32,
    pub last_failure: Option<String>,
    pub stderr: Option<String>,
}

type StartOutcome = watch::Receiver<Option<Result<(), Arc<str>>>>;

struct StartAttempt {
    outcome: StartOutcome,
    task: AbortHandle,
}

struct State {
    lifecycle: Lifecycle,
    /// The number of the last start. Events of an earlier start are ignored.
    number: u64,
    attempt: Option<StartAttempt>,
    connection: Option<Arc<Connection>>,
    in_flight: usize,
    last_used: Instant,
    last_failure: Option<Arc<str>>,
    last_stderr: Option<String>,
}

/// Supervises the process of one plugin.
pub(super) struct Supervisor {
    me: Weak<Self>,
    launch: Launch,
    options: PluginOptions,
    /// Locked only to read or change the state, never across an await.
    state: Mutex<State>,
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = self.state().lifecycle.phase();
        f.debug_struct("Supervisor").field("plugin", &self.id()).field("phase", &phase).finish_non_exhaustive()
    }
}

/// A running plugin. It is not stopped for idleness while this is held.
#[derive(Debug)]
pub(super) struct RunningPlugin {
    supervisor: Arc<Supervisor>,
    pub(super) connection: Arc<Connection>,
}

impl Drop for RunningPlugin {
    fn drop(&mut self) {
        let mut state = self.supervisor.state();
        state.in_flight = state.in_flight.saturating_sub(1);
        state.last_used = Instant::now();
    }
}

/// The next step of a caller that needs the plugin.
enum Step {
    Go(RunningPlugin),
    Join(StartOutcome),
    Sleep(Instant),
}

impl Supervisor {
    /// Creates the supervisor. The plugin is not started.
    pub(super) fn new(launch: Launch, options: PluginOptions) -> Arc<Self> {
        let state = State {
            lifecycle: Lifecycle::new(options.restart),
            number: 0,
            attempt: None,
            connection: None,
            in_flight: 0,
            last_used: Instant::now(),
            last_failure: None,
            last_stderr: None,
        };
        Arc::new_cyclic(|me| Self { me: me.clone(), launch, options, state: Mutex::new(state) })
    }

    pub(super) fn id(&self) -> &str {
        &self.launch.manifest.id
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(super) fn status(&self) -> PluginStatus {
        let mut state = self.state();
        self.notice_end(&mut state);
        let name = match state.lifecycle.phase() {
            Phase::Stopped => "stopped",
            Phase::Starting => "starting",
            Phase::Running { .. } => "running",
            Phase::BackingOff { .. } => "backing_off",
            Phase::Failed { .. } => "failed",
            Phase::Retired => "retired",
        };
        PluginStatus {
            state: name,
            restarts: state.lifecycle.restarts(),
            failures: state.lifecycle.failures(),
            last_failure: state.last_failure.as_deref().map(str::to_owned),
            stderr: state.last_stderr.clone(),
        }
    }

    /// Returns the running plugin, and starts it if necessary. Callers that arrive during a start share it.
    pub(super) async fn acquire(&self, deadline: Instant) -> Result<RunningPlugin, Unavailable> {
        loop {
            match self.step()? {
                Step::Go(running) => return Ok(running),
                Step::Sleep(until) if until >= deadline => return Err(Unavailable::Deadline),
                Step::Sleep(until) => sleep_until(until).await,
                Step::Join(mut outcome) => {
                    match timeout_at(deadline, outcome.wait_for(Option::is_some)).await {
                        Ok(Ok(done)) => {
                            if let Some(Err(why)) = done.as_ref() {
                                return Err(Unavailable::NotStarted(Arc::clone(why)));
                            }
                        }
                        // The sender was dropped: the start was cancelled.
                        Ok(Err(_)) => return Err(Unavailable::Removed),
                        Err(_) => return Err(Unavailable::Deadline),
                    };
                }
            }
        }
    }

    /// Makes a request, starting the plugin if necessary. The outer error means that the plugin has not seen it.
    pub(super) async fn request(
        &self,
        method: &str,
        params: Value,
        limit: Duration,
        updates: ProgressSink,
    ) -> Result<Result<Answer, RequestError>, Unavailable> {
        let deadline = Instant::now() + limit;
        let running = self.acquire(deadline).await?;
        Ok(running.connection.request(method, params, deadline, updates).await)
    }

    /// Returns the plugin's settings.
    pub(super) fn config(&self) -> &Value {
        &self.launch.settings.config
    }

    /// Returns the connection if the plugin runs.
    pub(super) fn connection(&self) -> Option<Arc<Connection>> {
        self.state().connection.clone()
    }

    fn step(&self) -> Result<Step, Unavailable> {
        let Some(me) = self.me.upgrade() else { return Err(Unavailable::Removed) };
        let mut state = self.state();
        self.notice_end(&mut state);
        match state.lifecycle.on(Event::Needed, now(), jitter()) {
            Action::Start => self.begin(&mut state),
            Action::WaitUntil(until) => return self.wait(&state, Instant::from_std(until)),
            Action::Refuse => return Err(self.refused(&state)),
            Action::Nothing | Action::Disconnect => {}
        }
        if let Some(connection) = state.connection.clone() {
            state.in_flight += 1;
            return Ok(Step::Go(RunningPlugin { supervisor: me, connection }));
        }
        state.attempt.as_ref().map(|attempt| Step::Join(attempt.outcome.clone())).ok_or(Unavailable::Removed)
    }

    /// Starts the plugin in a task of its own, so that the start continues if its caller is dropped.
    fn begin(&self, state: &mut State) {
        state.number += 1;
        let (number, me, launch) = (state.number, self.me.clone(), self.launch.clone());
        let (sender, outcome) = watch::channel(None);
        let task = tokio::spawn(async move {
            let started = launch.start().await;
            if let Some(me) = me.upgrade() {
                sender.send_replace(Some(me.on_start(number, started)));
            }
        });
        state.attempt = Some(StartAttempt { outcome, task: task.abort_handle() });
    }

    fn on_start(&self, number: u64, started: Result<Connection, StartFailure>) -> Result<(), Arc<str>> {
        let mut state = self.state();
        if state.number != number || state.lifecycle.phase() != Phase::Starting {
            return Err("it was stopped during its start".into());
        }
        state.attempt = None;
        match started {
            Ok(connection) => {
                state.lifecycle.on(Event::Started, now(), jitter());
                state.last_used = Instant::now();
                let connection = Arc::new(connection);
                state.connection = Some(Arc::clone(&connection));
                tracing::info!(plugin = self.id(), restarts = state.lifecycle.restarts(), "started a plugin");
                drop(state);
                tokio::spawn(monitor(self.me.clone(), number, connection.closed()));
                Ok(())
            }
            Err(failure) => {
                state.lifecycle.on(Event::StartFailed, now(), jitter());
                // Cells read it.
                let why: Arc<str> = Redactor::global().redact(&failure.why).as_ref().into();
                let stderr = failure.stderr.as_deref().map(|text| line(text, MAX_STDERR_CHARS));
                tracing::warn!(plugin = self.id(), reason = %why, stderr, "a plugin could not be started");
                state.last_failure = Some(Arc::clone(&why));
                state.last_stderr = failure.stderr;
                Err(why)
            }
        }
    }

    /// Handles the end of the connection, if it has ended: a call may notice it before the monitor does.
    fn notice_end(&self, state: &mut State) {
        if let Some(why) = state.connection.as_ref().and_then(|connection| connection.why_closed()) {
            let number = state.number;
            self.on_end(state, number, why);
        }
    }

    /// Handles an unexpected end of a connection. It does nothing if the connection was ended by this process or has
    /// been replaced.
    fn on_end(&self, state: &mut State, number: u64, why: CloseReason) {
        if state.number != number || state.connection.is_none() {
            return;
        }
        state.lifecycle.on(Event::Ended, now(), jitter());
        if let Some(connection) = state.connection.take() {
            let stderr = connection.stderr_tail();
            log_end(self.id(), why, &stderr);
            state.last_failure = Some(why.to_string().into());
            state.last_stderr = last_lines(&stderr);
        }
    }

    fn wait(&self, state: &State, until: Instant) -> Result<Step, Unavailable> {
        let left = until.saturating_duration_since(Instant::now());
        if left <= MAX_BACKOFF_WAIT {
            return Ok(Step::Sleep(until));
        }
        Err(Unavailable::BackingOff { seconds: left.as_secs() + 1, last: last(state) })
    }

    fn refused(&self, state: &State) -> Unavailable {
        match state.lifecycle.phase() {
            Phase::Failed { until } => Unavailable::NotRestarted {
                failures: state.lifecycle.failures(),
                seconds: Instant::from_std(until).saturating_duration_since(Instant::now()).as_secs() + 1,
                last: last(state),
            },
            _ => Unavailable::Removed,
        }
    }

    /// Returns when to check whether the plugin is idle; `None` if it may stay idle.
    fn idle_at(&self) -> Option<Instant> {
        let idle_stop = self.options.idle_stop?;
        let state = self.state();
        let used = if state.in_flight > 0 { Instant::now() } else { state.last_used };
        Some(used + idle_stop)
    }

    fn stop_if_idle(&self, number: u64) {
        let Some(idle_stop) = self.options.idle_stop else { return };
        let mut state = self.state();
        let is_idle = state.number == number && state.in_flight == 0 && state.last_used.elapsed() >= idle_stop;
        if is_idle && state.lifecycle.on(Event::Idle, now(), jitter()) == Action::Disconnect {
            tracing::info!(plugin = self.id(), "stopped an idle plugin");
            if let Some(connection) = state.connection.take() {
                connection.stop();
            }
        }
    }

    /// Stops the plugin permanently: calls under way are cancelled, and new ones fail.
    pub(super) async fn retire(&self) {
        let connection = {
            let mut state = self.state();
            state.lifecycle.on(Event::Retire, now(), jitter());
            if let Some(attempt) = state.attempt.take() {
                attempt.task.abort();
            }
            state.connection.take()
        };
        if let Some(connection) = connection {
            connection.stop();
            if timeout(STOP_TIMEOUT, connection.gone()).await.is_err() {
                // A keeper may still end the processes.
                tracing::warn!(plugin = self.id(), "the processes of a plugin did not end in time");
            }
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if let Some(attempt) = self.state.get_mut().attempt.take() {
            attempt.task.abort();
        }
    }
}

fn now() -> std::time::Instant {
    Instant::now().into_std()
}

fn last(state: &State) -> Arc<str> {
    state.last_failure.clone().unwrap_or_else(|| "unknown".into())
}

fn last_lines(stderr: &str) -> Option<String> {
    let text = Redactor::global().redact(stderr.trim()).into_owned();
    let skipped = text.chars().count().saturating_sub(MAX_STDERR_CHARS);
    let end: String = text.chars().skip(skipped).collect();
    Some(plain(&end, MAX_STDERR_CHARS)).filter(|text| !text.is_empty())
}

/// Watches a connection until it ends. The task keeps neither the plugin nor its supervisor alive.
async fn monitor(supervisor: Weak<Supervisor>, number: u64, closed: impl Future<Output = CloseReason> + Send) {
    tokio::pin!(closed);
    loop {
        let idle_at = supervisor.upgrade().and_then(|supervisor| supervisor.idle_at());
        tokio::select! {
            why = &mut closed => {
                if let Some(supervisor) = supervisor.upgrade() {
                    supervisor.on_end(&mut supervisor.state(), number, why);
                }
                return;
            }
            () = at(idle_at) => match supervisor.upgrade() {
                Some(supervisor) => supervisor.stop_if_idle(number),
                None => return,
            },
        }
    }
}

async fn at(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when).await,
        None => std::future::pending().await,
    }
}

/// Why a plugin could not be started.
struct StartFailure {
    why: String,
    stderr: Option<String>,
}

impl StartFailure {
    fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), stderr: None }
    }
}

impl Launch {
    /// Checks that nothing has changed, starts the process and introduces this program to it.
    async fn start(self) -> Result<Connection, StartFailure> {
        let deadline = Instant::now() + START_TIMEOUT;
        let installed = self.installed.clone();
        // Blocking, because the check reads all files of the plugin.
        let verified = tokio::task::spawn_blocking(move || installed.verify()).await;
        match verified {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(StartFailure::new(error.to_string())),
            Err(_) => return Err(StartFailure::new("the program is shutting down")),
        }
        self.check_config().map_err(StartFailure::new)?;
        let env = self.environment().map_err(StartFailure::new)?;
        let (program, args) = self.command();
        let started = Process::start(&program, &args, &env, Some(&self.installed.folder)).map_err(|error| {
            StartFailure::new(format!("`{}` cannot be started: {error}", line(&program, MAX_SHOWN_CHARS)))
        })?;
        let connection = Connection::new(&self.manifest.id, started);
        match connection.handshake(self.introduction(), deadline).await {
            Ok(answer) if answer.result.get("protocolVersion").and_then(Value::as_u64) == Some(PROTOCOL_VERSION) => {
                Ok(connection)
            }
            Ok(answer) => {
                let found = answer.result.get("protocolVersion").cloned().unwrap_or_default();
                let found = line(&found.to_string(), 40);
                Err(StartFailure::new(format!(
                    "it answered `initialize` with protocol version {found}; this program supports {PROTOCOL_VERSION}"
                )))
            }
            Err(error) => {
                let why = match error {
                    RequestError::NotSent(why) | RequestError::Lost(why) => why.to_string(),
                    RequestError::Refused { code, message } => {
                        format!("it refused `initialize`: {message} (code {code})")
                    }
                    RequestError::Deadline | RequestError::Crowded => {
                        format!("it did not answer `initialize` within {} s", START_TIMEOUT.as_secs())
                    }
                    RequestError::TooLarge(why) => why,
                    RequestError::Invalid => "its answer to `initialize` is not a JSON-RPC response".to_owned(),
                };
                connection.stop();
                // The last output of a process that has ended arrives a moment later.
                timeout(process::CLOSE_GRACE, connection.gone()).await.ok();
                Err(StartFailure { why, stderr: last_lines(&connection.stderr_tail()) })
            }
        }
    }

    /// Checks the configured settings against the schema of the manifest.
    pub(super) fn check_config(&self) -> Result<(), String> {
        let place = format!("plugins.entries.{}.config", self.manifest.id);
        if self.settings.config.to_string().len() > MAX_PLUGIN_CONFIG_BYTES {
            return Err(format!("`{place}` has more than {MAX_PLUGIN_CONFIG_BYTES} bytes; shorten it"));
        }
        match &self.manifest.config_schema {
            Some(schema) => catalog::arguments::check(schema, &self.settings.config).map_err(|error| {
                format!("`{place}` is invalid:\n{}", plain(&error.naming("config").to_string(), MAX_SHOWN_CHARS))
            }),
            None if self.settings.config.as_object().is_some_and(|config| !config.is_empty()) => {
                Err(format!("`{place}` is set, but the plugin has no settings; remove it"))
            }
            None => Ok(()),
        }
    }

    /// Returns the variables that the plugin gets beside the inherited ones.
    fn environment(&self) -> Result<BTreeMap<String, String>, String> {
        let setting = format!("plugins.entries.{}.env", self.manifest.id);
        if let Some(name) = self.settings.env.keys().find(|name| !self.manifest.env.contains(name)) {
            let name = plain(name, MAX_SHOWN_CHARS);
            return Err(format!("`{setting}` sets `{name}`, which its manifest does not name; remove it"));
        }
        let mut env = BTreeMap::new();
        for name in &self.manifest.env {
            let value = match self.settings.env.get(name) {
                Some(text) => (self.variables.expand)(text).map_err(|why| format!("`{setting}.{name}`: {why}"))?,
                None => (self.variables.inherited)(name).ok_or_else(|| {
                    format!(
                        "it needs the environment variable `{name}`, which is not set; set it, or `{setting}.{name}`"
                    )
                })?,
            };
            if is_credential_name(name) {
                Redactor::global().register(&value);
            }
            env.insert(name.clone(), value);
        }
        env.insert("CELLMATE_PLUGIN_ID".to_owned(), self.manifest.id.clone());
        env.insert("CELLMATE_PLUGIN_DATA".to_owned(), self.installed.data.display().to_string());
        // Compiled files in the plugin's folder would count as a change.
        env.insert("PYTHONDONTWRITEBYTECODE".to_owned(), "1".to_owned());
        Ok(env)
    }

    fn command(&self) -> (String, Vec<String>) {
        let mut command = self.manifest.command.iter();
        let program = command.next().cloned().unwrap_or_default();
        let program = match program.contains('/') {
            true => self.installed.folder.join(PathBuf::from(program)).display().to_string(),
            false => program,
        };
        (program, command.cloned().collect())
    }

    fn introduction(&self) -> Value {
        json!({
            "protocolVersion": PROTOCOL_VERSION,
            "host": {"name": "cellmate", "version": env!("CARGO_PKG_VERSION")},
            "plugin": {"id": self.manifest.id, "version": self.manifest.version},
            "config": self.settings.config,
            "dataFolder": self.installed.data,
            "limits": {"maxMessageBytes": MAX_FRAME_BYTES, "maxRequests": MAX_PLUGIN_REQUESTS},
        })
    }
}
