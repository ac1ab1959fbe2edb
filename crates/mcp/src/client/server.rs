//! One MCP server, connected: its tools, and the way to call them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use contract::tool::{Operation, Repeat, ToolId, ToolSpec};
use executor::{Answering, AuthorizedCall, Dispatch, Outcome, ToolSource, Updates};
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use url::Url;

use crate::client::convert;
use crate::client::http::{BadAddress, Caller};
use crate::client::offer::{LeftOut, Offer, TooMuch};
use crate::client::spec::{
    Limits, MAX_PAGES, MAX_SERVER_NAME_BYTES, MAX_SHOWN_CHARS, MAX_SHOWN_NAME_CHARS, ServerSpec, Transport, plain_url,
    shown,
};
use crate::client::task::Task;
use crate::client::tokens::Tokens;
use crate::client::wire::Http;
use crate::client::{Closed, Draining, Era, Gone, Process, Request, RequestError, Session, Started, Stdio, Tail};

/// A running server. Dropping it ends the process and all that the process started in its group.
#[derive(Debug)]
pub struct Server {
    name: String,
    trusted: bool,
    pub(super) limits: Limits,
    /// Held for as long as it takes to look something up or to put another list in its place.
    listed: RwLock<Arc<Listed>>,
    pub(super) session: Session,
    stderr: Tail,
    /// None where there is no process of ours.
    gone: Option<Gone>,
    _draining: Option<Draining>,
}

/// What came of one try at a call.
#[derive(Debug)]
pub(crate) enum Attempt {
    Settled(Dispatch),
    /// The connection had ended before: nothing was called.
    NotSent(Closed),
    /// It ended between the call and its answer.
    Lost(Closed),
}

/// What the server had when it was last asked.
#[derive(Debug)]
struct Listed {
    tools: BTreeMap<ToolId, ToolSpec>,
    as_tasks: BTreeSet<ToolId>,
    left_out: Vec<LeftOut>,
}

/// Why a server has no tools for us, for who configured it.
#[derive(Debug, thiserror::Error)]
#[error("connect to MCP server `{server}`: {why}")]
pub struct ConnectError {
    pub server: String,
    pub why: ConnectFailure,
    /// The end of what the server wrote to its standard error. It may hold secrets of the server's.
    pub stderr: String,
}

#[derive(Debug, thiserror::Error)]
pub enum ConnectFailure {
    #[error("a server's name has 1 to 64 bytes, no `:` and no control characters; rename it")]
    BadName,
    #[error("cannot start its command; see that the command is installed, on PATH, and its folder exists")]
    Start(#[source] io::Error),
    #[error(transparent)]
    BadAddress(#[from] BadAddress),
    #[error("it wants a login; run `cellmate servers login {server}`")]
    LoginNeeded { server: String },
    #[error("it was not ready within {} ms; see what it wrote to its standard error, or raise the limit", .0.as_millis())]
    Deadline(Duration),
    #[error("{0}; see what it wrote to its standard error")]
    Closed(Closed),
    #[error("{0}; see that its address is right and that it runs there")]
    NotThere(Closed),
    #[error("it refused: {message} (code {code})")]
    Refused { code: i32, message: String },
    #[error(
        "it does not speak MCP as we know it; see that the command starts an MCP server on standard input and output, or that the address is that of its MCP endpoint"
    )]
    Confused,
    #[error(transparent)]
    TooMuch(#[from] TooMuch),
}

impl Server {
    /// Starts the server, shakes hands and lists what it has, all before the deadline.
    pub async fn connect(spec: ServerSpec) -> Result<Arc<Self>, ConnectError> {
        let stderr = Tail::default();
        let connecting = tokio::time::timeout(spec.limits.connect, connect(&spec, &stderr)).await;
        connecting
            .unwrap_or(Err(ConnectFailure::Deadline(spec.limits.connect)))
            .map(Arc::new)
            .map_err(|why| ConnectError::new(&spec.name, why, &stderr))
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The end of what the server wrote to its standard error, for its operator. Never for a cell.
    pub fn stderr_tail(&self) -> String {
        self.stderr.text()
    }

    /// Tools that were listed but break a limit.
    pub fn left_out(&self) -> Vec<LeftOut> {
        self.listed().left_out.clone()
    }

    /// Why calls cannot succeed any more; none while the connection stands.
    pub fn why_closed(&self) -> Option<Closed> {
        self.session.why_closed()
    }

    /// Resolves when the connection ends, at once where it has.
    pub fn closed(&self) -> impl Future<Output = Closed> + Send + use<> {
        self.session.closed()
    }

    /// How often the server has said that its tools changed. What changed is for `relist` to find out.
    pub fn heard(&self) -> watch::Receiver<u64> {
        self.session.list_changes()
    }

    /// Lists again within the same limits. A list that breaks them leaves the one before in place.
    pub async fn relist(&self) -> Result<Vec<ToolSpec>, ConnectError> {
        let limit = self.limits.connect;
        let listing = tokio::time::timeout(limit, list(&self.session, &self.name, self.trusted, &self.limits)).await;
        match listing.unwrap_or(Err(ConnectFailure::Deadline(limit))) {
            Ok(listed) => {
                let tools = listed.tools.values().cloned().collect();
                *self.listed.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(listed);
                Ok(tools)
            }
            Err(why) => Err(ConnectError::new(&self.name, why, &self.stderr)),
        }
    }

    /// Ends the connection, and the process where there is one, whoever else still holds this. Calls under way are lost.
    pub(crate) fn hang_up(&self) {
        self.session.hang_up();
    }

    /// Resolves when the process and all it started are gone; at once where there is none.
    pub(crate) fn gone(&self) -> impl Future<Output = ()> + Send + use<> {
        let gone = self.gone.clone();
        async move {
            if let Some(gone) = gone {
                gone.wait().await;
            }
        }
    }

    /// Tries a call once, and leaves it to whoever supervises this server what to do if the server is no more.
    pub(crate) async fn attempt(&self, call: &AuthorizedCall) -> Attempt {
        match self.answer(call.id(), call.input(), call.key(), call.updates()).await {
            Ok(outcome) => Attempt::Settled(Dispatch::Settled(outcome)),
            Err(attempt) => attempt,
        }
    }

    /// What a call that a crash of the server caught comes to, where nobody tries it again.
    pub(crate) fn lost(&self, id: &ToolId, why: Closed) -> Outcome {
        match self.listed().tools.get(id).map(|tool| tool.repeat) {
            Some(Repeat::Always | Repeat::WithKey) => self.failed(id, &self.explain(RequestError::Closed(why))),
            Some(Repeat::Never) | None => Outcome::Unknown,
        }
    }

    fn listed(&self) -> Arc<Listed> {
        Arc::clone(&self.listed.read().unwrap_or_else(PoisonError::into_inner))
    }

    async fn answer(&self, id: &ToolId, input: &Value, key: &str, updates: &Updates) -> Result<Outcome, Attempt> {
        let listed = self.listed();
        let Some(tool) = listed.tools.get(id) else {
            return Ok(self.failed(id, "the server does not offer it"));
        };
        let (method, mut params) = match convert::request(id, tool.operation, input) {
            Ok(request) => request,
            Err(why) => return Ok(self.failed(id, &why)),
        };
        if listed.as_tasks.contains(id) {
            params.insert("task".to_owned(), Task::wanted());
        }
        let headers = convert::promoted(&tool.parameters, input);
        let request = Request { method, params, headers, key, updates: updates.clone(), deadline: self.limits.call };
        let result = match self.session.request(request).await {
            Ok(result) => match Task::begun(&result).filter(|_| tool.operation == Operation::Tool) {
                Some(Ok(task)) => {
                    let followed = self.follow(task, updates).await;
                    match self.session.why_closed() {
                        // It took the call and fell before it told how that ended.
                        Some(why) if followed.is_err() => return Err(Attempt::Lost(why)),
                        _ => followed,
                    }
                }
                Some(Err(why)) => Err(why),
                None => Ok(result),
            },
            Err(RequestError::NotSent(why)) => return Err(Attempt::NotSent(why)),
            // Whoever wants a login first has done nothing yet.
            Err(RequestError::Closed(why)) if why != Closed::LoginNeeded => return Err(Attempt::Lost(why)),
            Err(error) => Err(self.explain(error)),
        };
        Ok(match result.and_then(|result| convert::returned(tool.operation, result)) {
            Ok(returned) => Outcome::Returned(returned),
            Err(why) => self.failed(id, &why),
        })
    }

    /// What a cell may read: the server's name and its own words, nothing of ours.
    fn failed(&self, id: &ToolId, why: &str) -> Outcome {
        let tool = shown(id.name(), MAX_SHOWN_NAME_CHARS);
        Outcome::Failed(format!("`{tool}` of MCP server `{}` failed: {why}", self.name))
    }

    pub(super) fn explain(&self, error: RequestError) -> String {
        match error {
            RequestError::Refused { code, message } => format!("{} (code {code})", shown(&message, MAX_SHOWN_CHARS)),
            RequestError::Deadline(limit) => {
                let limit = limit.as_millis();
                format!("no answer within {limit} ms, so it was cancelled; it may have taken effect all the same")
            }
            RequestError::NotSent(Closed::LoginNeeded) | RequestError::Closed(Closed::LoginNeeded) => {
                format!("it wants a login; a person must run `cellmate servers login {}`", self.name)
            }
            RequestError::NotSent(why) | RequestError::Closed(why) => {
                format!("the server is not there any more: {why}; its calls fail until it is connected again")
            }
            RequestError::Confused => "it answered with something that is not a result".to_owned(),
        }
    }
}

impl ToolSource for Server {
    fn tools(&self) -> Vec<ToolSpec> {
        self.listed().tools.values().cloned().collect()
    }

    fn call(&self, call: AuthorizedCall) -> Answering<'_> {
        Box::pin(async move {
            match self.attempt(&call).await {
                Attempt::Settled(dispatch) => dispatch,
                Attempt::NotSent(why) => {
                    Dispatch::Settled(self.failed(call.id(), &self.explain(RequestError::NotSent(why))))
                }
                Attempt::Lost(why) => Dispatch::Settled(self.lost(call.id(), why)),
            }
        })
    }
}

async fn connect(spec: &ServerSpec, stderr: &Tail) -> Result<Server, ConnectFailure> {
    let bad = |c: char| c == ':' || c.is_control();
    if spec.name.is_empty() || spec.name.len() > MAX_SERVER_NAME_BYTES || spec.name.contains(bad) {
        return Err(ConnectFailure::BadName);
    }
    let (session, draining, gone) = reach(spec, stderr).await?;
    let listed = list(&session, &spec.name, spec.trusted, &spec.limits).await?;
    Ok(Server {
        name: spec.name.clone(),
        trusted: spec.trusted,
        limits: spec.limits,
        listed: RwLock::new(Arc::new(listed)),
        session,
        stderr: stderr.clone(),
        gone,
        _draining: draining,
    })
}

/// A session, what reads the server's standard error, and what tells of its process.
type Opened = (Session, Option<Draining>, Option<Gone>);

/// Starts the server or finds it at its address, and shakes hands.
async fn reach(spec: &ServerSpec, stderr: &Tail) -> Result<Opened, ConnectFailure> {
    match &spec.transport {
        Transport::Stdio { .. } => match start(spec, stderr, Era::Initialize).await {
            // It is there and says no: perhaps it is too new to know `initialize`. What it says to that counts.
            Err(refused @ ConnectFailure::Refused { .. }) => {
                start(spec, stderr, Era::Discover).await.map_err(|_| refused)
            }
            other => other,
        },
        Transport::Http { url, headers, login } => {
            let bad = || BadAddress::Url(plain_url(url));
            let url = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https")).ok_or_else(bad)?;
            let tokens = login.as_ref().map(|login| Tokens::new(&spec.name, &url, login));
            let caller = Caller::new(&url, headers, tokens)?;
            Ok((Session::open(Http::new(caller), Era::Auto).await?, None, None))
        }
    }
}

async fn start(spec: &ServerSpec, stderr: &Tail, era: Era) -> Result<Opened, ConnectFailure> {
    let Transport::Stdio { command, args, env, cwd } = &spec.transport else { return Err(ConnectFailure::Confused) };
    let started = Process::start(command, args, env, cwd.as_deref()).map_err(ConnectFailure::Start)?;
    let Started { process, stdin, stdout, stderr: said } = started;
    let (draining, gone) = (stderr.drain(said), process.gone());
    match Session::open(Stdio::new(stdout, stdin, Some(process)), era).await {
        Ok(session) => Ok((session, Some(draining), Some(gone))),
        Err(error) => {
            // The process is gone by now; why it went is on its way.
            draining.finish().await;
            Err(error.into())
        }
    }
}

async fn list(session: &Session, name: &str, trusted: bool, limits: &Limits) -> Result<Listed, ConnectFailure> {
    let has = session.capabilities();
    let mut offer = Offer::new(name, trusted, limits);
    if has.tools {
        list_tools(session, &mut offer, limits.connect).await?;
    }
    if has.resources {
        offer.resources();
    }
    if has.prompts {
        offer.prompts();
    }
    Ok(Listed { tools: offer.tools, as_tasks: offer.as_tasks, left_out: offer.left_out })
}

async fn list_tools(session: &Session, offer: &mut Offer<'_>, deadline: Duration) -> Result<(), ConnectFailure> {
    let mut params = Map::new();
    for _ in 0..MAX_PAGES {
        let request = Request {
            method: "tools/list",
            params,
            headers: Vec::new(),
            key: "",
            updates: Updates::default(),
            deadline,
        };
        let page = session.request(request).await?;
        for tool in page.get("tools").and_then(Value::as_array).ok_or(ConnectFailure::Confused)? {
            offer.tool(tool)?;
        }
        match page.get("nextCursor").and_then(Value::as_str) {
            Some(cursor) => params = Map::from_iter([("cursor".to_owned(), json!(cursor))]),
            None => return Ok(()),
        }
    }
    Err(TooMuch::Pages(MAX_PAGES).into())
}

impl ConnectError {
    fn new(server: &str, why: ConnectFailure, stderr: &Tail) -> Self {
        let server = shown(server, MAX_SHOWN_NAME_CHARS);
        let why = match why {
            ConnectFailure::Closed(Closed::LoginNeeded) => ConnectFailure::LoginNeeded { server: server.clone() },
            ConnectFailure::Closed(why @ (Closed::Unreachable | Closed::SessionGone)) => ConnectFailure::NotThere(why),
            other => other,
        };
        Self { server, why, stderr: stderr.text() }
    }
}

impl From<RequestError> for ConnectFailure {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Refused { code, message } => {
                Self::Refused { code, message: shown(&message, MAX_SHOWN_CHARS) }
            }
            RequestError::NotSent(why) | RequestError::Closed(why) => Self::Closed(why),
            RequestError::Confused => Self::Confused,
            RequestError::Deadline(limit) => Self::Deadline(limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;
    use std::sync::{Arc, Mutex};

    use contract::tool::ToolId;
    use executor::{Outcome, Updates};
    use serde_json::json;

    use super::{Era, Limits, Offer, Server, ServerSpec, Tail, Transport, list_tools, start};

    /// A real server, run as users configure it.
    fn peer(command: &str, args: &[&str], cwd: &str) -> ServerSpec {
        let peers = PathBuf::from(std::env::var_os("CELLMATE_PEERS").expect("run this through `make test-peers`"));
        ServerSpec {
            name: "peer".to_owned(),
            transport: Transport::Stdio {
                command: command.replace("PEERS", peers.to_str().unwrap()),
                args: args.iter().map(|arg| (*arg).to_owned()).collect(),
                env: BTreeMap::new(),
                cwd: Some(peers.join(cwd)),
            },
            trusted: true,
            limits: Limits::DEFAULT,
        }
    }

    /// Here and not beside the other peers because the door gives calls no listener yet.
    #[tokio::test]
    #[ignore = "needs installed servers; run through `make test-peers`"]
    async fn peer_everything_reports_progress_to_the_call_that_makes_it() {
        let spec = peer("npx", &["--no-install", "mcp-server-everything", "stdio"], "npm");
        let server = Server::connect(spec).await.unwrap_or_else(|error| panic!("{error}\n{}", error.stderr));
        let heard = Arc::new(Mutex::new(Vec::new()));
        let updates = Updates::to({
            let heard = Arc::clone(&heard);
            move |update| heard.lock().unwrap().push(update)
        });
        let id = ToolId::parse("mcp:peer:trigger-long-running-operation").unwrap();
        let outcome = server.answer(&id, &json!({"duration": 1, "steps": 4}), "key", &updates).await.unwrap();
        println!("{outcome:?}\n{heard:?}");
        assert!(matches!(outcome, Outcome::Returned(_)), "{outcome:?}");
        assert_eq!(heard.lock().unwrap().len(), 4);
    }

    /// The newer way to begin, with a server that also knows the older one and so would not be asked for it.
    #[tokio::test]
    #[ignore = "needs installed servers; run through `make test-peers`"]
    async fn peer_time_is_met_without_initialize_too() {
        let spec = peer("PEERS/python/bin/mcp-server-time", &[], "python");
        let (session, _draining, _gone) = start(&spec, &Tail::default(), Era::Discover).await.unwrap();
        let mut offer = Offer::new("peer", true, &spec.limits);
        list_tools(&session, &mut offer, spec.limits.connect).await.unwrap();
        println!("{:?}", offer.tools.keys());
        assert_eq!(offer.tools.len(), 2);
    }
}
