//! Wasmtime's settings that the compiled image and the runtime that loads it must share.
//!
//! The build script includes this file: one function, so that they cannot differ.

use wasmtime::Config;

/// Native stack for guest frames. QuickJS's own limit (`JS_STACK_BYTES` in `guest/shim.c`) is reached
/// first, so that a runaway recursion is an exception which the cell can catch.
pub(crate) const WASM_STACK_BYTES: usize = 8 << 20;

pub(crate) fn base() -> Config {
    let mut config = Config::new();
    config.epoch_interruption(true);
    config.memory_init_cow(true);
    config.wasm_backtrace_max_frames(None);
    stacks(&mut config);
    config
}

pub(crate) fn stacks(config: &mut Config) {
    // Asked for even where nothing is async: the larger must be set first.
    config.async_stack_size(WASM_STACK_BYTES + (1 << 20));
    config.max_wasm_stack(WASM_STACK_BYTES);
}
