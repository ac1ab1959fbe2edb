//! `cellmate mcp`: `exec` and `wait` for agents. Nothing but the protocol goes to standard output.

mod arguments;
mod stdin;
mod tokens;
mod upstream;

use std::process::ExitCode;
use std::time::Duration;

use codemode::CodeMode;
use codemode::pool::{Launch, Pool, PoolOptions};
use executor::clock::now_ms;
use mcp::server::{
    ApprovalPolicy, Gate, HttpError, McpService, Offered, Principal, ServeError, Settings, serve_http, serve_streams,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use store::Store;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::config::{ConfigError, LISTS, load};
use crate::policy::{self, BadSettings};
use crate::render;
use crate::state::{State, StateError, look};

pub(crate) use arguments::McpArguments;
pub(crate) use upstream::Servers;

/// How long cells under way may take to come to rest when we end, and how often that is looked at.
const REST: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(20);

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
    #[error("the system has no randomness to give: {0}")]
    Randomness(#[from] getrandom::Error),
    #[error("cannot listen at {address}: {source}")]
    Listen { address: std::net::SocketAddr, source: std::io::Error },
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error(transparent)]
    Streams(#[from] ServeError),
    #[error("standard input cannot be read: {0}")]
    Stdin(std::io::Error),
    #[error("signals cannot be heard: {0}")]
    Signals(std::io::Error),
}

pub(crate) async fn run(arguments: McpArguments) -> ExitCode {
    match serve(arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => render::trouble(&error.to_string()),
    }
}

async fn serve(arguments: McpArguments) -> Result<(), McpError> {
    allow_many_files();
    let places = arguments.config.places();
    let loaded = load(&places)?;
    for problem in &loaded.problems {
        render::note(&format!("cellmate: {problem}"));
    }
    let served = policy::read(&loaded.settings)?;
    let kept = arguments.store.choose(&loaded.settings, &places)?;
    let (state, key) = (kept.state.clone(), kept.key()?);
    let options = PoolOptions {
        jail: arguments.jail.policy(),
        memory_limit_bytes: served.config.largest_memory_limit(),
        ..PoolOptions::new(Launch::ThisProgram)
    };
    let (pool, store) = tokio::join!(Pool::start(options), kept.open());
    let (pool, store) = (pool?, store?);
    warn_of_clock(&store).await;
    let code_mode = CodeMode::new(pool, store)?;
    let (offer, offered) = watch::channel(Offered::default());
    let settings = Settings {
        config: served.config,
        asking: asking(&arguments, served.asking),
        pass: served.pass,
        tool_prefix: arguments.tool_prefix.clone(),
        seal: key,
    };
    let frontend = McpService::new(code_mode.clone(), settings, offered);
    let servers = Servers::new(&loaded.servers, state.path(LISTS), arguments.idle_stop());
    tokio::spawn(servers.clone().offer(offer));
    tokio::spawn(release_memory());
    let stop = stopped_by_signals(&frontend)?;
    let served = match arguments.http {
        Some(address) => over_http(&frontend, &arguments, &state, address, stop).await,
        None => over_streams(&frontend, stop).await,
    };
    end(&frontend, &code_mode).await;
    servers.stop().await;
    served
}

/// How soon memory that a large call or result took is the system's again.
const RELEASE_EVERY: Duration = Duration::from_secs(5);

async fn release_memory() {
    loop {
        tokio::time::sleep(RELEASE_EVERY).await;
        // It takes some milliseconds where much is free.
        drop(tokio::task::spawn_blocking(sandbox::release_free_memory).await);
    }
}

/// Leases are told by the clocks of those who hold them, so these must agree.
async fn warn_of_clock(store: &Store) {
    let asked = now_ms();
    let Ok(Some(clock)) = store.server_clock().await else { return };
    let skew = look::skew(clock, asked, now_ms());
    if skew.abs() > look::MAX_SKEW_MS {
        eprintln!("cellmate: {}", look::skew_warning(skew));
    }
}

/// A running server takes four of them, and the usual allowance is for programs of another time.
const OPEN_FILES: u64 = 8_192;

fn allow_many_files() {
    let now = getrlimit(Resource::Nofile);
    let most = now.maximum.map_or(OPEN_FILES, |maximum| maximum.min(OPEN_FILES));
    if now.current.is_some_and(|current| current < most) {
        // Without it fewer servers can run at once, and those that cannot say so.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: now.maximum });
    }
}

fn asking(arguments: &McpArguments, configured: ApprovalPolicy) -> ApprovalPolicy {
    if arguments.ask_nobody {
        ApprovalPolicy::Nobody
    } else if arguments.ask.is_empty() {
        configured
    } else {
        ApprovalPolicy::Named(arguments.ask.clone())
    }
}

async fn over_streams(frontend: &McpService, stop: CancellationToken) -> Result<(), McpError> {
    let streams = (stdin::stdin().map_err(McpError::Stdin)?, tokio::io::stdout());
    Ok(serve_streams(frontend.clone(), Principal::local(), streams, stop).await?)
}

async fn over_http(
    frontend: &McpService,
    arguments: &McpArguments,
    state: &State,
    address: std::net::SocketAddr,
    stop: CancellationToken,
) -> Result<(), McpError> {
    let (access, place) = tokens::access(arguments, state)?;
    let listen = |source| McpError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(listen)?;
    let bound = listener.local_addr().map_err(listen)?;
    eprintln!("cellmate: serving MCP at http://{bound}/mcp; {place}");
    let gate = Gate { access, hosts: arguments.hosts.clone() };
    Ok(serve_http(frontend.clone(), listener, gate, stop).await?)
}

/// Cells come to rest where they can, and whoever comes next need not wait for our leases to run out.
async fn end(frontend: &McpService, code_mode: &CodeMode) {
    frontend.leave();
    let resting = async {
        while !frontend.is_idle() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    drop(tokio::time::timeout(REST, resting).await);
    if let Err(error) = code_mode.leave().await {
        eprintln!("cellmate: runs could not be let go of, so they are held for some seconds more: {error}");
    }
}

fn stopped_by_signals(frontend: &McpService) -> Result<CancellationToken, McpError> {
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate()).map_err(McpError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(McpError::Signals)?;
    let (frontend, told) = (frontend.clone(), stop.clone());
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        frontend.leave();
        told.cancel();
    });
    Ok(stop)
}
