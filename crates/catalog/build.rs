//! Embeds the embedding table into the library if `make setup` has built one.

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-env-changed=CELLMATE_MEANING");
    let table = match env::var_os("CELLMATE_MEANING") {
        Some(named) => PathBuf::from(named),
        None => Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../target/embedding/meaning.bin"),
    };
    println!("cargo::rerun-if-changed={}", table.display());
    let bytes = if table.exists() {
        fs::read(&table)?
    } else {
        println!("cargo::warning=no embedding table: search will match words only; `make setup` builds it");
        Vec::new()
    };
    fs::write(Path::new(&env::var("OUT_DIR")?).join("meaning.bin"), bytes)?;
    Ok(())
}
