//! A `ledger-host` process that a test sends commands to and kills.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

pub(crate) struct Host {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Host {
    /// Starts a host whose store and ledger are in this folder.
    pub(crate) fn start(folder: &Path) -> Self {
        Self::start_with(&folder.join("store.db").display().to_string(), &folder.join("ledger"), &[], &[])
    }

    pub(crate) fn start_with(store: &str, ledger: &Path, options: &[String], environment: &[(&str, String)]) -> Self {
        Self::of_program(env!("CARGO_BIN_EXE_ledger-host").as_ref(), store, ledger, options, environment)
    }

    pub(crate) fn of_program(
        program: &Path,
        store: &str,
        ledger: &Path,
        options: &[String],
        environment: &[(&str, String)],
    ) -> Self {
        let mut child = Command::new(program)
            .arg(store)
            .arg(ledger)
            .args(options)
            .envs(environment.iter().map(|(name, value)| (*name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    /// Sends a command without reading the answer.
    pub(crate) fn send(&mut self, line: &Value) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// Sends a command and returns its answer; panics if the host dies.
    pub(crate) fn ask(&mut self, line: &Value) -> Value {
        self.try_ask(line).unwrap_or_else(|| panic!("the host died on {line}"))
    }

    /// Sends a command and returns its answer; `None` if the host has died.
    pub(crate) fn try_ask(&mut self, line: &Value) -> Option<Value> {
        writeln!(self.input, "{line}").ok()?;
        let mut answer = String::new();
        self.output.read_line(&mut answer).ok().filter(|bytes| *bytes > 0)?;
        let value = serde_json::from_str(&answer);
        Some(value.unwrap_or_else(|error| panic!("invalid answer {answer:?} to {line}: {error}")))
    }

    /// Kills the host with SIGKILL, so that it cannot clean up.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _result = self.child.kill();
        let _status = self.child.wait();
    }
}

/// Returns the names of the called tools from the ledger, sorted, with one entry per effect.
pub(crate) fn effects(folder: &Path) -> Vec<String> {
    let ledger = std::fs::read_to_string(folder.join("ledger")).unwrap_or_default();
    let mut names: Vec<String> = ledger.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    names.sort();
    names
}
