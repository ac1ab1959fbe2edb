//! The limits of what is read from providers and clients.

/// Bytes of one server-sent event of a provider, and of one line of it.
pub const MAX_EVENT_BYTES: usize = 1 << 20;

/// Bytes of a provider's whole response, streamed or not.
pub const MAX_RESPONSE_BYTES: usize = 32 << 20;

/// Tool calls in one response of a model.
pub const MAX_CALLS: usize = 128;

/// Bytes of the name and of the id of a model's tool call.
pub const MAX_CALL_NAME_BYTES: usize = 256;

/// Content blocks or output items in one response of a model.
pub const MAX_BLOCKS: usize = 1_024;

/// Characters of a provider's error message that are kept.
pub const MAX_ERROR_CHARS: usize = 2_000;
