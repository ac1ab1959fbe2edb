//! Turns a linked module into the image: runs its initialisation once, then compiles the result.

use wasmparser::ValType;
use wasmtime::{Config, Engine, Instance, Linker, Module, OptLevel, RegallocAlgorithm, Store, Val};
use wasmtime_wizer::{InstanceState, SnapshotVal, Wizer};

use crate::{Result, engine_config};

/// Runs `wizer-initialize` and stores the resulting memory in the module.
pub(crate) fn pre_initialise(linked: &[u8]) -> Result<Vec<u8>> {
    let mut config = Config::new();
    engine_config::stacks(&mut config);
    // This code runs once, for a few milliseconds. Optimising it would take seconds, and so would the better registers of
    // the default algorithm.
    config.cranelift_opt_level(OptLevel::None);
    config.cranelift_regalloc_algorithm(RegallocAlgorithm::SinglePass);
    let engine = Engine::new(&config)?;
    let mut wizer = Wizer::new();
    wizer.init_func(INITIALISE);
    let (context, instrumented) = wizer.instrument(linked)?;
    let module = Module::new(&engine, &instrumented)?;
    let mut linker = Linker::new(&engine);
    // Initialisation must not call the host; a call would stop the build.
    linker.define_unknown_imports_as_traps(&module)?;
    let mut store = Store::new(&engine, ());
    let instance = linker.instantiate(&mut store, &module)?;
    instance.get_typed_func::<(), ()>(&mut store, INITIALISE)?.call(&mut store, ())?;
    Ok(block_on(wizer.snapshot(&context, &mut InitialisedInstance { store, instance }))?)
}

const INITIALISE: &str = "wizer-initialize";

/// The state of the initialised instance, for Wizer. Wizer's own implementation needs the component model, which takes
/// minutes to build.
struct InitialisedInstance {
    store: Store<()>,
    instance: Instance,
}

#[expect(clippy::panic, reason = "a build script may fail, and the trait has no other way to report errors")]
impl InstanceState for InitialisedInstance {
    async fn global_get(&mut self, name: &str, _: ValType) -> SnapshotVal {
        match self.instance.get_global(&mut self.store, name).map(|global| global.get(&mut self.store)) {
            Some(Val::I32(value)) => SnapshotVal::I32(value),
            Some(Val::I64(value)) => SnapshotVal::I64(value),
            Some(Val::F32(value)) => SnapshotVal::F32(value),
            Some(Val::F64(value)) => SnapshotVal::F64(value),
            other => panic!("the global `{name}` holds {other:?}"),
        }
    }

    async fn memory_contents(&mut self, name: &str, contents: impl FnOnce(&[u8]) + Send) {
        match self.instance.get_memory(&mut self.store, name) {
            Some(memory) => contents(memory.data(&self.store)),
            None => panic!("there is no memory `{name}`"),
        }
    }
}

/// Compiles for the target's baseline, not for the build machine.
pub(crate) fn compile(ready: &[u8], target: &str) -> Result<Vec<u8>> {
    let mut config = engine_config::base();
    config.target(target)?;
    Ok(Engine::new(&config)?.precompile_module(ready)?)
}

/// Compresses the machine code as far as zstd can: it is a tenth of the program otherwise, and decompressing it takes a
/// worker a few milliseconds.
pub(crate) fn compress(compiled: &[u8]) -> Result<Vec<u8>> {
    let level = *zstd::compression_level_range().end();
    Ok(zstd::bulk::compress(compiled, level)?)
}

/// Wizer's interface is async, but nothing in it ever waits.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
    }
}
