//! Builds the guest image: compiles C to WebAssembly, pre-initialises it, inserts checks of the stop
//! flag, and compiles it for the target.
//!
//! The sources and the libc come from the crate `rquickjs-sys`, pinned by Cargo.lock and never compiled natively. Only
//! this script links a WebAssembly compiler; the shipped binary has only the runtime.

#[path = "../src/engine_config.rs"]
mod engine_config;

mod cache;
mod compiler;
mod engine;
mod image;
mod invariants;
mod sources;
mod stop_checks;

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

use sha2::{Digest, Sha256};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() {
    if let Err(error) = build() {
        println!("cargo::error={}", error.to_string().replace('\n', "; "));
        std::process::exit(1);
    }
}

fn build() -> Result<()> {
    let manifest = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let guest = manifest.join("../../guest").canonicalize()?;
    for input in [guest.as_path(), &manifest.join("build"), &manifest.join("src/engine_config.rs")] {
        println!("cargo::rerun-if-changed={}", input.display());
    }
    println!("cargo::rerun-if-env-changed=CELLMATE_CC");
    println!("cargo::rerun-if-env-changed={}", sources::ADDITION);

    let quickjs = sources::locate(&manifest)?;
    sources::write_prelude_header(&guest, &out)?;
    let compiler = compiler::Compiler::find()?;
    let script = manifest.join("build");
    let settings = manifest.join("src/engine_config.rs");
    let prelude = out.join("prelude.h");
    let inputs = [&quickjs, &guest, &script, &settings, &prelude].map(PathBuf::as_path);
    let cached = cache::Entry::of(&inputs, &manifest.join("../../Cargo.lock"), &compiler, &out)?;
    let image = match cached.read() {
        Some(image) => image,
        None => {
            let linked = compiler.build(&quickjs, &guest, &out)?;
            let ready = stop_checks::insert(&image::pre_initialise(&linked)?)?;
            invariants::check(&ready)?;
            let compiled = image::compile(&ready, &env::var("TARGET")?)?;
            let image = cache::Image { id: Sha256::digest(&ready).to_vec(), compressed: image::compress(&compiled)? };
            cached.write(&image)?;
            image
        }
    };
    fs::write(out.join("image.id"), image.id)?;
    fs::write(out.join("image.cwasm.zst"), image.compressed)?;
    Ok(())
}
