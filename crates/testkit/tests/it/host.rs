//! A host process: spoken to by lines, and killed.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

pub struct Host {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Host {
    pub fn start(folder: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ledger-host"))
            .args([folder.join("store.db"), folder.join("ledger")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    pub fn tell(&mut self, line: &Value) {
        writeln!(self.input, "{line}").unwrap();
    }

    pub fn ask(&mut self, line: &Value) -> Value {
        self.tell(line);
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{line} was answered with {answer:?}: {error}"))
    }

    /// SIGKILL: nothing gets to say goodbye.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _dead = self.child.kill();
        let _gone = self.child.wait();
    }
}

/// The tools' effects: how often each was called.
pub fn effects(folder: &Path) -> Vec<String> {
    let ledger = std::fs::read_to_string(folder.join("ledger")).unwrap_or_default();
    let mut names: Vec<String> = ledger.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    names.sort();
    names
}
