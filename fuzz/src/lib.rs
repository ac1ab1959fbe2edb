//! What the fuzz targets check. The private parts of the sandbox that read hostile bytes are compiled here without the
//! engine, so that the targets build in a minute instead of ten.
#![allow(dead_code, reason = "the fuzz targets use only a part of each module")]

#[path = "../../crates/sandbox/src/source/mod.rs"]
pub mod source;

#[path = "../../crates/sandbox/src/spare_thread.rs"]
mod spare_thread;
/// What snapshots need of the sandbox's module of this name, which links the engine.
mod host_calls {
    pub struct OutstandingCalls;

    impl OutstandingCalls {
        pub const MAX_BYTES: usize = 8 + 9 * contract::limits::MAX_OUTSTANDING_CALLS;
    }
}

#[path = "../../crates/sandbox/src/page.rs"]
mod page;
#[path = "../../crates/sandbox/src/snapshot/mod.rs"]
mod snapshot;

pub mod wire_check;

use contract::ids::{CatalogHash, ImageId};

/// Decodes and applies a snapshot of an image and a catalog whose hashes are all zeros. Returns whether it is valid.
pub fn read_snapshot(bytes: &[u8]) -> bool {
    static BASE: [u8; 2 << 20] = [0; 2 << 20];
    let expected = snapshot::SnapshotRequirements {
        image: ImageId([0; 32]),
        catalog: CatalogHash([0; 32]),
        base: &BASE,
        memory_limit: BASE.len() + (64 << 20),
    };
    let decoded = snapshot::decode(bytes.to_vec(), &expected, &spare_thread::SpareThread::default());
    decoded.is_ok_and(|decoded| {
        let mut memory = vec![0; decoded.wasm_pages << 16];
        decoded.apply(&mut memory).is_ok()
    })
}
