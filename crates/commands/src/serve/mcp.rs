//! `cellmate mcp`: serves tools to MCP clients. Only protocol messages go to standard output.

use std::io::{ErrorKind, IsTerminal, Read};
use std::process::ExitCode;

use catalog::EntryPoint;
use http_server::{BudgetLimits, HttpError, Principal};
use mcp::server::{McpService, ServeError, serve_http, serve_streams};
use tokio::io::{AsyncRead, AsyncWriteExt, duplex};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::arguments::McpArguments;
use super::http_port::{CheckedAddress, HttpPort, HttpPortError};
use super::startup::{RunningHost, Service, StartError, stop_on_signals};
use crate::log::CONSOLE;
use crate::render;

#[derive(Debug, thiserror::Error)]
enum McpError {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    HttpPort(#[from] HttpPortError),
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error(transparent)]
    Streams(#[from] ServeError),
    #[error("cannot read standard input: {0}")]
    Stdin(std::io::Error),
}

pub(crate) async fn run(arguments: McpArguments) -> ExitCode {
    match serve(arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(target: CONSOLE, error = telemetry::error_chain(&error), "cellmate mcp failed");
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
    let address = arguments.http.map(|address| CheckedAddress::new(address, &arguments.http_port)).transpose()?;
    let transport = if arguments.http.is_some() { "http" } else { "stdio" };
    let service = Service { command: "cellmate mcp", transport, entry: EntryPoint::Mcp, fixed_sections: &["store"] };
    let started = RunningHost::new(&arguments.serving, service).await?;
    // The client over standard streams started this process in its project. HTTP clients do not say where they are.
    let project = arguments.http.is_none().then(project).flatten();
    let frontend = started.mcp_service(&arguments.serving, arguments.tool_prefix.clone(), project);
    let stopping = frontend.clone();
    let stop = stop_on_signals(move || stopping.begin_shutdown())?;
    let served = match address {
        Some(address) => over_http(&frontend, &arguments, &started, address, stop).await,
        None => over_streams(&frontend, stop).await,
    };
    frontend.begin_shutdown();
    started.shut_down(|| frontend.is_idle()).await;
    served
}

/// Returns the folder that this process was started in.
fn project() -> Option<String> {
    std::env::current_dir().ok().map(|folder| folder.to_string_lossy().into_owned())
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
    started: &RunningHost,
    address: CheckedAddress,
    stop: CancellationToken,
) -> Result<(), McpError> {
    let http_port =
        HttpPort::open(address, &arguments.http_port, &started.state, &started.tokens, BudgetLimits::default()).await?;
    eprintln!("cellmate: serving MCP at {}/mcp; {}", http_port.url, http_port.token_note);
    Ok(serve_http(frontend.clone(), http_port.listener, http_port.gate, stop).await?)
}
