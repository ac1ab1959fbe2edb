//! The subscription to a server's changes: since 2026-07-28 a server sends them only on a request that stays open.

use std::time::Duration;

use executor::ProgressSink;
use process::ResponseSlot;
use rmcp::RoleClient;
use rmcp::model::{ClientRequest, CustomRequest};
use rmcp::service::{Peer, PeerRequestOptions, RunningService, Service, ServiceError};
use serde_json::json;
use tokio::task::JoinHandle;

use super::gate::Sink;
use crate::client::disconnect::FirstDisconnect;

/// The first revision with subscriptions.
const SINCE: &str = "2026-07-28";

/// How often in a row the request may end at once before the client stops repeating it.
const MAX_TIMES: u32 = 8;
const PAUSE: Duration = Duration::from_millis(500);
/// A request that stayed open this long counts as successful.
const WORKED: Duration = Duration::from_secs(10);

/// The task that keeps a subscription open. It ends with the connection.
#[derive(Debug)]
pub(super) struct Subscription(JoinHandle<()>);

impl Drop for Subscription {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Subscription {
    /// Starts a subscription. Returns `None` if the server has an older revision or does not announce changes.
    pub(super) fn of<S: Service<RoleClient>>(
        running: &RunningService<RoleClient, S>,
        closed: &FirstDisconnect,
    ) -> Option<Self> {
        let info = running.peer_info()?;
        let changes = info.capabilities.tools.as_ref()?.list_changed?;
        if !changes || info.protocol_version.as_str() < SINCE {
            return None;
        }
        Some(Self(tokio::spawn(keep(running.peer().clone(), closed.clone()))))
    }
}

async fn keep(peer: Peer<RoleClient>, closed: FirstDisconnect) {
    let mut times = 0;
    while times < MAX_TIMES {
        let began = tokio::time::Instant::now();
        let ended = tokio::select! {
            ended = listen(&peer) => ended,
            _ = closed.wait() => return,
        };
        match ended {
            // The server rejects subscriptions; it would do so again.
            Err(ServiceError::McpError(_)) if began.elapsed() < WORKED => return,
            _ if began.elapsed() >= WORKED => times = 0,
            _ => times += 1,
        }
        tokio::time::sleep(PAUSE.saturating_mul(1 << times)).await;
    }
}

async fn listen(peer: &Peer<RoleClient>) -> Result<(), ServiceError> {
    let params = json!({"notifications": {"toolsListChanged": true}});
    let mut request = CustomRequest::new("subscriptions/listen", Some(params));
    request.extensions.insert(Sink {
        updates: ProgressSink::default(),
        headers: Vec::new(),
        slot: ResponseSlot::default(),
    });
    let options = PeerRequestOptions::no_options();
    let handle = peer.send_request_with_option(ClientRequest::CustomRequest(request), options).await?;
    handle.rx.await.map_err(|_| ServiceError::TransportClosed)?.map(|_| ())
}
