//! The guest image: the module, its initial memory, and its id.

use contract::ids::ImageId;
use wasmtime::{Engine, InstanceAllocationStrategy, InstancePre, Linker, PoolingAllocationConfig, Store};

use crate::host_calls::{self, CellHost};
use crate::watchdog::Watchdog;
use crate::{engine_config, raw};

/// The machine code of the image, as one zstd frame.
static COMPRESSED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/image.cwasm.zst"));
static ID: &[u8; 32] = include_bytes!(concat!(env!("OUT_DIR"), "/image.id"));

pub const IMAGE_ID: ImageId = ImageId(*ID);

/// More than the largest configurable memory limit plus the image.
const MAX_MEMORY_BYTES: usize = (1 << 30) + (64 << 20);

/// The number of dirtied bytes that a slot keeps resident, so that the next cell finds these pages present. It must be
/// more than the cells with a few calls that use a slot one after the other dirty together, which grows with the prelude:
/// otherwise each returns pages to the kernel, and the next one faults them in again. A larger value costs more for a
/// cell after a large one than it saves.
const KEEP_RESIDENT_BYTES: usize = 384 << 10;

/// The engine and the loaded image, from which cells are created.
pub struct Image {
    pub(crate) engine: Engine,
    pub(crate) instance: InstancePre<CellHost>,
    /// The initial linear memory of every cell.
    pub(crate) base: Vec<u8>,
    /// The address of the flag that stops a cell, in its memory.
    pub(crate) stop_flag: u32,
    /// Stops the cells of this image.
    pub(crate) watchdog: Watchdog,
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Image").field("id", &IMAGE_ID).field("base_bytes", &self.base.len()).finish()
    }
}

impl Image {
    /// Reserves memory for `slots` concurrent cells and loads the image.
    pub fn load(slots: u32) -> wasmtime::Result<Self> {
        let mut pool = PoolingAllocationConfig::default();
        pool.total_core_instances(slots)
            .total_memories(slots)
            .total_tables(slots)
            .max_memory_size(MAX_MEMORY_BYTES)
            .table_elements(4096)
            .linear_memory_keep_resident(KEEP_RESIDENT_BYTES)
            .table_keep_resident(64 << 10)
            .max_unused_warm_slots(slots)
            .pagemap_scan(wasmtime::Enabled::Auto);
        let mut config = engine_config::base();
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
        let engine = Engine::new(&config)?;
        let module = raw::load_image(&engine, &machine_code()?)?;
        let mut linker = Linker::new(&engine);
        host_calls::link(&mut linker)?;
        let instance = linker.instantiate_pre(&module)?;

        let mut store = Store::new(&engine, CellHost::idle());
        let first = instance.instantiate(&mut store)?;
        let memory = first
            .get_memory(&mut store, "memory")
            .ok_or_else(|| wasmtime::Error::msg("the image exports no memory"))?;
        let stop_flag = first.get_typed_func::<(), u32>(&mut store, "stop_flag")?.call(&mut store, ())?;
        let base = memory.data(&store).to_vec();
        drop(store);
        Ok(Self { engine, instance, base, stop_flag, watchdog: Watchdog::default() })
    }
}

/// Returns the decompressed machine code of the image.
fn machine_code() -> wasmtime::Result<Vec<u8>> {
    let size = zstd::zstd_safe::get_frame_content_size(COMPRESSED).ok().flatten();
    let size = size.and_then(|size| usize::try_from(size).ok());
    let size = size.ok_or_else(|| wasmtime::Error::msg("the embedded image does not state its size"))?;
    Ok(zstd::bulk::decompress(COMPRESSED, size)?)
}
