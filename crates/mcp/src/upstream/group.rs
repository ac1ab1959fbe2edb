//! All of a user's servers. A failure of one server does not affect the others.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use executor::{StandingApprovals, ToolSource};
use futures_util::future::join_all;
use tokio::sync::{Semaphore, watch};

use super::server::Upstream;
use super::start::Unavailable;
use super::status::Status;
use super::supervisor::UpstreamOptions;
use crate::client::ServerSpec;

/// How many servers are started at the same time for a first listing: each is a process, often an interpreter.
const STARTED_AT_ONCE: usize = 8;

/// How long a start counts towards that limit. A slower start is not waiting for this machine's cores, so others need
/// not wait for it.
const PLACE_HELD: Duration = Duration::from_secs(2);

/// How long a first listing may take beyond the server's own deadline.
const SLACK: Duration = Duration::from_secs(1);

/// The configured servers by name.
#[derive(Debug)]
pub struct Upstreams {
    servers: BTreeMap<String, Arc<Upstream>>,
    changes: Arc<watch::Sender<u64>>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownServer {
    #[error("no MCP server is named `{0}`; run `cellmate servers list` to see the configured servers")]
    Named(String),
}

impl Upstreams {
    /// Creates the group without starting any server. Of two servers with the same name the first is used.
    pub fn new(specs: Vec<ServerSpec>, options: &UpstreamOptions) -> Self {
        let empty = Self { servers: BTreeMap::new(), changes: Arc::new(watch::Sender::new(0)) };
        empty.reconfigured(specs, options).0
    }

    /// Returns the group for a changed configuration, and the servers that are no longer part of it. A server with the
    /// same specification is the same one, running or not. The caller removes the others.
    pub fn reconfigured(&self, specs: Vec<ServerSpec>, options: &UpstreamOptions) -> (Self, Vec<Arc<Upstream>>) {
        let mut servers = BTreeMap::new();
        for spec in specs {
            let kept = self.servers.get(&spec.name).filter(|server| server.has_spec(&spec));
            servers.entry(spec.name.clone()).or_insert_with(|| match kept {
                Some(kept) => Arc::clone(kept),
                None => Upstream::in_group(spec, options.clone(), Some(Arc::clone(&self.changes))),
            });
        }
        let is_kept = |server: &Arc<Upstream>| servers.get(server.name()).is_some_and(|now| Arc::ptr_eq(now, server));
        let removed = self.servers.values().filter(|server| !is_kept(server)).cloned().collect();
        (Self { servers, changes: Arc::clone(&self.changes) }, removed)
    }

    pub fn get(&self, name: &str) -> Result<&Arc<Upstream>, UnknownServer> {
        self.servers.get(name).ok_or_else(|| UnknownServer::Named(name.to_owned()))
    }

    /// Returns all servers, ordered by name.
    pub fn all(&self) -> impl Iterator<Item = &Upstream> {
        self.servers.values().map(Arc::as_ref)
    }

    /// Returns the servers as tool sources, ordered by name.
    pub fn sources(&self) -> Vec<Arc<dyn ToolSource>> {
        self.servers.values().cloned().map(|server| -> Arc<dyn ToolSource> { server }).collect()
    }

    /// Returns a counter that increases whenever the tools of any server change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Ensures that every server has a listing. It starts a few servers at a time, each with its own deadline. Returns
    /// the servers that failed; the others stay usable.
    pub async fn listed(&self) -> Vec<(String, Unavailable)> {
        self.listed_each(|_, _, _| {}).await
    }

    /// Does the same as [`Self::listed`], and calls `finished` for each server as soon as it has a listing or failed.
    pub async fn listed_each(
        &self,
        finished: impl Fn(&Upstream, Option<&Unavailable>, Duration) + Sync,
    ) -> Vec<(String, Unavailable)> {
        self.listed_within(|_| None, finished).await
    }

    /// Lists the tools of all servers like [`Self::listed_each`], but waits for a server no longer than `patience`
    /// returns; `None` is the server's own limit. A server that takes longer continues to start, and with no patience
    /// at all it is not started.
    pub async fn listed_within(
        &self,
        patience: impl Fn(&Upstream) -> Option<Duration> + Sync,
        finished: impl Fn(&Upstream, Option<&Unavailable>, Duration) + Sync,
    ) -> Vec<(String, Unavailable)> {
        let patience = &patience;
        let (began, finished) = (Instant::now(), &finished);
        let places = Semaphore::new(STARTED_AT_ONCE);
        let places = &places;
        let list = |server: Arc<Upstream>| async move {
            let patience = patience(&server);
            if patience.is_some_and(|patience| patience.is_zero()) && !server.has_listing() {
                let why = server.last_failure();
                finished(&server, Some(&why), began.elapsed());
                return Some((server.name().to_owned(), why));
            }
            let place = places.acquire().await;
            let deadline = patience.unwrap_or_else(|| server.connect_limit() + SLACK);
            let mut listing = pin!(tokio::time::timeout(deadline, server.listed()));
            let listed = match tokio::time::timeout(PLACE_HELD, &mut listing).await {
                Ok(listed) => listed,
                Err(_) => {
                    drop(place);
                    listing.await
                }
            };
            let why = listed.unwrap_or(Err(Unavailable::StillStarting { seconds: deadline.as_secs() })).err();
            finished(&server, why.as_ref(), began.elapsed());
            Some((server.name().to_owned(), why?))
        };
        let servers: Vec<_> = self.servers.values().cloned().collect();
        let mut missing: Vec<_> = join_all(servers.into_iter().map(list)).await.into_iter().flatten().collect();
        missing.sort_by(|(one, _), (other, _)| one.cmp(other));
        missing
    }

    /// Lists the tools of one server again, and starts it if necessary.
    pub async fn refresh(&self, name: &str) -> Result<Result<(), Unavailable>, UnknownServer> {
        Ok(self.get(name)?.refresh().await)
    }

    /// Returns the servers that are starting and may be downloading their packages.
    pub fn downloading(&self) -> impl Iterator<Item = &Upstream> {
        self.all().filter(|server| server.may_be_downloading())
    }

    /// Waits until those servers have listed their tools or failed. Returns the ones that failed.
    pub async fn finish_downloads(&self) -> Vec<(String, Unavailable)> {
        let finished = self
            .downloading()
            .map(|server| async move { Some((server.name().to_owned(), server.listed().await.err()?)) });
        join_all(finished).await.into_iter().flatten().collect()
    }

    /// Lets servers that may be downloading their packages finish that, for a limited time, when they are stopped, also
    /// after this process has ended. Otherwise the next start would begin again.
    pub fn leave_downloads(&self) {
        self.all().for_each(Upstream::leave_download);
    }

    /// Stops all servers permanently: closes their input, waits a moment, then terminates and finally kills them. Calls
    /// in progress are lost.
    pub async fn stop_all(&self) {
        join_all(self.servers.values().map(|server| server.retire())).await;
    }

    pub fn statuses(&self) -> Vec<Status> {
        self.statuses_against(&StandingApprovals::default())
    }

    /// Returns the statuses of all servers, including the tools whose definition differs from the approved one.
    pub fn statuses_against(&self, approved: &StandingApprovals) -> Vec<Status> {
        self.servers.values().map(|server| server.status_against(approved)).collect()
    }
}
