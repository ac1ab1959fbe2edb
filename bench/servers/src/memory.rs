//! Measures the memory of `cellmate`, its workers and the keepers, without that of the servers.

use figures::machine::{mebibytes, resident_bytes};
use serde_json::json;

use crate::fleet::Fleet;
use crate::processes::{Census, Kind, private_bytes};
use crate::report::Report;
use crate::{Result, cells};

pub(crate) fn run(fleet: &Fleet, report: &mut Report) -> Result<()> {
    report.heading("resident memory: cellmate, its workers; private memory of the servers' keepers");
    let state = fleet.new_state();
    let client = fleet.serve(&state)?;
    client.ask("tools/list", &json!({}))?;
    look(fleet, client.pid(), "listed", "all servers listed, none called", report)?;
    cells::ask_all(&client)?;
    look(fleet, client.pid(), "called", "one call to each", report)?;
    client.end()?;
    let client = fleet.serve(&state)?;
    client.ask("tools/list", &json!({}))?;
    look(fleet, client.pid(), "remembered", "all lists cached, no server started", report)?;
    client.end()
}

fn look(fleet: &Fleet, cellmate: i32, key: &str, name: &str, report: &mut Report) -> Result<()> {
    let census = Census::take(cellmate, &fleet.mark())?;
    let ours = resident_bytes(&cellmate.to_string())?;
    let mut workers = 0;
    for worker in census.of(Kind::Worker) {
        workers += resident_bytes(&worker.pid.to_string())?;
    }
    let keepers: Option<u64> = census.of(Kind::Keeper).map(|keeper| private_bytes(keeper.pid)).sum();
    let keepers = keepers.map_or(f64::NAN, mebibytes);
    report.line(
        name,
        &format!(
            "{:.1} MiB, {:.1} MiB in {} workers, {keepers:.1} MiB in {} keepers",
            mebibytes(ours),
            mebibytes(workers),
            census.count(Kind::Worker),
            census.count(Kind::Keeper)
        ),
    );
    report.fact(&format!("resident_{key}_mib"), mebibytes(ours));
    report.fact(&format!("resident_workers_{key}_mib"), mebibytes(workers));
    report.fact(&format!("private_keepers_{key}_mib"), keepers);
    Ok(())
}
