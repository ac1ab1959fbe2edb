//! The input of a call of the shell, checked.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use contract::limits::{MAX_SHELL_COMMAND_BYTES, MAX_SHELL_VARIABLE_BYTES, MAX_SHELL_VARIABLES, SHELL_TIMEOUT_SECONDS};
use serde_json::Value;

use crate::core::roots::{Roots, shorten};

/// Variables that choose which code a program loads or a shell runs first.
const REFUSED_VARIABLES: [&str; 10] =
    ["LD_*", "DYLD_*", "GLIBC_TUNABLES", "GCONV_PATH", "BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "IFS", "PATH"];

/// A command to run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) command: String,
    pub(super) folder: PathBuf,
    pub(super) timeout: Duration,
    pub(super) env: BTreeMap<String, String>,
}

impl Request {
    /// Reads the input of a call. The error says what to change.
    pub(super) fn read(input: &Value, roots: &Roots, default_timeout: Duration) -> Result<Self, String> {
        let text = |key: &str| input.get(key).and_then(Value::as_str);
        let command = text("command").filter(|command| !command.trim().is_empty());
        let command = command.ok_or("`command` is missing: write the command that the shell runs")?;
        if command.len() > MAX_SHELL_COMMAND_BYTES {
            return Err(format!(
                "the command has {} bytes, and at most {MAX_SHELL_COMMAND_BYTES} are allowed; write a script into a \
                 file and run that",
                command.len()
            ));
        }
        if command.contains('\0') {
            return Err("the command contains a NUL character, which no argument can have".to_owned());
        }
        for (key, instead) in [
            ("pty", "there is no terminal; run the program without one"),
            ("elevated", "commands never get more rights; ask the user to run it"),
        ] {
            if input.get(key).and_then(Value::as_bool) == Some(true) {
                return Err(format!("`{key}` is not supported: {instead}"));
            }
        }
        let folder = folder(text("workdir").or_else(|| text("cwd")), roots)?;
        Ok(Self {
            command: command.to_owned(),
            folder,
            timeout: timeout(input, default_timeout)?,
            env: variables(input)?,
        })
    }
}

fn timeout(input: &Value, default: Duration) -> Result<Duration, String> {
    let range = &SHELL_TIMEOUT_SECONDS.range;
    let seconds = match input.get(SHELL_TIMEOUT_SECONDS.key) {
        None | Some(Value::Null) => return Ok(default),
        Some(given) => given
            .as_f64()
            .filter(|seconds| *seconds > 0.0)
            .ok_or_else(|| format!("`timeout` must be a number of seconds, at most {}", range.end()))?,
    };
    // Less than a second is allowed; more than the maximum is not what the caller expects, but safe.
    Ok(Duration::from_secs_f64(seconds.min(*range.end() as f64)))
}

/// Finds the folder in which the command runs: an existing one in a root.
fn folder(given: Option<&str>, roots: &Roots) -> Result<PathBuf, String> {
    let place = roots.locate(given.unwrap_or(".")).map_err(|error| error.to_string())?;
    let path = place.root.path().join(&place.below);
    let shown = shorten(&place.shown);
    let real = std::fs::canonicalize(&path).map_err(|error| {
        format!("the folder `{shown}` cannot be used: {error}; create it first, or use another one")
    })?;
    if !real.is_dir() {
        return Err(format!("`{shown}` is not a folder"));
    }
    // A symbolic link may lead out of the root.
    match roots.iter().any(|root| real.starts_with(root.path())) {
        true => Ok(real),
        false => Err(format!("`{shown}` leads to a folder that the shell may not use. {roots}")),
    }
}

fn variables(input: &Value) -> Result<BTreeMap<String, String>, String> {
    let mut env = BTreeMap::new();
    let mut bytes = 0;
    let given = match input.get("env") {
        None | Some(Value::Null) => return Ok(env),
        Some(given) => given.as_object().ok_or("`env` must be an object of variables")?,
    };
    if given.len() > MAX_SHELL_VARIABLES {
        return Err(format!("`env` has {} variables, and at most {MAX_SHELL_VARIABLES} are allowed", given.len()));
    }
    for (name, value) in given {
        let shown = shorten(name);
        let value = value.as_str().ok_or_else(|| format!("the variable `{shown}` must be a text"))?;
        let is_name = name
            .bytes()
            .enumerate()
            .all(|(place, byte)| byte == b'_' || byte.is_ascii_alphabetic() || (place > 0 && byte.is_ascii_digit()));
        if name.is_empty() || !is_name || value.contains('\0') {
            return Err(format!("`{shown}` cannot be a variable: a name has letters, digits and `_`, a value no NUL"));
        }
        if is_refused(name) {
            return Err(format!(
                "the variable `{shown}` must not be set: it decides which code programs run; name the program's path \
                 in the command instead"
            ));
        }
        bytes += name.len() + value.len();
        env.insert(name.clone(), value.to_owned());
    }
    match bytes <= MAX_SHELL_VARIABLE_BYTES {
        true => Ok(env),
        false => Err(format!("`env` has {bytes} bytes, and at most {MAX_SHELL_VARIABLE_BYTES} are allowed")),
    }
}

fn is_refused(name: &str) -> bool {
    REFUSED_VARIABLES.iter().any(|refused| match refused.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == *refused,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use contract::config::RootAccess;
    use contract::limits::{MAX_SHELL_COMMAND_BYTES, MAX_SHELL_VARIABLE_BYTES, MAX_SHELL_VARIABLES};
    use serde_json::{Map, Value, json};

    use super::Request;
    use crate::core::roots::{Root, Roots};

    fn roots() -> (tempfile::TempDir, Roots) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("root/inner")).unwrap();
        std::fs::create_dir(folder.path().join("outside")).unwrap();
        std::fs::write(folder.path().join("root/file"), "").unwrap();
        std::os::unix::fs::symlink("../outside", folder.path().join("root/link")).unwrap();
        std::os::unix::fs::symlink("inner", folder.path().join("root/good")).unwrap();
        let mut roots = Roots::default();
        roots.push(Root::open(&folder.path().join("root"), RootAccess::Write).unwrap()).unwrap();
        (folder, roots)
    }

    const DEFAULT: Duration = Duration::from_secs(1_800);

    #[test]
    fn the_folder_must_exist_in_a_root_also_behind_symbolic_links() {
        let (_folder, roots) = roots();
        let read = |workdir: Value| Request::read(&json!({"command": "ls", "workdir": workdir}), &roots, DEFAULT);
        let root = roots.first().unwrap().path().to_owned();
        assert_eq!(read(Value::Null).unwrap().folder, root);
        assert_eq!(read(json!("inner")).unwrap().folder, root.join("inner"));
        assert_eq!(read(json!("good")).unwrap().folder, root.join("inner"));
        let cwd = Request::read(&json!({"command": "ls", "cwd": "inner"}), &roots, DEFAULT);
        assert_eq!(cwd.unwrap().folder, root.join("inner"));
        for outside in ["link", "..", "/", "/etc", "none", "file", "inner/../../outside", "~"] {
            assert!(read(json!(outside)).is_err(), "{outside}");
        }
    }

    #[test]
    fn variables_that_load_code_and_bad_names_are_refused() {
        let (_folder, roots) = roots();
        let read = |env: Value| Request::read(&json!({"command": "ls", "env": env}), &roots, DEFAULT);
        assert_eq!(read(json!({"A_1": "x"})).unwrap().env["A_1"], "x");
        for bad in ["LD_PRELOAD", "LD_AUDIT", "DYLD_X", "PATH", "BASH_ENV", "ENV", "IFS", "1A", "", "A=B", "A-B", "ä"]
        {
            assert!(read(json!({ bad: "x" })).is_err(), "{bad}");
        }
        assert!(read(json!({"A": 1})).is_err() && read(json!({"A": "\0"})).is_err() && read(json!([])).is_err());
        let many: Map<String, Value> =
            (0..=MAX_SHELL_VARIABLES).map(|number| (format!("V{number}"), json!(""))).collect();
        assert!(read(Value::Object(many)).is_err());
        assert!(read(json!({"A": "x".repeat(MAX_SHELL_VARIABLE_BYTES - 1)})).is_ok());
        assert!(read(json!({"A": "x".repeat(MAX_SHELL_VARIABLE_BYTES)})).is_err());
    }

    #[test]
    fn command_and_timeout_are_limited() {
        let (_folder, roots) = roots();
        let read = |input: Value| Request::read(&input, &roots, DEFAULT);
        assert!(read(json!({})).is_err() && read(json!({"command": " "})).is_err());
        assert!(read(json!({"command": "x".repeat(MAX_SHELL_COMMAND_BYTES)})).is_ok());
        assert!(read(json!({"command": "x".repeat(MAX_SHELL_COMMAND_BYTES + 1)})).is_err());
        assert!(read(json!({"command": "a\0b"})).is_err());
        assert!(read(json!({"command": "ls", "pty": true})).is_err());
        assert!(read(json!({"command": "ls", "elevated": true})).is_err());
        assert!(read(json!({"command": "ls", "pty": false, "background": true, "yieldMs": 5})).is_ok());
        let seconds =
            |timeout: Value| read(json!({"command": "ls", "timeout": timeout})).map(|one| one.timeout.as_secs_f64());
        assert_eq!(seconds(Value::Null), Ok(1_800.0));
        assert_eq!(seconds(json!(0.5)), Ok(0.5));
        assert_eq!(seconds(json!(1e300)), Ok(7_200.0));
        for bad in [json!(0), json!(-1), json!("10"), json!(true)] {
            assert!(seconds(bad.clone()).is_err(), "{bad}");
        }
    }
}
