//! Connects to a configured server: starts or reaches it, performs the handshake, and lists its tools.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use contract::tool::is_visible_name;
use executor::ProgressSink;
use parking_lot::RwLock;
use process::ResponseSlot;
use process::{MayFinish, Process, ProcessExit, ProgramEnd, StartedProcess, StderrReader, Tail, withheld};
use serde_json::{Map, Value, json};
use url::Url;

use super::{Server, ServerListing};
use crate::client::catalog::{ListLimitError, Offer};
use crate::client::http::{BadAddress, Caller};
use crate::client::oauth::Tokens;
use crate::client::spec::{
    HintTrust, Limits, MAX_PAGES, MAX_SERVER_NAME_BYTES, MAX_SHOWN_CHARS, MAX_SHOWN_NAME_CHARS, ServerSpec, Transport,
    plain_url, shown,
};
use crate::client::stray::StrayLine;
use crate::client::wire::{Http, is_forbidden};
use crate::client::{DisconnectReason, Handshake, Request, RequestError, Session, Stdio};

/// A failed connection to a server, for its operator.
#[derive(Debug, thiserror::Error)]
#[error("connect to MCP server `{server}`: {}", self.reason())]
pub struct ConnectError {
    pub server: String,
    pub why: ConnectFailure,
    /// The first line that the server printed to its standard output, if it printed text instead of a message.
    pub stray: Option<String>,
    /// The end of the server's standard error. It may contain the server's secrets.
    pub stderr: String,
    /// The names of this process's variables that a local server did not get, if it may have failed for lack of one.
    pub not_passed: Vec<String>,
}

/// The end of the message of a failure that the server's standard error may explain. Callers that show the standard error
/// themselves remove it.
pub const CHECK_STDERR: &str = "; check its standard error";

/// Why a connection failed. Messages continue a sentence about the server.
#[derive(Debug, thiserror::Error)]
pub enum ConnectFailure {
    #[error("a server's name must have 1 to 64 bytes and no `:`, control or invisible characters; rename it")]
    BadName,
    #[error("its command `{0}` was not found in PATH; install it, or write its full path in the entry")]
    NotInPath(String),
    #[error("its command `{0}` does not exist; install it, or correct the entry")]
    NoSuchCommand(String),
    #[error("its folder `{0}` does not exist; create it, or correct `cwd` in the entry")]
    NoSuchFolder(String),
    #[error("its command `{command}` cannot be started: {error}; check that it is an executable program")]
    Start {
        command: String,
        #[source]
        error: io::Error,
    },
    #[error("its command `{command}` {end} before it was ready{CHECK_STDERR}")]
    Exited { command: String, end: ProgramEnd },
    #[error(transparent)]
    BadAddress(#[from] BadAddress),
    #[error("it requires a login; run `cellmate servers login {server}`")]
    LoginNeeded { server: String },
    #[error(
        "it was not ready within {}; start it once by hand to see what it waits for, or raise its `startupTimeoutMs`",
        format_limit(*.0)
    )]
    Deadline(Duration),
    #[error("{0}{CHECK_STDERR}")]
    Closed(DisconnectReason),
    #[error("{}; check the address and that the server runs", unreachable_message(address.as_deref(), *why))]
    Unreachable { address: Option<String>, why: DisconnectReason },
    #[error("it denied access: {0}")]
    Forbidden(String),
    #[error("it rejected the request: {message} (code {code})")]
    Refused { code: i32, message: String },
    #[error(
        "it does not speak a supported revision of MCP; check that the command starts an MCP server on standard input and output, or that the address is its MCP endpoint"
    )]
    InvalidProtocol,
    /// The response exceeds a limit.
    #[error("{0}")]
    ResponseTooLarge(String),
    #[error(transparent)]
    ListLimit(#[from] ListLimitError),
}

/// State that outlives a failed or abandoned start, so that the failure can be explained.
#[derive(Clone, Debug, Default)]
pub(super) struct StartContext {
    /// The end of the server's standard error.
    pub(super) stderr: Tail,
    /// The first line on the server's standard output that is not a message.
    pub(super) stray: StrayLine,
    /// Set if the process may finish what it does, such as a download, when the start is abandoned.
    pub(super) may_finish: MayFinish,
    /// The scheme, host and port of a server with an address. The path is left out because it may contain a token.
    pub(super) address: Option<String>,
}

/// How long a server that has closed its output may take to end, so that its exit code is known.
const EXIT_WAIT: Duration = Duration::from_secs(2);

/// Connects to a server and lists its tools. The caller limits the time.
pub(super) async fn connect(spec: &ServerSpec, context: &StartContext) -> Result<Server, ConnectFailure> {
    let readable = !spec.name.contains(':') && is_visible_name(&spec.name);
    if spec.name.is_empty() || spec.name.len() > MAX_SERVER_NAME_BYTES || !readable {
        return Err(ConnectFailure::BadName);
    }
    let (session, stderr_reader, exit) = reach(spec, context).await?;
    let listed = match list(&session, &spec.name, spec.hint_trust(), &spec.limits).await {
        Ok(listed) => listed,
        Err(why) => return Err(with_exit(why, &spec.transport, exit).await),
    };
    Ok(Server {
        name: spec.name.clone(),
        identity: spec.identity(),
        hints: spec.hint_trust(),
        limits: spec.limits,
        listed: RwLock::new(Arc::new(listed)),
        session,
        stderr: context.stderr.clone(),
        exit,
        _stderr_reader: stderr_reader,
    })
}

/// A session, and for a local server the reader of its standard error and a handle to wait for the end of its process.
type OpenedSession = (Session, Option<StderrReader>, Option<ProcessExit>);

/// Starts the server or reaches it at its address, and performs the handshake.
async fn reach(spec: &ServerSpec, context: &StartContext) -> Result<OpenedSession, ConnectFailure> {
    match &spec.transport {
        Transport::Stdio { .. } => match start(spec, context, Handshake::Initialize).await {
            // The server runs but rejects `initialize`: it may support only the newer handshake. If that fails too, the
            // first error is reported.
            Err(refused @ ConnectFailure::Refused { .. }) => {
                start(spec, context, Handshake::Discover).await.map_err(|_| refused)
            }
            other => other,
        },
        Transport::Http { url, headers, login } => {
            let bad = || BadAddress::Url(plain_url(url));
            let url = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https")).ok_or_else(bad)?;
            let tokens = login.as_ref().map(|login| Tokens::new(&spec.name, &url, login));
            let caller = Caller::new(&url, headers, tokens)?;
            Ok((Session::open(Http::new(caller), Handshake::Auto).await?, None, None))
        }
    }
}

/// Starts a local server and performs the handshake.
pub(super) async fn start(
    spec: &ServerSpec,
    context: &StartContext,
    handshake: Handshake,
) -> Result<OpenedSession, ConnectFailure> {
    let Transport::Stdio { command, args, env, cwd } = &spec.transport else {
        return Err(ConnectFailure::InvalidProtocol);
    };
    let started = Process::start(command, args, env, cwd.as_deref())
        .map_err(|error| start_failure(command, cwd.as_deref(), error))?;
    let StartedProcess { process, stdin, stdout, stderr } = started;
    let process = process.that_may_finish(context.may_finish.clone());
    let (stderr_reader, exit) = (context.stderr.drain(&spec.name, stderr), process.exit());
    let transport = Stdio::new(stdout, stdin, Some(process)).noting(context.stray.clone());
    match Session::open(transport, handshake).await {
        Ok(session) => Ok((session, Some(stderr_reader), Some(exit))),
        Err(error) => {
            // The process has ended. Wait for its last output, which may say why.
            stderr_reader.finish().await;
            Err(with_exit(error.into(), &spec.transport, Some(exit)).await)
        }
    }
}

/// Returns the failure of a command that could not be started.
fn start_failure(command: &str, cwd: Option<&Path>, error: io::Error) -> ConnectFailure {
    let name = |text: &str| shown(text, MAX_SHOWN_NAME_CHARS);
    let folder = cwd.filter(|cwd| !cwd.is_dir()).map(|cwd| name(&cwd.to_string_lossy()));
    match (error.kind(), folder) {
        (io::ErrorKind::NotFound, Some(folder)) => ConnectFailure::NoSuchFolder(folder),
        (io::ErrorKind::NotFound, None) if command.contains('/') => ConnectFailure::NoSuchCommand(name(command)),
        (io::ErrorKind::NotFound, None) => ConnectFailure::NotInPath(name(command)),
        _ => ConnectFailure::Start { command: name(command), error },
    }
}

/// Returns the failure, or how the process ended if the failure is that a local server closed its output.
async fn with_exit(why: ConnectFailure, transport: &Transport, exit: Option<ProcessExit>) -> ConnectFailure {
    let (ConnectFailure::Closed(DisconnectReason::Ended), Transport::Stdio { command, .. }, Some(exit)) =
        (&why, transport, exit)
    else {
        return why;
    };
    match tokio::time::timeout(EXIT_WAIT, exit.wait()).await {
        Ok(Some(end)) => ConnectFailure::Exited { command: shown(command, MAX_SHOWN_NAME_CHARS), end },
        Ok(None) | Err(_) => why,
    }
}

/// Lists the tools of a server, and the tools with which its resources and prompts are used.
pub(super) async fn list(
    session: &Session,
    name: &str,
    hints: HintTrust,
    limits: &Limits,
) -> Result<ServerListing, ConnectFailure> {
    let has = session.capabilities();
    let mut offer = Offer::new(name, hints, limits).with_instructions(session.about());
    if session.has_headers() {
        offer = offer.for_headers();
    }
    if has.tools {
        list_tools(session, &mut offer, limits.connect).await?;
    }
    if has.resources {
        offer.resources();
    }
    if has.prompts {
        offer.prompts();
    }
    Ok(ServerListing { tools: offer.tools, as_tasks: offer.as_tasks, left_out: offer.left_out })
}

/// Requests all pages of the server's tools and adds the tools to the offer.
pub(super) async fn list_tools(
    session: &Session,
    offer: &mut Offer<'_>,
    deadline: Duration,
) -> Result<(), ConnectFailure> {
    let mut params = Map::new();
    // Holds the budget of each page while its tools are read.
    let slot = ResponseSlot::default();
    for _ in 0..MAX_PAGES {
        let request = Request {
            method: "tools/list",
            params,
            headers: Vec::new(),
            key: "",
            updates: ProgressSink::default(),
            asker: None,
            deadline,
            slot: slot.clone(),
        };
        let page = session.request(request).await?;
        for tool in page.get("tools").and_then(Value::as_array).ok_or(ConnectFailure::InvalidProtocol)? {
            offer.tool(tool)?;
        }
        match page.get("nextCursor").and_then(Value::as_str) {
            Some(cursor) => params = Map::from_iter([("cursor".to_owned(), json!(cursor))]),
            None => return Ok(()),
        }
    }
    Err(ListLimitError::Pages(MAX_PAGES).into())
}

impl ConnectError {
    pub(super) fn new(server: &str, why: ConnectFailure, context: &StartContext) -> Self {
        let server = shown(server, MAX_SHOWN_NAME_CHARS);
        let why = match why {
            ConnectFailure::Closed(DisconnectReason::LoginNeeded) => {
                ConnectFailure::LoginNeeded { server: server.clone() }
            }
            ConnectFailure::Closed(why @ (DisconnectReason::Unreachable(_) | DisconnectReason::SessionGone)) => {
                ConnectFailure::Unreachable { address: context.address.clone(), why }
            }
            other => other,
        };
        let stray = context.stray.get().filter(|_| why.stray_line_may_explain());
        Self { server, why, stray, stderr: context.stderr.text(), not_passed: Vec::new() }
    }

    /// Returns why the connection failed and what to do, without the server's standard error.
    pub fn reason(&self) -> String {
        self.why.message_with_stray(self.stray.as_deref())
    }

    /// Adds the names of the variables that a local server did not get, if one of them may explain the failure.
    pub(super) fn with_not_passed(mut self, transport: &Transport) -> Self {
        if let Transport::Stdio { env, .. } = transport
            && self.why.missing_variable_may_explain()
        {
            self.not_passed = withheld(env);
        }
        // The server still runs. If it lacks a variable, its standard error contains the name.
        if matches!(self.why, ConnectFailure::Deadline(_)) {
            let mentions = |name: &str| {
                self.stderr.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|word| word == name)
            };
            self.not_passed.retain(|name| mentions(name));
        }
        self
    }
}

/// Returns the scheme, host and port of a server with an address.
pub(super) fn origin(transport: &Transport) -> Option<String> {
    let Transport::Http { url, .. } = transport else { return None };
    let origin = Url::parse(url).ok()?.origin();
    origin.is_tuple().then(|| shown(&origin.ascii_serialization(), MAX_SHOWN_NAME_CHARS))
}

/// Returns the message that a server cannot be reached, and why.
fn unreachable_message(address: Option<&str>, why: DisconnectReason) -> String {
    match (address, why) {
        (Some(address), DisconnectReason::Unreachable(cause)) => {
            format!("the server cannot be reached at `{address}`: {cause}")
        }
        _ => why.to_string(),
    }
}

/// Formats a time limit in seconds, or in milliseconds if it is not a whole number of seconds.
fn format_limit(limit: Duration) -> String {
    match limit.subsec_millis() {
        0 => format!("{} s", limit.as_secs()),
        _ => format!("{} ms", limit.as_millis()),
    }
}

impl ConnectFailure {
    /// Returns the message of the failure. If the server printed text instead of messages, that comes first, because it
    /// may be the reason.
    fn message_with_stray(&self, line: Option<&str>) -> String {
        match line {
            Some(line) => format!(
                "it printed `{line}` to its standard output instead of a JSON-RPC message; check that the command starts \
                 an MCP server, and that it logs to standard error ({self})"
            ),
            None => self.to_string(),
        }
    }

    /// Whether text that the server printed instead of a message can be the reason.
    fn stray_line_may_explain(&self) -> bool {
        matches!(self, Self::Closed(_) | Self::Exited { .. } | Self::Deadline(_) | Self::InvalidProtocol)
    }

    /// Whether the server started and then failed, so that a missing variable can be the reason.
    fn missing_variable_may_explain(&self) -> bool {
        match self {
            Self::Closed(_)
            | Self::Exited { .. }
            | Self::Deadline(_)
            | Self::Refused { .. }
            | Self::InvalidProtocol => true,
            Self::BadName
            | Self::NotInPath(_)
            | Self::NoSuchCommand(_)
            | Self::NoSuchFolder(_)
            | Self::Start { .. }
            | Self::BadAddress(_)
            | Self::LoginNeeded { .. }
            | Self::Unreachable { .. }
            | Self::Forbidden(_)
            | Self::ResponseTooLarge(_)
            | Self::ListLimit(_) => false,
        }
    }
}

impl From<RequestError> for ConnectFailure {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Refused { code, message } if is_forbidden(code) => {
                Self::Forbidden(shown(&message, MAX_SHOWN_CHARS))
            }
            RequestError::Refused { code, message } => {
                Self::Refused { code, message: shown(&message, MAX_SHOWN_CHARS) }
            }
            RequestError::NotSent(why) | RequestError::Closed(why) => Self::Closed(why),
            RequestError::ResponseTooLarge(why) => Self::ResponseTooLarge(why),
            RequestError::InvalidResponse | RequestError::Pages(_) => Self::InvalidProtocol,
            RequestError::Deadline(limit) => Self::Deadline(limit),
        }
    }
}
