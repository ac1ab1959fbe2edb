//! Wasmtime settings that must be the same for compiling the image and for loading it.
//!
//! The build script includes this file, so that both sides use one function.

use wasmtime::Config;

/// The native stack for guest frames. QuickJS's own limit (`JS_STACK_BYTES` in `guest/shim.c`) is reached first, so
/// that runaway recursion throws an exception that the cell can catch.
pub(crate) const WASM_STACK_BYTES: usize = 8 << 20;

pub(crate) fn base() -> Config {
    let mut config = Config::new();
    config.memory_init_cow(true);
    // Nothing reads backtraces of guest code, so the image has no tables for them.
    config.wasm_backtrace_max_frames(None);
    config.generate_address_map(false);
    config.native_unwind_info(false);
    stacks(&mut config);
    config
}

pub(crate) fn stacks(config: &mut Config) {
    // Wasmtime requires it even without async code; the larger limit must be set first.
    config.async_stack_size(WASM_STACK_BYTES + (1 << 20));
    config.max_wasm_stack(WASM_STACK_BYTES);
}
