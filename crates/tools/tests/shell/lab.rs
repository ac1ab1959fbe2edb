//! A shell with one root, a folder outside it, and functions that run commands.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use contract::config::{RootAccess, ShellTool};
use executor::{Outcome, ProgressSink};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tools::core::{Root, Roots, Shell, ShellSettings};

/// What no command may read.
pub(crate) const SECRET: &str = "a-secret-that-stays-outside";

/// The variable with the folder in which labs are created. Without it, it is Cargo's folder for tests.
pub(crate) const LAB_FOLDER: &str = "CELLMATE_TEST_LAB_FOLDER";

pub(crate) struct Lab {
    pub(crate) folder: TempDir,
    pub(crate) shell: Shell,
    pub(crate) runtime: Runtime,
}

impl Lab {
    pub(crate) fn new() -> Self {
        Self::with(|_, _| {})
    }

    /// Creates a shell after `adapt` has changed its settings. It receives the folder of the lab.
    pub(crate) fn with(adapt: impl FnOnce(&mut ShellSettings, &mut Roots)) -> Self {
        let folder = std::env::var_os(LAB_FOLDER).map_or_else(|| env!("CARGO_TARGET_TMPDIR").into(), PathBuf::from);
        let folder = tempfile::Builder::new().prefix("lab-").tempdir_in(folder).unwrap();
        for name in ["root", "outside", "temporary"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join("outside/secret"), SECRET).unwrap();
        let mut roots = Roots::default();
        roots.push(Root::open(&folder.path().join("root"), RootAccess::Write).unwrap()).unwrap();
        let mut settings = ShellSettings::new(&ShellTool::default(), folder.path().join("temporary"));
        adapt(&mut settings, &mut roots);
        let shell = Shell::new(settings, &roots).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        Self { folder, shell, runtime }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        fs::canonicalize(self.folder.path()).unwrap().join(name)
    }

    pub(crate) fn call(&self, input: &Value) -> Outcome {
        self.runtime.block_on(self.shell.run(input, &ProgressSink::default()))
    }

    /// Runs a command and returns its details. The command can use `$LAB`, the lab's folder.
    pub(crate) fn run(&self, command: &str) -> Value {
        let lab = self.path("");
        let lab = lab.to_str().unwrap().trim_end_matches('/').to_owned();
        self.details(&json!({"command": command, "env": {"LAB": lab}, "timeout": 60}))
    }

    pub(crate) fn details(&self, input: &Value) -> Value {
        match self.call(input) {
            Outcome::Returned(returned) => returned.details.unwrap(),
            other => panic!("{input}: {other:?}"),
        }
    }

    /// Runs a command that succeeds, and returns what it printed, without spaces at the end.
    pub(crate) fn succeeds(&self, command: &str) -> String {
        let details = self.run(command);
        assert_eq!(details["exitCode"], 0, "{command}: {details}");
        details["stdout"].as_str().unwrap().trim_end().to_owned()
    }

    /// Runs a command that must fail without revealing the secret.
    pub(crate) fn fails(&self, command: &str) -> Value {
        let details = self.run(command);
        assert_ne!(details["exitCode"], 0, "{command}: {details}");
        assert!(!details.to_string().contains(SECRET), "{command}: {details}");
        details
    }

    /// Runs a Perl program that must print `denied`.
    pub(crate) fn is_denied(&self, perl: &str) {
        let details = self.run(&format!("perl -MSocket -e '{perl} or print \"denied $!\"'"));
        let printed = details["stdout"].as_str().unwrap();
        assert!(printed.starts_with("denied"), "{perl}: {details}");
    }
}

/// Returns the processes whose command line contains a text.
pub(crate) fn processes_with(text: &str) -> Vec<String> {
    let numbers = fs::read_dir("/proc").unwrap().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let lines = numbers.filter_map(|pid| fs::read(format!("/proc/{pid}/cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(text)).collect()
}

/// Waits until a condition holds.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
