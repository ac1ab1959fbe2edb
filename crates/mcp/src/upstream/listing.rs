//! A server's last tool listing.

use contract::tool::{ToolHash, ToolId, ToolSpec};

use crate::client::LeftOut;

/// Unix time in milliseconds.
pub(crate) type Millis = i64;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Listing {
    pub(crate) tools: Vec<ToolSpec>,
    pub(crate) left_out: Vec<LeftOut>,
    pub(crate) listed_at: Millis,
    /// Read from the cache file; the server has not been listed by this process yet.
    pub(crate) remembered: bool,
}

impl Listing {
    pub(crate) fn definition(&self, id: &ToolId) -> Option<ToolHash> {
        self.tools.iter().find(|tool| tool.id == *id).map(ToolSpec::hash)
    }
}
