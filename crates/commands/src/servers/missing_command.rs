//! Whether the program of a new server exists, without starting it.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use client_config::{Places, display};
use serde_json::Value;

/// Returns a note if the entry's program does not exist, so that the server cannot be started. A program whose name or
/// search path contains variables is not looked for.
pub(super) fn missing_command_note(entry: &Value, places: &Places) -> Option<String> {
    let program = match entry.get("command")? {
        Value::String(program) => program.as_str(),
        Value::Array(words) => words.first()?.as_str()?,
        _ => return None,
    };
    let cwd = entry.get("cwd").and_then(Value::as_str);
    let has_own_path = entry.get("env").is_some_and(|env| env.get("PATH").is_some());
    if has_own_path || [Some(program), cwd].into_iter().flatten().any(|text| text.contains(['$', '{', '~'])) {
        return None;
    }
    let folder = cwd.map_or_else(|| places.folder().to_owned(), |cwd| places.folder().join(cwd));
    if exists(program, &folder, places.variable("PATH").map(OsStr::new)) {
        return None;
    }
    let place = if program.contains('/') { "" } else { " in $PATH" };
    Some(format!(
        "the program `{}` was not found{place}, so the server cannot be started; install it, or correct the entry",
        display::plain(program)
    ))
}

/// Whether the program can be found, as the system looks for it when a process is started in the folder.
fn exists(program: &str, folder: &Path, search: Option<&OsStr>) -> bool {
    if program.contains('/') {
        return is_program(&folder.join(program));
    }
    // Without a search path the system uses one of its own.
    search.is_none_or(|search| std::env::split_paths(search).any(|place| is_program(&folder.join(place).join(program))))
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use client_config::Places;
    use serde_json::{Value, json};

    use super::missing_command_note;

    fn note(entry: &Value) -> Option<String> {
        let environment = [("PATH".to_owned(), "/nowhere:/bin:/usr/bin".to_owned())];
        missing_command_note(entry, &Places::of(&[], PathBuf::from("/"), BTreeMap::from(environment)))
    }

    #[test]
    fn a_program_that_does_not_exist_is_noted() {
        assert_eq!(
            note(&json!({"command": "no-such-program"})).unwrap(),
            "the program `no-such-program` was not found in $PATH, so the server cannot be started; install it, or \
             correct the entry"
        );
        assert!(
            note(&json!({"command": ["/no/such/program", "x"]})).unwrap().contains("`/no/such/program` was not found,")
        );
        assert!(note(&json!({"command": "/etc"})).is_some(), "it is no program");
        for found in [
            json!({"command": "sh"}),
            json!({"command": "bin/sh", "cwd": "/"}),
            json!({"command": "${TOOL}"}),
            json!({"command": "no-such-program", "env": {"PATH": "/opt"}}),
            json!({"url": "https://example.com"}),
        ] {
            assert_eq!(note(&found), None, "{found}");
        }
    }
}
