//! Kills servers during a call, and records what happens to the call and to the server.

use std::time::Instant;

use figures::Samples;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::fleet::Fleet;
use crate::processes::find_server;
use crate::received_calls::{times_received, until_received};
use crate::report::milliseconds;
use crate::server_tools::{working_reader, working_writer};
use crate::{Result, cells};
use figures::McpClient;

#[derive(Debug, Default)]
pub(crate) struct KillResults {
    pub(crate) servers: usize,
    /// Calls of tools that only read: Cellmate repeats the call itself.
    pub(crate) reads: usize,
    pub(crate) reads_answered: usize,
    /// Calls of tools that change something: the call fails as *unknown* and is not repeated.
    pub(crate) writes: usize,
    pub(crate) writes_reported: usize,
    pub(crate) writes_repeated: usize,
    /// Servers that answered their next call, and how long that took.
    pub(crate) came_back: usize,
    pub(crate) back: Samples,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CallKind {
    Read,
    Change,
}

impl CallKind {
    /// Alternates between the kinds.
    fn of(victim: usize) -> Self {
        if victim.is_multiple_of(2) { Self::Read } else { Self::Change }
    }

    fn tool(self, victim: usize) -> String {
        match self {
            Self::Read => working_reader(victim),
            Self::Change => working_writer(victim),
        }
    }
}

/// Makes the calls of [`call_and_kill`] without killing the server.
pub(crate) fn call_only(client: &McpClient, fleet: &Fleet, victim: usize) -> Result<()> {
    // Looks up the process as `call_and_kill` does, because scanning all processes takes time, too.
    running(fleet, victim)?;
    let tool = CallKind::of(victim).tool(victim);
    let begun = until_received(fleet, victim, &tool, || client.begin(&cells::call_or_lost(victim, &tool)))?;
    client.finish(&begun)?;
    cells::ask_one(client, victim).map(drop)
}

/// Calls a tool, kills its server once the call has arrived there, and records the results of this and the next call.
pub(crate) fn call_and_kill(client: &McpClient, fleet: &Fleet, victim: usize, killed: &mut KillResults) -> Result<()> {
    let pid = running(fleet, victim)?;
    let kind = CallKind::of(victim);
    let tool = kind.tool(victim);
    let received_before = times_received(fleet, victim, &tool);
    let begun = until_received(fleet, victim, &tool, || client.begin(&cells::call_or_lost(victim, &tool)))?;
    kill_process(pid, Signal::KILL)?;
    killed.servers += 1;
    let (value, _) = client.finish(&begun)?;
    let began = Instant::now();
    match cells::ask_one(client, victim) {
        Ok(_) => {
            killed.came_back += 1;
            killed.back.push(milliseconds(began.elapsed()));
        }
        Err(error) => eprintln!("bench-servers: a killed server did not answer its next call: {error}"),
    }
    let received = times_received(fleet, victim, &tool) - received_before;
    killed.judge(kind, victim, &value, received);
    Ok(())
}

impl KillResults {
    fn judge(&mut self, kind: CallKind, victim: usize, value: &Value, received: usize) {
        let as_wanted = match kind {
            CallKind::Read => {
                let answered = *value == cells::found(victim);
                self.reads += 1;
                self.reads_answered += usize::from(answered);
                answered
            }
            CallKind::Change => {
                let reported = value.as_str().is_some_and(|text| text.starts_with(cells::LOST));
                self.writes += 1;
                self.writes_reported += usize::from(reported);
                self.writes_repeated += usize::from(received > 1);
                reported && received == 1
            }
        };
        if !as_wanted {
            eprintln!(
                "bench-servers: a call whose server was killed returned {value} and was received {received} times"
            );
        }
    }
}

fn running(fleet: &Fleet, victim: usize) -> Result<Pid> {
    let pid = find_server(&fleet.script(victim))?.and_then(Pid::from_raw);
    pid.ok_or_else(|| "a server that was called is not running".into())
}
