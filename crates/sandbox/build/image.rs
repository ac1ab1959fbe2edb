//! From a linked module to the image: run its initialisation once, then compile the result.

use wasmtime::{Config, Engine, Linker, Module, Store};
use wasmtime_wizer::Wizer;

use crate::{Result, engine_config};

/// Runs `wizer-initialize` and bakes the memory it leaves into the module.
pub(crate) fn pre_initialise(linked: &[u8]) -> Result<Vec<u8>> {
    let mut config = Config::new();
    engine_config::stacks(&mut config);
    let engine = Engine::new(&config)?;
    let mut linker = Linker::new(&engine);
    // Initialisation has no business with the host; a call would stop the build.
    linker.define_unknown_imports_as_traps(&Module::new(&engine, linked)?)?;
    let mut store = Store::new(&engine, ());
    let mut wizer = Wizer::new();
    wizer.init_func("wizer-initialize");
    let ready = block_on(wizer.run(&mut store, linked, async |store: &mut Store<()>, module: &Module| {
        linker.instantiate_async(store, module).await
    }))?;
    Ok(ready)
}

/// Compiles for the target's baseline, not for the machine that happens to build.
pub(crate) fn compile(ready: &[u8], target: &str) -> Result<Vec<u8>> {
    let mut config = engine_config::base();
    config.target(target)?;
    // The runtime is built without these; an image that knows of them would be refused by it.
    config.wasm_exceptions(false).wasm_threads(false).wasm_component_model(false).gc_support(false);
    Ok(Engine::new(&config)?.precompile_module(ready)?)
}

/// Wizer's interface is async; nothing in it ever waits.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
    }
}
