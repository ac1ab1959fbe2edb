//! The frames between a host and a worker. They have no version, because both ends are the same build.
//!
//! On the wire: `[u32 length][u8 kind][u64 cell][body]`, little-endian; the length counts the bytes after it. JSON is
//! sent as raw bytes and is not parsed in transit. Both ends decode with checked reads; the host treats a worker as
//! hostile and kills it on the first bad frame.

mod codec;
mod from_worker;
mod to_worker;

pub use codec::{BadFrame, FrameBuffer, Reader, Writer};
pub use from_worker::{Failure, FromWorker, Hello, HostCall, Jail, Leg, LegEnd, Method, SourcePosition};
pub use to_worker::{Budget, Deliver, Reply, ReplyValue, Start, Thaw, ToWorker};

/// The longest frame: the largest snapshot that can be configured, and a leg's output.
pub const MAX_FRAME_BYTES: usize = (256 << 20) + (32 << 20);

/// The first argument of a process that runs as a worker (see `sandbox::worker_main`).
pub const WORKER_ARGUMENT: &str = "cellmate-sandbox-worker";

#[cfg(test)]
mod tests;
