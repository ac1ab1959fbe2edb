//! All of a user's servers. What one of them does is never another's trouble.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use executor::{Approved, ToolSource};
use futures_util::future::join_all;
use tokio::sync::{Semaphore, watch};

use super::one::{Unavailable, Upstream, UpstreamOptions};
use super::status::Status;
use crate::client::ServerSpec;

/// How many servers are started at once for a first listing: each is a process, often an interpreter.
const STARTED_AT_ONCE: usize = 8;

/// A start that takes longer waits for something else than our cores, and others need not wait for it.
const PLACE_HELD: Duration = Duration::from_secs(2);

/// What a first listing may take beyond the server's own deadline.
const SLACK: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Upstreams {
    servers: BTreeMap<String, Arc<Upstream>>,
    changes: Arc<watch::Sender<u64>>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownServer {
    #[error("no MCP server is called `{0}`; see `servers list` for those there are")]
    Named(String),
}

impl Upstreams {
    /// Nothing is started. Of two servers with one name the first is taken.
    pub fn new(specs: Vec<ServerSpec>, options: &UpstreamOptions) -> Self {
        let changes = Arc::new(watch::Sender::new(0));
        let mut servers = BTreeMap::new();
        for spec in specs {
            let with_progress_sink = Some(Arc::clone(&changes));
            let name = spec.name.clone();
            servers
                .entry(name)
                .or_insert_with(|| Upstream::with_progress_sink(spec, options.clone(), with_progress_sink));
        }
        Self { servers, changes }
    }

    pub fn get(&self, name: &str) -> Result<&Arc<Upstream>, UnknownServer> {
        self.servers.get(name).ok_or_else(|| UnknownServer::Named(name.to_owned()))
    }

    /// In the order of their names.
    pub fn sources(&self) -> Vec<Arc<dyn ToolSource>> {
        self.servers.values().cloned().map(|server| -> Arc<dyn ToolSource> { server }).collect()
    }

    /// Moves whenever the tools of any server are others than before.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Sees to it that every server has a listing, some at a time, none for longer than its own deadline. Those that
    /// cannot be had are named, and are no reason to do without the others.
    pub async fn listed(&self) -> Vec<(String, Unavailable)> {
        let places = Semaphore::new(STARTED_AT_ONCE);
        let places = &places;
        let list = |server: Arc<Upstream>| async move {
            let place = places.acquire().await;
            let deadline = server.spec.limits.connect + SLACK;
            let mut listing = pin!(tokio::time::timeout(deadline, server.listed()));
            let listed = match tokio::time::timeout(PLACE_HELD, &mut listing).await {
                Ok(listed) => listed,
                Err(_) => {
                    drop(place);
                    listing.await
                }
            };
            let late = || Err(Unavailable::NotStarted("it was not ready in time".into()));
            let why = listed.unwrap_or_else(|_| late()).err()?;
            Some((server.name().to_owned(), why))
        };
        let servers: Vec<_> = self.servers.values().cloned().collect();
        let mut missing: Vec<_> = join_all(servers.into_iter().map(list)).await.into_iter().flatten().collect();
        missing.sort_by(|(one, _), (other, _)| one.cmp(other));
        missing
    }

    /// Has one server list its tools now, started where it must be.
    pub async fn refresh(&self, name: &str) -> Result<Result<(), Unavailable>, UnknownServer> {
        Ok(self.get(name)?.refresh().await)
    }

    /// Stops all servers for good: input closed, a moment to end, told to, killed. Calls under way are lost.
    pub async fn stop_all(&self) {
        join_all(self.servers.values().map(|server| server.retire())).await;
    }

    pub fn statuses(&self) -> Vec<Status> {
        self.statuses_against(&Approved::default())
    }

    /// The statuses, and which tools are no longer what people agreed to.
    pub fn statuses_against(&self, approved: &Approved) -> Vec<Status> {
        self.servers.values().map(|server| server.status_against(approved)).collect()
    }
}
