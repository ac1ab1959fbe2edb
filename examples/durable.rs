//! A run that one process starts and another one finishes, from the store.
//!
//! ```text
//! durable start FOLDER            runs the cell until it waits for an approval, and exits
//! durable finish FOLDER RUN       approves the call and resumes the run to its end
//! ```

use std::path::Path;

use cellmate::{Cellmate, Error, KeyFile, RunId, Scope, Store, Tool, json};

/// The cell, which a model would write.
const CELL: &str = r#"
const [hit] = await tools.search("send a letter")
const sent = await tools.call(hit.id, { to: "Ada", text: "The engine works." })
text(`letter ${sent.number} is on its way`)
return sent
"#;

fn main() -> cellmate::Result<()> {
    cellmate::worker_main();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    cellmate::block_on(async {
        match arguments.as_slice() {
            ["start", folder] => start(Path::new(folder)).await,
            ["finish", folder, run_id] => finish(Path::new(folder), &RunId::from(*run_id)).await,
            _ => Err(Error::other("durable start FOLDER | durable finish FOLDER RUN")),
        }
    })
}

async fn start(folder: &Path) -> cellmate::Result<()> {
    let host = open(folder).await?;
    let result = host.run(scope())?.exec("call-1", CELL).await;
    println!("{}", serde_json::to_string(&result)?);
    host.shut_down().await
}

async fn finish(folder: &Path, run_id: &RunId) -> cellmate::Result<()> {
    let host = open(folder).await?;
    for approval in host.approvals().await? {
        println!("approving the call of {} with {}", approval.tool_id, approval.input);
        host.approve(&approval.id, "the operator").await?;
    }
    let result = host.run(scope())?.wait("call-2", run_id).await;
    println!("{}", serde_json::to_string(&result)?);
    print!("{}", host.export("letters").await?);
    host.shut_down().await
}

/// The scope must be the same in both processes: from another scope, the run is not found.
fn scope() -> Scope {
    Scope::agent("writer").session("letters")
}

/// Opens the same store with the same key and the same tools in both processes.
async fn open(folder: &Path) -> cellmate::Result<Cellmate> {
    let schema = json!({
        "type": "object",
        "properties": {"to": {"type": "string"}, "text": {"type": "string"}},
        "required": ["to", "text"],
        "additionalProperties": false,
    });
    let send = Tool::new("plugin:post:send_letter", "Sends a letter on paper.", schema)
        .ask_first()
        .call(async |call| Ok(json!({"number": 1, "to": call.input()["to"]})));
    let store = Store::file(folder.join("runs.db"), KeyFile::open(folder.join("key"))?);
    Cellmate::builder().store(store).tool(send).build().await
}
