//! The HTTP transport for `rmcp`: every message is an HTTP request, answered by a message or a stream of messages.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use process::{CLOSE_GRACE, LargeMessages};
use rmcp::RoleClient;
use rmcp::model::{ClientNotification, JsonRpcMessage, RequestId, ServerResult};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};

use super::exchange::{self, Arrival};
use super::gate::{Gate, Sink, accepts_large};
use super::headers;
use crate::client::disconnect::DisconnectReason;
use crate::client::http::{Body, Caller, Content, Failure, PostRequest};
use crate::client::spec::MAX_EXCHANGES;

/// The transport over HTTP requests.
#[derive(Debug)]
pub(crate) struct Http {
    caller: Arc<Caller>,
    pub(super) gate: Gate,
    arrived: mpsc::Receiver<Arrival>,
    sender: mpsc::Sender<Arrival>,
    /// All requests in progress. They are aborted with the transport.
    tasks: JoinSet<()>,
    /// The task that waits for the response, by request id.
    waiting: HashMap<i64, AbortHandle>,
    turns: Arc<Semaphore>,
    /// Whether the revision has no sessions; a request is then cancelled by closing its stream.
    modern: bool,
}

impl Http {
    pub(crate) fn new(caller: Caller) -> Self {
        // A capacity of one: waiting messages take memory.
        let (sender, arrived) = mpsc::channel(1);
        Self {
            caller: Arc::new(caller),
            gate: Gate::new(),
            arrived,
            sender,
            tasks: JoinSet::new(),
            waiting: HashMap::new(),
            turns: Arc::new(Semaphore::new(MAX_EXCHANGES)),
            modern: false,
        }
    }

    fn post(&mut self, message: &TxJsonRpcMessage<RoleClient>) {
        let Ok(value) = serde_json::to_value(message) else { return };
        let header_arguments = match message {
            JsonRpcMessage::Request(request) => Sink::of(&request.request).map(|listener| listener.headers),
            JsonRpcMessage::Response(_) | JsonRpcMessage::Notification(_) | JsonRpcMessage::Error(_) => None,
        };
        let version = value.pointer("/params/_meta/io.modelcontextprotocol~1protocolVersion").and_then(Value::as_str);
        let posted = PostRequest {
            headers: headers::for_message(&value, version, header_arguments.unwrap_or_default()),
            version: version.map(str::to_owned),
            body: value.to_string().into_bytes(),
            large: LargeMessages::accepted_if(
                matches!(message, JsonRpcMessage::Request(request) if accepts_large(&request.request)),
            ),
        };
        let id = match message {
            JsonRpcMessage::Request(request) => number(&request.id),
            JsonRpcMessage::Response(_) | JsonRpcMessage::Notification(_) | JsonRpcMessage::Error(_) => None,
        };
        // A subscription stays open as long as the connection, so it does not count as a concurrent request.
        let stays = value.get("method").and_then(Value::as_str) == Some("subscriptions/listen");
        let turns = (id.is_some() && !stays).then(|| Arc::clone(&self.turns));
        let (caller, sender) = (Arc::clone(&self.caller), self.sender.clone());
        let task = self.tasks.spawn(async move {
            let _turn = match turns {
                Some(turns) => turns.acquire_owned().await.ok(),
                None => None,
            };
            exchange::exchange(&caller, id, &posted, &sender).await;
        });
        if let Some(id) = id {
            self.waiting.insert(id, task);
        }
    }

    /// Opens the stream on which servers of the older revisions send messages on their own.
    fn listen(&mut self) {
        let (caller, sender) = (Arc::clone(&self.caller), self.sender.clone());
        self.tasks.spawn(async move { exchange::listen(&caller, &sender).await });
    }

    /// Aborts the request that a cancellation names. Returns whether there was one.
    fn abort_cancelled(&mut self, message: &TxJsonRpcMessage<RoleClient>) -> bool {
        let JsonRpcMessage::Notification(notification) = message else { return false };
        let ClientNotification::CancelledNotification(cancelled) = &notification.notification else { return false };
        let task = cancelled.params.request_id.as_ref().and_then(number).and_then(|id| self.waiting.remove(&id));
        task.inspect(AbortHandle::abort).is_some()
    }

    fn on_arrived(&mut self, arrived: Arrival) -> Result<Option<RxJsonRpcMessage<RoleClient>>, DisconnectReason> {
        let message = match arrived {
            Arrival::Message(Body { content: Content::Whole(text), share }) => self.gate.take(text, Some(share))?,
            Arrival::Message(Body { content: Content::Large(message), share }) => {
                self.gate.take_large(message, Some(share))?
            }
            Arrival::Failed(_, Failure::Closed(why)) => return Err(why),
            // The stream of the server's own messages cannot be read on, and it may have been any message.
            Arrival::Failed(None, Failure::TooLong) => return Err(DisconnectReason::FrameTooLong),
            Arrival::Failed(id, failure) => id.and_then(|id| self.gate.failed(id, failure)),
        };
        Ok(message)
    }

    /// Records the outcome of the handshake, and that a request has been answered.
    fn on_response(&mut self, message: &RxJsonRpcMessage<RoleClient>) {
        match message {
            JsonRpcMessage::Response(response) => {
                match &response.result {
                    ServerResult::InitializeResult(initialized) => {
                        self.caller.set_version(initialized.protocol_version.as_str());
                    }
                    ServerResult::DiscoverResult(_) => self.modern = true,
                    _ => {}
                }
                if let Some(id) = number(&response.id) {
                    self.waiting.remove(&id);
                }
            }
            JsonRpcMessage::Error(error) => {
                if let Some(id) = error.id.as_ref().and_then(number) {
                    self.waiting.remove(&id);
                }
            }
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => {}
        }
    }
}

impl Transport<RoleClient> for Http {
    type Error = Infallible;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
        while self.tasks.try_join_next().is_some() {}
        self.gate.on_send(&message);
        let aborted = self.abort_cancelled(&message);
        if !(aborted && self.modern) {
            self.post(&message);
        }
        if let JsonRpcMessage::Notification(notification) = &message
            && matches!(notification.notification, ClientNotification::InitializedNotification(_))
        {
            self.listen();
        }
        std::future::ready(Ok(()))
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            if self.gate.closed.get().is_some() {
                return None;
            }
            if let Some(answer) = self.gate.ready() {
                self.on_response(&answer);
                return Some(answer);
            }
            let received = match self.gate.is_reading() {
                true => self.gate.parse().await,
                // The channel stays open, because `self.sender` is held here.
                false => {
                    let arrived = self.arrived.recv().await?;
                    self.on_arrived(arrived)
                }
            };
            match received {
                Ok(Some(message)) => {
                    self.on_response(&message);
                    return Some(message);
                }
                Ok(None) => {}
                Err(why) => self.gate.closed.set(why),
            }
        }
    }

    async fn close(&mut self) -> Result<(), Infallible> {
        self.tasks.abort_all();
        if self.gate.closed.get().is_none() {
            if tokio::time::timeout(CLOSE_GRACE, self.caller.end()).await.is_err() {
                tracing::debug!("an MCP server did not end its session in time");
            }
            self.gate.closed.set(DisconnectReason::Ended);
        }
        Ok(())
    }
}

fn number(id: &RequestId) -> Option<i64> {
    match id {
        RequestId::Number(id) => Some(*id),
        RequestId::String(_) => None,
    }
}
