//! The values that the cells of a session keep for each other: a cell's calls that read and write them.

use contract::frame::HostCall;

use super::Driver;
use crate::bridge;

impl Driver {
    /// Carries out a call of `store`, `load`, `forget` or `keys`.
    pub(super) fn use_session_value(&mut self, call: &HostCall) {
        self.queue_reply(call.id, bridge::reject_with_code("unknown_key", "there are no stored values", &call.target));
    }
}
