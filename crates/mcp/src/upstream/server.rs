//! A configured server, running or not, as a tool source.

use std::sync::Arc;
use std::time::Duration;

use catalog::UnavailableServer;
use contract::tool::ToolSpec;
use executor::{AuthorizedCall, CallFuture, CancelFuture, ParkedCall, StandingApprovals, ToolSource};
use process::{Event, Phase};
use tokio::sync::watch;

use super::calls;
use super::start::{self, Unavailable};
use super::status::Status;
use super::supervisor::{Supervisor, UpstreamOptions};
use crate::client::ServerSpec;

/// A configured server as a tool source. The server is started when it is needed.
#[derive(Debug)]
pub struct Upstream {
    supervisor: Arc<Supervisor>,
}

impl Upstream {
    /// Reads the cached listing, if there is one. The server is not started.
    pub fn new(spec: ServerSpec, options: UpstreamOptions) -> Arc<Self> {
        Self::in_group(spec, options, None)
    }

    /// Creates a server whose changes are also counted for its group.
    pub(super) fn in_group(
        spec: ServerSpec,
        options: UpstreamOptions,
        group_changes: Option<Arc<watch::Sender<u64>>>,
    ) -> Arc<Self> {
        Arc::new(Self { supervisor: Supervisor::new(spec, options, group_changes) })
    }

    pub fn name(&self) -> &str {
        self.supervisor.name()
    }

    /// Returns how long the server may take from its start to having listed its tools.
    pub(super) fn connect_limit(&self) -> Duration {
        self.supervisor.spec.limits.connect
    }

    /// Whether its command may download a package before the server runs.
    pub fn may_download(&self) -> bool {
        self.supervisor.spec.transport.may_download()
    }

    /// Whether there is a listing, possibly a cached one.
    pub(super) fn has_listing(&self) -> bool {
        self.supervisor.listing().is_some()
    }

    /// Whether the server is starting and its command may be downloading a package.
    pub(super) fn may_be_downloading(&self) -> bool {
        self.may_download() && self.supervisor.state().lifecycle.phase() == Phase::Starting
    }

    /// Lets a server that is starting finish its download when it is stopped, if its command may be downloading a package.
    pub(super) fn leave_download(&self) {
        if self.may_be_downloading()
            && let Some(attempt) = &self.supervisor.state().attempt
        {
            attempt.may_finish.set();
        }
    }

    /// Returns why a server that is not started has no listing.
    pub(super) fn last_failure(&self) -> Unavailable {
        Unavailable::FailedRecently(start::last_failure_message(&self.supervisor.state()))
    }

    /// Returns a counter that increases whenever the tools change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.supervisor.changes()
    }

    /// Ensures that there is a listing, possibly a cached one. It starts the server only if there is none.
    pub async fn listed(&self) -> Result<(), Unavailable> {
        if self.supervisor.listing().is_some() {
            return Ok(());
        }
        start::acquire(&self.supervisor).await.map(drop)
    }

    /// Lists the server's tools now, and starts the server if it does not run, even if the supervisor
    /// has stopped restarting it.
    pub async fn refresh(&self) -> Result<(), Unavailable> {
        start::refresh(&self.supervisor).await
    }

    /// Stops the server; the next call starts it again.
    pub async fn stop(&self) {
        self.supervisor.stop(Event::Stop).await;
    }

    /// Stops the server permanently.
    pub async fn retire(&self) {
        self.supervisor.stop(Event::Retire).await;
    }

    /// Stops the server permanently because it is no longer configured: new calls fail at once, and those in progress
    /// may take `patience` to finish.
    pub async fn remove(&self, patience: Duration) {
        self.supervisor.remove(patience).await;
    }

    /// Whether the server is configured in exactly this way.
    pub(super) fn has_spec(&self, spec: &ServerSpec) -> bool {
        self.supervisor.spec == *spec
    }

    pub fn status(&self) -> Status {
        self.status_against(&StandingApprovals::default())
    }

    /// Returns the status, including the tools whose definition differs from the approved one.
    pub fn status_against(&self, approved: &StandingApprovals) -> Status {
        Status::of(&self.supervisor, approved)
    }
}

impl ToolSource for Upstream {
    /// Returns the tools of the last listing, from the server or from the cache file.
    fn tools(&self) -> Vec<ToolSpec> {
        self.supervisor.listing().map(|listing| listing.tools.clone()).unwrap_or_default()
    }

    fn identity(&self) -> Option<String> {
        Some(self.supervisor.spec.identity())
    }

    fn unavailable(&self) -> Option<UnavailableServer> {
        self.supervisor.why_unlisted().map(|reason| UnavailableServer { name: self.name().to_owned(), reason })
    }

    fn call(&self, call: AuthorizedCall) -> CallFuture<'_> {
        Box::pin(async move { calls::call(&self.supervisor, &call).await })
    }

    fn follow(&self, parked: ParkedCall) -> CallFuture<'_> {
        Box::pin(async move { calls::follow(&self.supervisor, &parked).await })
    }

    fn cancel(&self, parked: ParkedCall) -> CancelFuture<'_> {
        Box::pin(async move { calls::cancel(&self.supervisor, &parked).await })
    }
}
