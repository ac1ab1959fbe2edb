//! Locates the guest's C and JavaScript sources.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use crate::Result;

/// Returns the unpacked folder of `rquickjs-sys`, as Cargo resolved it from the lock file.
pub(crate) fn locate(manifest: &Path) -> Result<PathBuf> {
    let cargo = env::var("CARGO")?;
    let output =
        Command::new(cargo).args(["metadata", "--format-version", "1", "--locked"]).current_dir(manifest).output()?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cargo metadata failed: {reason}").into());
    }
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let folder = metadata
        .get("packages")
        .and_then(|packages| packages.as_array())
        .and_then(|packages| {
            packages.iter().find(|package| package.get("name").is_some_and(|name| name == "rquickjs-sys"))
        })
        .and_then(|package| package.get("manifest_path")?.as_str())
        .and_then(|path| Path::new(path).parent())
        .ok_or("rquickjs-sys is not among this workspace's packages")?;
    for needed in ["quickjs/quickjs.c", "vendor/wasi-libc/lib/libc.a", "wasm-shim/shim.c"] {
        if !folder.join(needed).exists() {
            return Err(format!("rquickjs-sys has no `{needed}`: was its version changed?").into());
        }
    }
    Ok(folder.to_owned())
}

/// The prelude's files, in order: each may use the names of those before it.
const PRELUDE: [&str; 17] = [
    "primordials",
    "values",
    "explain",
    "host",
    "lazy",
    "tools",
    "namespaces",
    "api",
    "output",
    "stored",
    "media",
    "timers",
    "encoders",
    "clone",
    "url",
    "dates",
    "absent",
];

/// Writes `prelude.h`: the guest's JavaScript as C arrays.
pub(crate) fn write_prelude_header(guest: &Path, out: &Path) -> Result<()> {
    let mut header = String::new();
    write_array(&mut header, "prelude_text", &prelude(guest)?)?;
    write_array(&mut header, "warm_up_text", &fs::read_to_string(guest.join("warm-up.js"))?)?;
    fs::write(out.join("prelude.h"), header)?;
    Ok(())
}

/// The environment variable that names a file to append to the prelude, so that tests can build a different image.
pub(crate) const ADDITION: &str = "CELLMATE_GUEST_ADDITION";

/// Wraps all files in one function: cells share its realm, but not its scope.
fn prelude(guest: &Path) -> Result<String> {
    let mut text = "(function (global, host) {\n\"use strict\";\n".to_owned();
    for file in PRELUDE {
        text += &fs::read_to_string(guest.join("prelude").join(format!("{file}.js")))?;
    }
    if let Some(addition) = env::var_os(ADDITION) {
        text += &fs::read_to_string(addition)?;
    }
    Ok(
        text + "return { __proto__: null, begin, settle, encode, describe, convert, explain, failed, unhandled, unawaited };\n})"
    )
}

fn write_array(header: &mut String, name: &str, text: &str) -> Result<()> {
    write!(header, "static const char {name}[] = {{")?;
    for byte in text.bytes() {
        write!(header, "{byte},")?;
    }
    // QuickJS requires a NUL after the text.
    writeln!(header, "0}};")?;
    Ok(())
}
