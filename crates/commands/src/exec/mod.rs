//! `cellmate exec`: runs a cell with the tools of the configured servers, or with canned ones, and prints the result
//! that a model would get.

mod background;
mod source;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use client_config::{LoadedConfig, display, load};
use codemode::pool::Pool;
use codemode::{CodeMode, ExecInput};
use contract::cell::{CellResult, Telemetry};
use contract::config;
use contract::error::ErrorCode;
use contract::ids::RunId;
use contract::limits::{Limits, MAX_CATALOG_BYTES};
use contract::scope::Scope;
use executor::clock::now_ms;
use executor::run::PrepareError;
use executor::{CannedTools, Executor};
use store::{Keys, Location, Store, StoreError};
use tokio::sync::watch;

use crate::approvals::UntrustedServers;
use crate::approver::Approver;
use crate::arguments::ExecArguments;
use crate::engine::{Engine, code_mode_config, command_line_scope};
use crate::local_tools::{local_tools, report_failed_plugins};
use crate::named_words::NamedWords;
use crate::policy::{self, BadSettings};
use crate::render::OutputFormat;
use crate::state::StateError;
use crate::turns::{Patience, Turns};
use crate::{call_progress, cell_result, hint, render};
use background::Background;

/// How often the command looks whether tool calls in the background have ended.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The command, as it is recorded with the run and with decisions.
const COMMAND: &str = "exec";

#[derive(Debug, thiserror::Error)]
enum ExecError {
    #[error(transparent)]
    Source(#[from] source::SourceError),
    #[error("`{path}`: {reason}")]
    Catalog { path: String, reason: String },
    #[error(
        "--catalog runs the cell without the configured policy, so --provider and --sandboxed would have no effect; leave \
         them out"
    )]
    NoPolicy,
    #[error(transparent)]
    Config(#[from] client_config::ConfigError),
    #[error(transparent)]
    Settings(#[from] BadSettings),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    #[error(transparent)]
    Pool(#[from] codemode::pool::PoolError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0}")]
    Local(String),
    #[error("cannot continue the cell in the background: {0}")]
    Background(std::io::Error),
    #[error("cannot read system randomness: {0}")]
    Randomness(#[from] getrandom::Error),
}

pub(crate) async fn run(arguments: ExecArguments) -> ExitCode {
    let done = match &arguments.catalog {
        Some(catalog) => with_canned_tools(&arguments, catalog).await,
        None => with_servers(&arguments).await,
    };
    done.unwrap_or_else(|error| {
        if error.is_invalid_config() && arguments.format() == OutputFormat::Json {
            // A program that reads the result finds the reason there, as a model would.
            render::json(&error.invalid_config());
        }
        render::fatal(&error.to_string())
    })
}

impl ExecArguments {
    /// Returns the format of the cell's result.
    fn format(&self) -> OutputFormat {
        OutputFormat::from_flag(self.json).for_cell_result()
    }
}

impl ExecError {
    /// Whether the cell was not started because of the configuration.
    fn is_invalid_config(&self) -> bool {
        matches!(self, Self::Config(_) | Self::Settings(_))
    }

    fn invalid_config(&self) -> CellResult {
        CellResult::Failed {
            error: format!("the configuration is invalid, so the cell was not started: {self}"),
            code: Some(ErrorCode::InvalidConfig),
            output: Vec::new(),
            effects: Vec::new(),
            telemetry: Telemetry::default(),
        }
    }
}

/// Runs the cell with the configured servers, policy, approvals and store.
async fn with_servers(arguments: &ExecArguments) -> Result<ExitCode, ExecError> {
    let (background, cell) = match Background::receive().map_err(ExecError::Background)? {
        Some((background, cell)) => (Some(background), cell),
        None => (None, source::cell(arguments)?),
    };
    if arguments.no_wait && background.is_none() {
        return background::start(&cell).map_err(ExecError::Background);
    }
    let places = arguments.store.places();
    let loaded = load(&places)?;
    loaded.problems.iter().for_each(|problem| render::note(&format!("cellmate: {problem}")));
    note_disabled_servers(&loaded, &cell.source);
    let policy = policy::read(&loaded.settings)?.with(&arguments.policy);
    if let Some(note) = policy.provider_note(&arguments.agent) {
        render::note(&format!("cellmate: {note}"));
    }
    let store_settings = arguments.store.arguments().choose(&loaded.settings, &places)?;
    let config = arguments.limits.apply_to(code_mode_config(&policy, &arguments.agent));
    let pool = arguments.jail.pool(config.limits.memory_bytes);
    let (pool, store) = tokio::join!(Pool::start(pool), store_settings.open());
    let local = local_tools(&policy, &loaded.settings, &places, Some(store_settings.state.folder()))
        .map_err(ExecError::Local)?;
    let engine = Engine::new(pool?, store?, &loaded, local, &store_settings.state, None)?;
    call_progress::show(arguments.format());
    let done = async {
        let executor = engine.executor(&policy, command_line_scope(&arguments.agent), Some(&cell.source)).await?;
        let executor = executor.with_progress_sink(|update| call_progress::on_update(&update));
        let (began, words) = (now_ms(), NamedWords::of(&cell.source));
        let done =
            run_cell(&engine.code_mode, &executor, &config, cell, arguments, background, &engine.untrusted).await;
        engine.servers.report_failures_since(began, &words).await;
        report_failed_plugins(&engine.local.plugins);
        done
    };
    let done = done.await;
    engine.shut_down().await;
    done
}

/// Prints which disabled servers the cell names. In the cell, they do not exist.
fn note_disabled_servers(loaded: &LoadedConfig, source: &str) {
    let words = NamedWords::of(source);
    for entry in loaded.servers.iter().filter(|entry| !entry.enabled && words.contain(&entry.name)) {
        let name = display::plain(&entry.name);
        let enable = hint::command(&format!("servers enable {}", display::for_shell(&name)));
        render::note(&format!("cellmate: server `{name}` is disabled; `{enable}` enables it"));
    }
}

/// Runs the cell with canned tools. Its run is kept in memory, unless the user named a store.
async fn with_canned_tools(arguments: &ExecArguments, catalog: &Path) -> Result<ExitCode, ExecError> {
    if arguments.policy.is_given() {
        return Err(ExecError::NoPolicy);
    }
    let cell = source::cell(arguments)?;
    let executor = canned_tools(catalog)?;
    let config = arguments.limits.apply_to(config::CodeMode::enabled(Limits::DEFAULT));
    let pool = arguments.jail.pool(config.limits.memory_bytes);
    let store = async {
        match arguments.store.arguments().is_given() {
            true => Ok(arguments.store.choose()?.open().await?),
            false => Ok::<Store, ExecError>(Store::open(&Location::Memory, Keys::ephemeral()?).await?),
        }
    };
    let (pool, store) = tokio::join!(Pool::start(pool), store);
    let code_mode = CodeMode::new(pool?, store?)?;
    let untrusted = UntrustedServers::default();
    let code = run_cell(&code_mode, &executor, &config, cell, arguments, None, &untrusted).await;
    code_mode.shut_down().await?;
    code
}

/// Runs the cell and prints its result. If the user interrupts the command, the run is cancelled.
async fn run_cell(
    code_mode: &CodeMode,
    executor: &Executor,
    config: &config::CodeMode,
    cell: ExecInput,
    arguments: &ExecArguments,
    background: Option<Background>,
    untrusted: &UntrustedServers,
) -> Result<ExitCode, ExecError> {
    let patience = if arguments.no_wait { Patience::FirstTurn } else { Patience::NeedsHelp };
    let turns = Turns { code_mode, executor, config, command: COMMAND, approver: Approver::present(), untrusted };
    let started: watch::Sender<Option<RunId>> = watch::Sender::new(None);
    let result = tokio::select! {
        result = turns.exec(cell, patience, &started) => Some(result?),
        // Without a handler for the signal the command cannot be interrupted in this way.
        Ok(()) = tokio::signal::ctrl_c() => None,
    };
    let run_id = started.borrow().clone();
    let Some(result) = result else {
        if let Some(run_id) = run_id {
            code_mode.abort_with(executor, &run_id).await;
            render::note(&format!("cellmate: interrupted; run {run_id} is cancelled"));
        }
        return Ok(ExitCode::from(render::INTERRUPTED));
    };
    let is_kept = *code_mode.store().location() != Location::Memory;
    let advice = if is_kept { cell_result::advice(code_mode, &result).await? } else { None };
    let format = arguments.format();
    let code = cell_result::print(&result, run_id.as_ref().filter(|_| is_kept), advice.as_deref(), format);
    cell_result::note_empty(&result);
    if let Some(background) = background.filter(|_| code_mode.live_runs() > 0) {
        background.detach(render::WAITING).map_err(ExecError::Background)?;
        // The run is released as soon as none of its calls is under way. Then its next turn can begin elsewhere.
        while code_mode.live_runs() > 0 {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
    Ok(code)
}

fn canned_tools(path: &Path) -> Result<Executor, ExecError> {
    let text = source::read(path, MAX_CATALOG_BYTES)?;
    let canned = CannedTools::parse(&text).and_then(|canned| canned.executor(Scope::default()));
    canned.map_err(|error| ExecError::Catalog { path: path.display().to_string(), reason: error.to_string() })
}
