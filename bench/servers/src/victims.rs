//! Servers that are killed in the middle of a call, and what becomes of the call and of them.

use std::time::Instant;

use figures::Samples;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::client::Client;
use crate::fleet::Fleet;
use crate::heard::{times_heard, until_heard};
use crate::offer::{working_reader, working_writer};
use crate::processes::server;
use crate::report::milliseconds;
use crate::{Result, cells};

#[derive(Debug, Default)]
pub(crate) struct Fallen {
    pub(crate) killed: usize,
    /// Tools that only read: the call is made again without the cell's doing.
    pub(crate) reads: usize,
    pub(crate) reads_answered: usize,
    /// Tools that change something: the cell is told that nobody knows, and nobody calls again.
    pub(crate) writes: usize,
    pub(crate) writes_told: usize,
    pub(crate) writes_repeated: usize,
    /// Those that answered the next call, and how long it took.
    pub(crate) came_back: usize,
    pub(crate) back: Samples,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    ToRead,
    ToChange,
}

impl Asked {
    /// Every other victim is asked to change something.
    fn of(victim: usize) -> Self {
        if victim.is_multiple_of(2) { Self::ToRead } else { Self::ToChange }
    }

    fn tool(self, victim: usize) -> String {
        match self {
            Self::ToRead => working_reader(victim),
            Self::ToChange => working_writer(victim),
        }
    }
}

/// The same calls as in a fall, without one.
pub(crate) fn work(client: &Client, fleet: &Fleet, victim: usize) -> Result<()> {
    // Looked for as in a fall: a look at all processes is work, too.
    running(fleet, victim)?;
    let tool = Asked::of(victim).tool(victim);
    let begun = until_heard(fleet, victim, &tool, || client.begin(&cells::call_or_lost(victim, &tool)))?;
    client.finish(&begun)?;
    cells::ask_one(client, victim).map(drop)
}

pub(crate) fn fall(client: &Client, fleet: &Fleet, victim: usize, fallen: &mut Fallen) -> Result<()> {
    let pid = running(fleet, victim)?;
    let asked = Asked::of(victim);
    let tool = asked.tool(victim);
    let heard_before = times_heard(fleet, victim, &tool);
    let begun = until_heard(fleet, victim, &tool, || client.begin(&cells::call_or_lost(victim, &tool)))?;
    kill_process(pid, Signal::KILL)?;
    fallen.killed += 1;
    let (value, _) = client.finish(&begun)?;
    let began = Instant::now();
    match cells::ask_one(client, victim) {
        Ok(_) => {
            fallen.came_back += 1;
            fallen.back.push(milliseconds(began.elapsed()));
        }
        Err(error) => eprintln!("bench-servers: a killed server did not come back: {error}"),
    }
    let heard = times_heard(fleet, victim, &tool) - heard_before;
    fallen.judge(asked, victim, &value, heard);
    Ok(())
}

impl Fallen {
    fn judge(&mut self, asked: Asked, victim: usize, value: &Value, heard: usize) {
        let as_wanted = match asked {
            Asked::ToRead => {
                let answered = *value == cells::found(victim);
                self.reads += 1;
                self.reads_answered += usize::from(answered);
                answered
            }
            Asked::ToChange => {
                let told = value.as_str().is_some_and(|text| text.starts_with(cells::LOST));
                self.writes += 1;
                self.writes_told += usize::from(told);
                self.writes_repeated += usize::from(heard > 1);
                told && heard == 1
            }
        };
        if !as_wanted {
            eprintln!("bench-servers: a call whose server was killed came to {value}, heard {heard} times");
        }
    }
}

fn running(fleet: &Fleet, victim: usize) -> Result<Pid> {
    let pid = server(&fleet.script(victim))?.and_then(Pid::from_raw);
    pid.ok_or_else(|| "a server that was called does not run".into())
}
