//! The cells of this benchmark, and checks of their results.

use serde_json::{Value, json};

use crate::Result;
use crate::server_tools::{SERVERS, answering, name};
use figures::{Answer, McpClient};

/// Prefix of the value of a cell whose call failed.
pub(crate) const LOST: &str = "lost: ";

/// A cell that calls one tool; its value is the id of the record that the tool returns.
pub(crate) fn call(server: usize, tool: &str) -> String {
    format!("return (await MCP.{}.{}({{ id: '7' }})).structuredContent.id", name(server), function(tool))
}

/// A cell that calls one tool and also completes if the call fails; its value then starts with [`LOST`].
pub(crate) fn call_or_lost(server: usize, tool: &str) -> String {
    let call = format!("MCP.{}.{}({{ id: '7' }})", name(server), function(tool));
    format!("return {call}.then((found) => found.structuredContent.id, (error) => '{LOST}' + error.message)")
}

/// The id that the tools of this server return.
pub(crate) fn found(server: usize) -> Value {
    json!(format!("{}-7", name(server)))
}

/// Calls a tool that answers immediately, and checks the answer.
pub(crate) fn ask_one(client: &McpClient, server: usize) -> Result<Answer> {
    let (value, answer) = client.exec(&call(server, &answering(server)))?;
    if value == found(server) { Ok(answer) } else { Err(format!("{} answered {value}", name(server)).into()) }
}

/// Calls one tool of every server in one cell.
pub(crate) fn ask_all(client: &McpClient) -> Result<()> {
    let tools: Vec<Value> =
        (0..SERVERS.len()).map(|server| json!([name(server), function(&answering(server))])).collect();
    let code = format!(
        "const found = await Promise.all({}.map(([server, tool]) => MCP[server][tool]({{ id: '7' }})))\n\
         return found.map((one) => one.structuredContent.id)",
        Value::from(tools)
    );
    let (value, _) = client.exec(&code)?;
    let wanted: Vec<Value> = (0..SERVERS.len()).map(found).collect();
    if value == Value::from(wanted) { Ok(()) } else { Err(format!("the servers answered {value}").into()) }
}

/// The name of a tool in a cell: `get_record` becomes `getRecord`.
fn function(tool: &str) -> String {
    let mut upper = false;
    let mut function = String::new();
    for letter in tool.chars() {
        match letter {
            '_' => upper = true,
            _ if upper => {
                function.push(letter.to_ascii_uppercase());
                upper = false;
            }
            _ => function.push(letter),
        }
    }
    function
}

#[cfg(test)]
mod tests {
    use super::call;

    #[test]
    fn a_tool_name_becomes_camel_case_in_a_cell() {
        let wanted = "return (await MCP.accounting.getRecord({ id: '7' })).structuredContent.id";
        assert_eq!(call(0, "get_record"), wanted);
    }
}
