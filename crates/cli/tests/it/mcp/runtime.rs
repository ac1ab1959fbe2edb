//! `cellmate mcp` on a machine where no worker can start.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::json;

use super::place::{Place, reads};

/// Address space in KiB for the server and its workers: enough for the server, and less than the engine reserves.
const ADDRESS_SPACE_KIB: u32 = 4 << 20;

#[test]
fn without_a_runtime_the_server_exits_and_shows_no_tool() {
    let place = Place::new(json!([reads("add", json!([{"result": {"content": []}}]))]));
    let server = place.server(&[]);
    let mut limited = Command::new("sh");
    limited.arg("-c").arg(format!("ulimit -v {ADDRESS_SPACE_KIB}; exec \"$0\" \"$@\""));
    limited.arg(server.get_program()).args(server.get_args());
    let mut child = limited.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let hello =
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let mut stdin = child.stdin.take().unwrap();
    for message in [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}),
    ] {
        // The server may have ended already.
        let _result = writeln!(stdin, "{message}");
    }
    // A server that works would answer first, and then end with code 0.
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(2), "{out}\n{err}");
    for tool in ["\"exec\"", "\"wait\"", "\"add\"", "s__add"] {
        assert!(!out.contains(tool), "{out}");
    }
    assert!(err.contains("worker"), "{err}");
}
