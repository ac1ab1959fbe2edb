//! A connected MCP server: its tools, and calls to them.

mod call;
mod connect;
mod texts;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use contract::tool::{ToolId, ToolSpec};
use executor::{AuthorizedCall, CallFuture, CancelFuture, Dispatch, Outcome, ParkedCall, ToolSource};
use parking_lot::RwLock;
use process::{MayFinish, ProcessExit, StderrReader, Tail};
use tokio::sync::watch;

use crate::client::catalog::LeftOutTool;
use crate::client::spec::{HintTrust, Limits, ServerSpec};
use crate::client::{DisconnectReason, FollowOutcome, RequestError, Session, TicketContent};
use connect::{StartContext, connect, list, origin};

pub use connect::{CHECK_STDERR, ConnectError, ConnectFailure};

/// A connected server. Dropping it ends its process and everything that the process started in its group.
#[derive(Debug)]
pub struct Server {
    name: String,
    /// The hash that [`ServerSpec::identity`] returns.
    identity: String,
    hints: HintTrust,
    pub(super) limits: Limits,
    /// Locked only to read or replace the listing.
    listed: RwLock<Arc<ServerListing>>,
    pub(super) session: Session,
    stderr: Tail,
    /// `None` for a remote server, which has no local process.
    exit: Option<ProcessExit>,
    _stderr_reader: Option<StderrReader>,
}

/// The result of trying a call once.
#[derive(Debug)]
pub(crate) enum Attempt {
    Settled(Dispatch),
    /// The connection had already ended: the call was not sent.
    NotSent(DisconnectReason),
    /// The connection ended between the call and its response.
    Lost(DisconnectReason),
}

/// The server's last listing.
#[derive(Debug)]
struct ServerListing {
    tools: BTreeMap<ToolId, ToolSpec>,
    as_tasks: BTreeSet<ToolId>,
    left_out: Vec<LeftOutTool>,
}

impl Server {
    /// Starts or reaches the server, performs the handshake and lists its tools, all within the deadline.
    pub async fn connect(spec: ServerSpec) -> Result<Arc<Self>, ConnectError> {
        Self::connect_with(spec, MayFinish::default()).await
    }

    /// Connects like [`Self::connect`]. If the future is dropped after `may_finish` was set, the process may finish what it
    /// does, such as a download.
    pub(crate) async fn connect_with(spec: ServerSpec, may_finish: MayFinish) -> Result<Arc<Self>, ConnectError> {
        spec.register_secrets();
        let context = StartContext { may_finish, address: origin(&spec.transport), ..StartContext::default() };
        let connecting = tokio::time::timeout(spec.limits.connect, connect(&spec, &context)).await;
        connecting
            .unwrap_or(Err(ConnectFailure::Deadline(spec.limits.connect)))
            .map(Arc::new)
            .map_err(|why| ConnectError::new(&spec.name, why, &context).with_not_passed(&spec.transport))
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the negotiated protocol revision.
    pub fn revision(&self) -> Option<String> {
        self.session.revision()
    }

    /// Returns the end of the server's standard error, for its operator. It must never reach a cell.
    pub fn stderr_tail(&self) -> String {
        self.stderr.text()
    }

    /// Returns the listed tools that exceed a limit.
    pub fn left_out(&self) -> Vec<LeftOutTool> {
        self.listed().left_out.clone()
    }

    /// Returns why the connection ended, or `None` while it is open.
    pub fn why_closed(&self) -> Option<DisconnectReason> {
        self.session.why_closed()
    }

    /// Completes when the connection ends; at once if it has ended.
    pub fn closed(&self) -> impl Future<Output = DisconnectReason> + Send + use<> {
        self.session.closed()
    }

    /// Returns a counter of the server's change notifications. `relist` finds out what changed.
    pub fn list_changes(&self) -> watch::Receiver<u64> {
        self.session.list_changes()
    }

    /// Lists the tools again within the same limits. If the new list exceeds them, the previous one stays.
    pub async fn relist(&self) -> Result<Vec<ToolSpec>, ConnectError> {
        let limit = self.limits.connect;
        let listing = tokio::time::timeout(limit, list(&self.session, &self.name, self.hints, &self.limits)).await;
        match listing.unwrap_or(Err(ConnectFailure::Deadline(limit))) {
            Ok(listed) => {
                let tools = listed.tools.values().cloned().collect();
                *self.listed.write() = Arc::new(listed);
                Ok(tools)
            }
            Err(why) => {
                let context = StartContext { stderr: self.stderr.clone(), ..StartContext::default() };
                Err(ConnectError::new(&self.name, why, &context))
            }
        }
    }

    /// Ends the connection, and the process if there is one, even if other owners hold this server. Calls in progress
    /// are lost.
    pub(crate) fn hang_up(&self) {
        self.session.hang_up();
    }

    /// Completes when the process and everything that it started have ended; at once if there is no process.
    pub(crate) fn exited(&self) -> impl Future<Output = ()> + Send + use<> {
        let exit = self.exit.clone();
        async move {
            if let Some(exit) = exit {
                let _end = exit.wait().await;
            }
        }
    }

    fn listed(&self) -> Arc<ServerListing> {
        Arc::clone(&self.listed.read())
    }
}

/// A single connection as a tool source. It does not reconnect.
impl ToolSource for Server {
    fn tools(&self) -> Vec<ToolSpec> {
        self.listed().tools.values().cloned().collect()
    }

    fn identity(&self) -> Option<String> {
        Some(self.identity.clone())
    }

    fn call(&self, call: AuthorizedCall) -> CallFuture<'_> {
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

    fn follow(&self, parked: ParkedCall) -> CallFuture<'_> {
        Box::pin(async move {
            let Some(mut timed) = TicketContent::read(parked.ticket()).and_then(TicketContent::task) else {
                return Dispatch::Settled(Outcome::Unknown);
            };
            match self.follow_task(&parked, &mut timed).await {
                FollowOutcome::Over(dispatch) => dispatch,
                FollowOutcome::Lost(why) => Dispatch::Settled(self.lost(parked.id(), why)),
            }
        })
    }

    fn cancel(&self, parked: ParkedCall) -> CancelFuture<'_> {
        Box::pin(async move {
            if let Some(timed) = TicketContent::read(parked.ticket()).and_then(TicketContent::task) {
                self.cancel_task(&timed.task).await;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;
    use std::sync::{Arc, Mutex};

    use contract::tool::ToolId;
    use executor::{Dispatch, Outcome, ProgressSink, QuestionSender};
    use process::ResponseSlot;
    use serde_json::{Map, json};

    use super::call::CallParts;
    use super::connect::{StartContext, list_tools, start};
    use super::{HintTrust, Limits, Server, ServerSpec};
    use crate::client::Handshake;
    use crate::client::catalog::Offer;
    use crate::client::spec::Transport;

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

    /// This test is here and not with the other peers, because it calls the private `rounds` with a `ProgressSink`.
    #[tokio::test]
    #[ignore = "needs installed servers; run through `make test-peers`"]
    async fn peer_everything_reports_progress_to_the_call_that_makes_it() {
        let spec = peer("npx", &["--no-install", "mcp-server-everything", "stdio"], "npm");
        let server = Server::connect(spec).await.unwrap_or_else(|error| panic!("{error}\n{}", error.stderr));
        let received = Arc::new(Mutex::new(Vec::new()));
        let updates = ProgressSink::to({
            let received = Arc::clone(&received);
            move |update| received.lock().unwrap().push(update)
        });
        let id = ToolId::parse("mcp:peer:trigger-long-running-operation").unwrap();
        let (input, asker) = (json!({"duration": 1, "steps": 4}), QuestionSender::default());
        let slot = ResponseSlot::default();
        let made = CallParts { id: &id, input: &input, key: "key", updates: &updates, asker: &asker, slot: &slot };
        let outcome = server.rounds(&made, Map::new()).await.unwrap();
        println!("{outcome:?}\n{received:?}");
        assert!(matches!(outcome, Dispatch::Settled(Outcome::Returned(_))), "{outcome:?}");
        assert_eq!(received.lock().unwrap().len(), 4);
    }

    /// Uses the newer handshake with a server that also supports the older one, which `connect` would prefer.
    #[tokio::test]
    #[ignore = "needs installed servers; run through `make test-peers`"]
    async fn peer_time_connects_without_initialize_too() {
        let spec = peer("PEERS/python/bin/mcp-server-time", &[], "python");
        let (session, _stderr_reader, _exit) =
            start(&spec, &StartContext::default(), Handshake::Discover).await.unwrap();
        let mut offer = Offer::new("peer", HintTrust::Trusted, &spec.limits);
        list_tools(&session, &mut offer, spec.limits.connect).await.unwrap();
        println!("{:?}", offer.tools.keys());
        assert_eq!(offer.tools.len(), 2);
    }
}
