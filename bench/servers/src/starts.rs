//! Measures the time from the start of `cellmate mcp` to the result of its first cell, which calls one tool.

use figures::Samples;
use serde_json::json;

use crate::fleet::Fleet;
use crate::processes::{Census, Kind};
use crate::report::{Report, milliseconds};
use crate::server_tools::SERVERS;
use crate::{Repetitions, Result, cells};

/// The server that is listed last, so that a first cell has to wait for all of them.
const CALLED: usize = SERVERS.len() - 1;

pub(crate) fn run(fleet: &Fleet, repetitions: Repetitions, report: &mut Report) -> Result<()> {
    let (mut cold, mut remembered) = (Samples::default(), Samples::default());
    for _ in 0..repetitions.starts {
        let state = fleet.new_state();
        for samples in [&mut cold, &mut remembered] {
            let client = fleet.serve(&state)?;
            samples.push(milliseconds(client.since_start(&cells::ask_one(&client, CALLED)?)));
            client.end()?;
        }
    }
    let (listed, called) = servers_started(fleet)?;
    report.heading("start to the result of a first cell that calls one tool");
    report.times("no cached lists: all servers are started and listed", &cold);
    report.times("cached lists", &remembered);
    report.line("servers started after tools/list, with cached lists", &listed.to_string());
    report.line("servers started after one call", &called.to_string());
    report.fact("first_cell_cold_ms", cold.p50());
    report.fact("first_cell_remembered_ms", remembered.p50());
    report.fact("servers_started_uncalled", listed as f64);
    report.fact("servers_started_by_one_call", called as f64);
    Ok(())
}

/// Returns how many servers run after `tools/list` with cached lists, and how many after one call.
fn servers_started(fleet: &Fleet) -> Result<(usize, usize)> {
    let state = fleet.new_state();
    let first = fleet.serve(&state)?;
    first.ask("tools/list", &json!({}))?;
    first.end()?;
    let client = fleet.serve(&state)?;
    client.ask("tools/list", &json!({}))?;
    let listed = Census::take(client.pid(), &fleet.mark())?.count(Kind::Server);
    cells::ask_one(&client, CALLED)?;
    let called = Census::take(client.pid(), &fleet.mark())?.count(Kind::Server);
    client.end()?;
    Ok((listed, called))
}
