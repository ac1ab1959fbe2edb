//! What the crates of code mode must not contain.

use std::path::{Path, PathBuf};

/// The crates that run cells and call tools.
const CORE: [&str; 6] = ["contract", "catalog", "executor", "store", "codemode", "sandbox"];

/// Names of vendors whose interfaces belong behind a tool, and of other sandboxes.
const FOREIGN: [&str; 6] = ["github", "gitlab", "codex", "openai", "anthropic", "node:vm"];

/// Collects the Rust files of a folder that are not tests.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_test = path.file_stem().is_some_and(|name| name == "tests");
        if path.is_dir() && !is_test {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !is_test {
            found.push(path);
        }
    }
}

/// Returns the code of a file: without its comments and its test module.
fn code(text: &str) -> String {
    let product = text.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = product.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n").to_lowercase()
}

#[test]
fn core_code_mode_contains_no_interface_of_a_vendor_and_no_other_sandbox() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    CORE.iter().for_each(|name| sources(&crates.join(name).join("src"), &mut files));
    assert!(files.len() > 100, "{}", files.len());
    // These are names of OpenClaw's settings, and values of them.
    let settings = ["contract/src/config/openclaw/keys.rs", "contract/src/config/models.rs"];
    files.retain(|file| !settings.iter().any(|settings| file.ends_with(settings)));
    for file in files {
        let code = code(&std::fs::read_to_string(&file).unwrap());
        for name in FOREIGN {
            assert!(!code.contains(name), "{}: {name}", file.display());
        }
    }
}
