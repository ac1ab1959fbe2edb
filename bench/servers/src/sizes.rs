//! Measures the size of Cellmate's tool list, compared with the lists of all servers.

use serde_json::{Value, json};

use crate::Result;
use crate::fleet::Fleet;
use crate::report::Report;
use crate::server_tools::{SERVERS, TOOLS};

/// Approximate value for English and JSON.
const BYTES_PER_TOKEN: f64 = 4.0;

pub(crate) fn run(fleet: &Fleet, report: &mut Report) -> Result<()> {
    let (mut bytes, mut tools) = (0, 0);
    for server in 0..SERVERS.len() {
        let (more_bytes, more_tools) = listed(&fleet.server(server)?)?;
        bytes += more_bytes;
        tools += more_tools;
    }
    if tools != TOOLS {
        return Err(format!("the servers list {tools} tools, not {TOOLS}").into());
    }
    let client = fleet.serve(&fleet.new_state())?;
    let (ours, _) = listed(&client)?;
    client.end()?;
    report.heading("bytes of tools/list, and tokens as bytes / 4");
    let line = |bytes: usize| format!("{bytes} B {:.0} tokens", bytes as f64 / BYTES_PER_TOKEN);
    report.line(&format!("the lists of {} servers, {tools} tools", SERVERS.len()), &line(bytes));
    report.line("the list of cellmate", &line(ours));
    report.fact("servers_list_bytes", bytes as f64);
    report.fact("servers_list_tokens", bytes as f64 / BYTES_PER_TOKEN);
    report.fact("list_bytes", ours as f64);
    report.fact("list_tokens", ours as f64 / BYTES_PER_TOKEN);
    report.fact("list_ratio", bytes as f64 / ours as f64);
    Ok(())
}

/// Returns the bytes of all pages as sent, and the number of tools on them.
fn listed(client: &figures::McpClient) -> Result<(usize, usize)> {
    let (mut bytes, mut tools, mut params) = (0, 0, json!({}));
    loop {
        let page = client.ask("tools/list", &params)?;
        bytes += page.bytes;
        tools += page.result.get("tools").and_then(Value::as_array).ok_or("a list without tools")?.len();
        match page.result.get("nextCursor").filter(|cursor| cursor.is_string()) {
            Some(cursor) => params = json!({"cursor": cursor}),
            None => return Ok((bytes, tools)),
        }
    }
}
