//! The limits of messages, from the crate `process`, and what replaces messages that exceed them.

pub(super) use process::{MessageKind as Expected, too_large as unread};

/// The internal error code for a response that exceeds its limits and was not parsed. No server sends it.
pub(super) const RESPONSE_TOO_LARGE: i32 = i32::MIN;

/// Replaces the method of a request that is too large to be parsed, so that the server still gets a response.
pub(super) const TOO_LARGE: &str = "cellmate/too-large";

/// The notifications that are processed; all others are dropped.
pub(super) const READ: [&str; 2] = ["notifications/progress", "notifications/tools/list_changed"];
