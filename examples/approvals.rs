//! A tool whose calls a person approves, while the program runs: the answer is read from standard input.

use cellmate::{Approval, Cellmate, Scope, Tool, json};

/// The cell, which a model would write. It handles a denied call like any other error.
const CELL: &str = r#"
for (const to of ["Ada", "Grace"]) {
  try {
    const letter = await tools.send_letter({ to })
    text(`letter ${letter.number} to ${to} is on its way`)
  } catch (error) {
    text(`no letter to ${to}: ${error.message}`)
  }
}
"#;

fn main() -> cellmate::Result<()> {
    cellmate::worker_main();
    cellmate::block_on(async {
        let schema = json!({"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]});
        let send = Tool::new("plugin:post:send_letter", "Sends a letter on paper.", schema)
            .ask_first()
            .call(async |call| Ok(json!({"number": 1, "to": call.input()["to"]})));
        let host = Cellmate::builder().tool(send).build().await?;
        let run = host.run(Scope::agent("writer").session("letters"))?;

        let mut result = run.exec("call-1", CELL).await;
        let mut turn = 1;
        while let Some(run_id) = result.run_id().cloned() {
            println!("{}", serde_json::to_string(&result)?);
            for approval in host.approvals().await? {
                if is_allowed(&approval)? {
                    host.approve(&approval.id, "the operator").await?;
                } else {
                    host.deny(&approval.id, "the operator", "not today").await?;
                }
            }
            turn += 1;
            result = run.wait(&format!("call-{turn}"), &run_id).await;
        }
        println!("{}", serde_json::to_string(&result)?);
        host.shut_down().await
    })
}

/// Asks the person at the terminal.
fn is_allowed(approval: &Approval) -> cellmate::Result<bool> {
    println!("call {} with {}? [y/n]", approval.tool_id, approval.input);
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(answer.trim() == "y")
}
