//! The frames between a host and a worker: bounded, versionless, one build on both ends.
//!
//! On the wire: `[u32 length][u8 kind][u64 cell][body]`, little-endian, the length counting what
//! follows it. JSON travels as raw bytes and is never parsed on the way. Both ends decode with
//! checked reads; the host treats a worker as hostile and kills it on the first bad frame.

mod codec;
mod from_worker;
mod to_worker;

pub use codec::{BadFrame, FrameBuffer, Reader, Writer};
pub use from_worker::{Failure, FromWorker, Hello, HostCall, Jail, Leg, LegEnd, Method, Place};
pub use to_worker::{Budget, Deliver, Reply, ReplyValue, Start, Thaw, ToWorker};

/// No frame is longer. It holds the largest snapshot configuration allows, and a leg's output.
pub const MAX_FRAME_BYTES: usize = (256 << 20) + (32 << 20);

/// The first argument that tells a program to be a worker (see `sandbox::worker_main`).
pub const WORKER_ARGUMENT: &str = "cellmate-sandbox-worker";

#[cfg(test)]
mod tests;
