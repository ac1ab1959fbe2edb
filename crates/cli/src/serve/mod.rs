//! `cellmate mcp`: serves tools to MCP clients. Only protocol messages go to standard output.

mod arguments;
mod reload;
mod tokens;

use std::io::{ErrorKind, IsTerminal, Read};
use std::process::ExitCode;
use std::time::Duration;

use catalog::{EntryPoint, Surface, SurfaceOptions};
use client_config::display::for_shell;
use client_config::{ConfigError, Places, Problem, display, load};
use codemode::CodeMode;
use codemode::pool::{Launch, Pool, PoolError, PoolOptions};
use executor::clock::now_ms;
use http_server::{Access, BudgetLimits, Gate, HttpError, Principal, StoredTokens, TlsError, check_address};
use mcp::server::{ApprovalPolicy, McpService, OfferedSources, ServeError, Settings, serve_http, serve_streams};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use store::Store;
use telemetry::LogIgnored;
use tokio::io::{AsyncRead, AsyncWriteExt, duplex};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::local_tools::local_tools;
use crate::log::CONSOLE;
use crate::policy::{self, BadSettings, CallPolicy};
use crate::shared_arguments::SurfaceArgument;
use crate::state::{State, StateError, store_check};
use crate::{log, render};

pub(crate) use arguments::McpArguments;
use reload::{Current, Reloader};

/// How long active cells may take to suspend at shutdown, and how often that is checked.
const SUSPEND_TIMEOUT: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug, thiserror::Error)]
enum McpError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Settings(#[from] BadSettings),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Token(#[from] tokens::TokenError),
    #[error(transparent)]
    Pool(#[from] codemode::pool::PoolError),
    #[error("cannot read system randomness: {0}")]
    Randomness(#[from] getrandom::Error),
    #[error("cannot listen at {address}: {source}")]
    Listen { address: std::net::SocketAddr, source: std::io::Error },
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Streams(#[from] ServeError),
    #[error("{0}")]
    Local(String),
    #[error("cannot read standard input: {0}")]
    Stdin(std::io::Error),
    #[error("cannot install signal handlers: {0}")]
    Signals(std::io::Error),
}

pub(crate) async fn run(arguments: McpArguments) -> ExitCode {
    match serve(arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(target: CONSOLE, error = telemetry::chain(&error), "cellmate mcp failed");
            render::fatal(&error.to_string())
        }
    }
}

/// Printed if a person starts the server on a terminal.
const TERMINAL_NOTICE: &str = "cellmate: this is an MCP server for clients, and waits for JSON-RPC messages on standard \
    input; to connect a client, run `cellmate connect CLIENT`; to run a cell, `cellmate exec`; to end this, press Ctrl-C";

async fn serve(arguments: McpArguments) -> Result<(), McpError> {
    if arguments.http.is_none() && std::io::stdin().is_terminal() {
        eprintln!("{TERMINAL_NOTICE}");
    }
    raise_open_file_limit();
    let places = arguments.config.places();
    let loaded = load(&places)?;
    for problem in &loaded.problems {
        render::note(&format!("cellmate: {problem}"));
    }
    let served = policy::read(&loaded.settings)?.with(&arguments.policy);
    let kept = arguments.store.choose(&loaded.settings, &places)?;
    start_log(&arguments, &kept.state, &loaded.problems);
    let unused = policy::unused_notice(&loaded.settings, &check_command(&places));
    for note in served.provider_note(Principal::local().name()).into_iter().chain(unused) {
        tracing::warn!(target: CONSOLE, "{note}");
        render::note(&format!("cellmate: {note}"));
    }
    let (state, key) = (kept.state.clone(), kept.key()?);
    let memory_limit_bytes = served.config.largest_memory_limit();
    let options =
        PoolOptions { jail: arguments.jail.policy(), memory_limit_bytes, ..PoolOptions::new(Launch::ThisProgram) };
    let (pool, store) = tokio::join!(Pool::start(options), kept.open());
    let (pool, runtime_available) = pool_or_none(pool, &arguments, &served)?;
    let store = store?;
    warn_of_clock(&store).await;
    let tokens = StoredTokens::new(store.clone());
    let local = local_tools(&served, &loaded.settings, &places, Some(state.folder())).map_err(McpError::Local)?;
    let Engine { code_mode, servers, local, .. } =
        Engine::new(pool, store, &loaded, local, &state, arguments.idle_stop())?;
    let (offer, offered) = watch::channel(OfferedSources { local: local.tools, ..OfferedSources::default() });
    let settings = Settings {
        config: served.config,
        approval_policy: asking(&arguments).unwrap_or(served.asking),
        exempt: served.pass,
        tool_prefix: arguments.tool_prefix.clone(),
        surface: arguments.surface.map(SurfaceArgument::into),
        provider: served.provider,
        sandboxed: served.sandboxed,
        runtime_available,
        seal: key,
        // The client over standard streams started this process in its project. HTTP clients do not say where they are.
        project: arguments.http.is_none().then(project).flatten(),
    };
    let frontend = McpService::new(code_mode.clone(), settings, offered);
    let current = Current::start(servers, local.plugins, offer);
    let asking = asking(&arguments);
    let state_folder = state.folder().to_owned();
    let reloader = Reloader { places, loaded, state_folder, current: current.clone(), asking, memory_limit_bytes };
    let reloading = tokio::spawn(reloader.watch());
    tokio::spawn(release_memory());
    let stop = stop_on_signals(&frontend)?;
    let served = match arguments.http {
        Some(address) => {
            let (access, place) = tokens::access(&arguments, &state, &tokens)?;
            over_http(&frontend, &arguments, (access, &place), address, stop).await
        }
        None => over_streams(&frontend, stop).await,
    };
    reloading.abort();
    shut_down(&frontend, &code_mode).await;
    current.stop().await;
    tracing::info!("cellmate mcp stopped");
    served
}

/// Returns the folder that this process was started in.
fn project() -> Option<String> {
    std::env::current_dir().ok().map(|folder| folder.to_string_lossy().into_owned())
}

/// Returns the workers, or a pool without any if the tools that are shown need none: Tool Search then shows the tools
/// that take no code. Code mode fails instead, because it must never show all tools.
fn pool_or_none(
    started: Result<Pool, PoolError>,
    arguments: &McpArguments,
    served: &CallPolicy,
) -> Result<(Pool, bool), PoolError> {
    let error = match started {
        Ok(pool) => return Ok((pool, true)),
        Err(error) => error,
    };
    let wanted = arguments.surface.map(SurfaceArgument::into);
    let options = SurfaceOptions { entry: EntryPoint::Mcp, wanted, prefix_bytes: 0 };
    if Surface::may_be_code_mode(served.config.tools(Principal::local().name()), &options) {
        return Err(error);
    }
    tracing::warn!(target: CONSOLE, %error, "cells cannot be run");
    render::note(&format!("cellmate: {error}; tools that need no code are served"));
    Ok((Pool::without_workers(&error), false))
}

/// Returns the command that checks the configuration at these places.
fn check_command(places: &Places) -> String {
    let named = places.named_files().into_iter().map(|file| format!(" {}", for_shell(&display::path(&file))));
    format!("cellmate config check{}", named.collect::<String>())
}

/// Opens the log file and writes how the process was started.
fn start_log(arguments: &McpArguments, state: &State, problems: &[Problem]) {
    if let Err(error) = log::open_file(state.folder()) {
        // The server works without a log file.
        tracing::warn!(%error, folder = %state.folder().display(), "cannot write a log file");
    }
    let transport = if arguments.http.is_some() { "http" } else { "stdio" };
    tracing::info!(version = env!("CELLMATE_VERSION"), transport, pid = std::process::id(), "cellmate mcp started");
    for problem in problems {
        tracing::warn!(target: CONSOLE, %problem, "part of the configuration cannot be used");
    }
}

/// How often memory that a large call or result took is returned to the system.
const RELEASE_EVERY: Duration = Duration::from_secs(5);

async fn release_memory() {
    loop {
        tokio::time::sleep(RELEASE_EVERY).await;
        // Off the async threads: it takes some milliseconds if much memory is free.
        tokio::task::spawn_blocking(sandbox::release_free_memory).await.log_ignored("return free memory");
    }
}

/// Warns if this machine's clock differs from the database server's: leases depend on both.
async fn warn_of_clock(store: &Store) {
    let asked = now_ms();
    let Ok(Some(clock)) = store.server_clock().await else { return };
    let skew = store_check::skew(clock, asked, now_ms());
    if skew.abs() > store_check::MAX_SKEW_MS {
        let warning = store_check::skew_warning(skew);
        tracing::warn!(target: CONSOLE, skew_ms = skew, "{warning}");
        eprintln!("cellmate: {warning}");
    }
}

/// The open files to allow. A running MCP server takes four, and the usual soft limit of 1,024 is too low for many.
const OPEN_FILES: u64 = 8_192;

fn raise_open_file_limit() {
    let now = getrlimit(Resource::Nofile);
    let most = now.maximum.map_or(OPEN_FILES, |maximum| maximum.min(OPEN_FILES));
    if now.current.is_some_and(|current| current < most) {
        // If this fails, fewer servers can run at once, and each that cannot be started reports it.
        let raised = Rlimit { current: Some(most), maximum: now.maximum };
        setrlimit(Resource::Nofile, raised).log_ignored("raise the limit of open files");
    }
}

/// Returns the approval policy of the command line, which replaces the configured one.
fn asking(arguments: &McpArguments) -> Option<ApprovalPolicy> {
    if arguments.ask_nobody {
        Some(ApprovalPolicy::Never)
    } else if arguments.ask.is_empty() {
        None
    } else {
        Some(ApprovalPolicy::Named(arguments.ask.clone()))
    }
}

async fn over_streams(frontend: &McpService, stop: CancellationToken) -> Result<(), McpError> {
    let streams = (stdin().map_err(McpError::Stdin)?, tokio::io::stdout());
    Ok(serve_streams(frontend.clone(), Principal::local(), streams, stop).await?)
}

/// How many bytes are read ahead of the consumer.
const AHEAD_BYTES: usize = 64 << 10;

/// Returns standard input, read on a plain thread.
///
/// Its last read may block forever, and the runtime would wait for one of its own threads at shutdown.
fn stdin() -> std::io::Result<impl AsyncRead + Send + Unpin> {
    let (ours, mut theirs) = duplex(AHEAD_BYTES);
    let runtime = Handle::current();
    std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        let (mut stdin, mut chunk) = (std::io::stdin().lock(), vec![0; AHEAD_BYTES]);
        loop {
            let read = match stdin.read(&mut chunk) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Ok(0) | Err(_) => break,
                Ok(read) => read,
            };
            let Some(bytes) = chunk.get(..read) else { break };
            if runtime.block_on(theirs.write_all(bytes)).is_err() {
                break;
            }
        }
    })?;
    Ok(ours)
}

async fn over_http(
    frontend: &McpService,
    arguments: &McpArguments,
    (access, place): (Access, &str),
    address: std::net::SocketAddr,
    stop: CancellationToken,
) -> Result<(), McpError> {
    let gate = Gate {
        access,
        hosts: arguments.hosts.clone(),
        budget: BudgetLimits::default(),
        transport: arguments.transport()?,
    };
    check_address(address, &gate)?;
    let scheme = gate.transport.scheme();
    let listen = |source| McpError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(listen)?;
    let bound = listener.local_addr().map_err(listen)?;
    tracing::info!(target: CONSOLE, address = %bound, "listening");
    eprintln!("cellmate: serving MCP at {scheme}://{bound}/mcp; {place}");
    Ok(serve_http(frontend.clone(), listener, gate, stop).await?)
}

/// Suspends the cells that can be suspended and releases all leases, so that the next process need not wait for them to
/// expire.
async fn shut_down(frontend: &McpService, code_mode: &CodeMode) {
    tracing::info!("shutting down");
    frontend.begin_shutdown();
    let suspending = async {
        while !frontend.is_idle() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(SUSPEND_TIMEOUT, suspending).await.log_ignored("suspend all active cells");
    if let Err(error) = code_mode.shut_down().await {
        tracing::warn!(target: CONSOLE, error = telemetry::chain(&error), "cannot release the leases of runs");
        eprintln!("cellmate: cannot release runs, so their leases expire in a few seconds instead: {error}");
    }
}

/// Returns a token that SIGTERM or SIGINT cancels.
fn stop_on_signals(frontend: &McpService) -> Result<CancellationToken, McpError> {
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate()).map_err(McpError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(McpError::Signals)?;
    let (frontend, stopping) = (frontend.clone(), stop.clone());
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        frontend.begin_shutdown();
        stopping.cancel();
    });
    Ok(stop)
}
