//! Makes the release binary smaller: leaves out the tables for unwinding, and functions with equal code.

use std::env;
use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=without_unwind_tables.ld");
    let variable = |name: &str| env::var(name).unwrap_or_default();
    // Panics abort in the release profile. In others they unwind, which needs the tables.
    if variable("PROFILE") != "release" || variable("CARGO_CFG_TARGET_OS") != "linux" {
        return;
    }
    let script = Path::new(&variable("CARGO_MANIFEST_DIR")).join("without_unwind_tables.ld");
    println!("cargo::rustc-link-arg-bins=-Wl,-T,{},--no-eh-frame-hdr", script.display());
    // Rust's own linker is the default there, and the only one of the usual ones that has this option.
    if variable("TARGET") == "x86_64-unknown-linux-gnu" {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=safe");
    }
}
