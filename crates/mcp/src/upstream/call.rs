//! A call to a server that may not be running yet and may crash during the call.

use contract::tool::{Repeat, ToolId, ToolSpec};
use executor::{AuthorizedCall, CallFuture, CancelFuture, Dispatch, Outcome, ParkedCall, ToolSource};

use super::one::Upstream;
use crate::client::{Attempt, MAX_SHOWN_NAME_CHARS, shown};

/// How often a call is tried if the server crashes before it has received the call, or afterwards if the tool may be
/// called again.
const MAX_TRIES: u32 = 2;

impl ToolSource for Upstream {
    /// Returns the tools of the last listing, from the server or from the cache file.
    fn tools(&self) -> Vec<ToolSpec> {
        self.state().listing.as_ref().map(|listing| listing.tools.clone()).unwrap_or_default()
    }

    fn identity(&self) -> Option<String> {
        Some(self.spec.identity())
    }

    fn call(&self, call: AuthorizedCall) -> CallFuture<'_> {
        Box::pin(async move { self.make(&call).await })
    }

    fn follow(&self, parked: ParkedCall) -> CallFuture<'_> {
        Box::pin(async move { self.follow_parked(&parked).await })
    }

    fn cancel(&self, parked: ParkedCall) -> CancelFuture<'_> {
        Box::pin(async move { self.cancel(&parked).await })
    }
}

impl Upstream {
    async fn make(&self, call: &AuthorizedCall) -> Dispatch {
        let mut tries = 0;
        loop {
            tries += 1;
            let held = match self.hold().await {
                Ok(held) => held,
                Err(why) => return self.not_called(call.id(), &why.to_string()),
            };
            if self.has_changed_since_approval(call) {
                let why = "its definition has changed since it was approved; a new run shows the new definition and \
                           asks again";
                return self.not_called(call.id(), why);
            }
            match held.server().attempt(call).await {
                Attempt::Settled(dispatch) => return dispatch,
                Attempt::NotSent(_) if tries < MAX_TRIES => {}
                Attempt::NotSent(why) => return self.not_called(call.id(), &why.to_string()),
                Attempt::Lost(_) if tries < MAX_TRIES && self.may_repeat(call.id()) => {}
                Attempt::Lost(why) => return Dispatch::Settled(held.server().lost(call.id(), why)),
            }
        }
    }

    /// Returns true if the tool's definition is not the approved one. It must be checked while the server runs, because
    /// a cached listing may be outdated.
    fn has_changed_since_approval(&self, call: &AuthorizedCall) -> bool {
        let Some(approved) = call.approved_definition() else { return false };
        let listing = self.state().listing.clone();
        listing.and_then(|listing| listing.definition(call.id())).is_some_and(|now| now != approved)
    }

    fn may_repeat(&self, id: &ToolId) -> bool {
        let listing = self.state().listing.clone();
        listing.is_some_and(|listing| listing.tools.iter().any(|tool| tool.id == *id && tool.repeat != Repeat::Never))
    }

    fn not_called(&self, id: &ToolId, why: &str) -> Dispatch {
        let tool = shown(id.name(), MAX_SHOWN_NAME_CHARS);
        let message = format!("`{tool}` of MCP server `{}` was not called: {why}", self.name());
        Dispatch::Settled(Outcome::Failed(message))
    }
}
