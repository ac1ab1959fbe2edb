//! Stored outputs: a cell's calls that read them, and what a result stores.

use contract::frame::HostCall;

use super::Driver;
use crate::bridge;

impl Driver {
    /// Answers a call of the guest's `output` object from the store.
    pub(super) fn read_output(&mut self, call: &HostCall) {
        self.queue_reply(
            call.id,
            bridge::reject_with_code("unknown_output", "there are no stored outputs", &call.target),
        );
    }
}
