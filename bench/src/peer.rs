//! A peer: a script under Node, a child process that answers one JSON line with another. The peer of the sandbox
//! benchmark is quickjs-wasi.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use figures::Samples;
use serde_json::{Value, json};

use crate::Result;

#[derive(Debug)]
pub(crate) struct Peer {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    ready: Value,
}

/// The folder of the peers' scripts.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peer")
}

/// A command that runs a script with the Node that `npm ci` installed.
pub(crate) fn node(script: &str) -> Result<Command> {
    let node = folder().join("node_modules/node/bin/node");
    if !node.exists() {
        return Err(format!("{} is missing; run `npm ci --prefix bench/peer`", node.display()).into());
    }
    let mut command = Command::new(node);
    command.arg(folder().join(script));
    Ok(command)
}

impl Peer {
    pub(crate) fn start() -> Result<Self> {
        Self::spawn(node("peer.mjs")?)
    }

    /// Starts a script and waits until it says that it is ready.
    pub(crate) fn spawn(mut script: Command) -> Result<Self> {
        let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let requests = child.stdin.take().ok_or("the peer has no stdin")?;
        let answers = BufReader::new(child.stdout.take().ok_or("the peer has no stdout")?);
        let mut peer = Self { child, requests, answers, ready: Value::Null };
        peer.ready = peer.answer()?;
        Ok(peer)
    }

    pub(crate) fn describe(&self) -> String {
        format!("quickjs-wasi {} under Node {}", self.ready("quickjs_wasi"), self.ready("node"))
    }

    /// A field of the line with which the script said that it is ready, as text.
    pub(crate) fn ready(&self, name: &str) -> String {
        self.ready.get(name).map_or(String::new(), |value| value.to_string().replace('"', ""))
    }

    pub(crate) fn ask(&mut self, request: &Value) -> Result<Value> {
        writeln!(self.requests, "{request}")?;
        self.requests.flush()?;
        self.answer()
    }

    /// Asks for `n` samples and returns the list called `field`.
    pub(crate) fn samples(&mut self, request: &Value, field: &str) -> Result<Samples> {
        samples(&self.ask(request)?, field)
    }

    fn answer(&mut self) -> Result<Value> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            return Err("the peer exited unexpectedly".into());
        }
        let answer: Value = serde_json::from_str(&line)?;
        match answer.get("error") {
            Some(error) => Err(format!("the peer failed: {error}").into()),
            None => Ok(answer),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Both fail only if the process has already ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub(crate) fn samples(answer: &Value, field: &str) -> Result<Samples> {
    let list =
        answer.get(field).and_then(Value::as_array).ok_or_else(|| format!("the peer's answer has no `{field}`"))?;
    Ok(list.iter().filter_map(Value::as_f64).collect())
}

pub(crate) fn number(answer: &Value, field: &str) -> Result<f64> {
    answer.get(field).and_then(Value::as_f64).ok_or_else(|| format!("the peer's answer has no `{field}`").into())
}

/// A request for `n` samples of `op`; `seed` makes its source texts unique.
pub(crate) fn request(op: &str, mode: &str, n: usize, seed: u64) -> Value {
    json!({"op": op, "mode": mode, "n": n, "seed": seed})
}
