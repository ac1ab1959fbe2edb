//! MCP servers that crash, hang, send too much, or send invalid messages.

use std::time::{Duration, Instant};

use executor::{DropCause, Outcome};
use mcp::{DisconnectReason, Limits, Server, Transport};
use serde_json::{Value, json};

use crate::fake::{Connected, Folder, connect, limits, spec, tool};

async fn connect_error(script: Value, limits: Limits) -> String {
    match connect(&Folder::new(), script, limits).await {
        Ok(server) => panic!("{server:?}"),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn a_crash_fails_the_call_and_later_calls_at_once() {
    let script = json!({"tools": [tool("crash", json!([{"stderr": "boom: /etc/secret"}, {"exit": 3}]))]});
    let server = Connected::with(script, limits()).await;
    let expected = "`crash` of MCP server `s` failed: the connection to the server was lost: the server exited or closed its output; calls fail until it is connected again";
    assert_eq!(server.call("crash", json!({})).await, Outcome::Unknown, "it may have taken effect");
    let began = Instant::now();
    assert_eq!(server.failed("crash").await, expected);
    assert!(began.elapsed() < Duration::from_secs(1));
    assert_eq!(server.server.why_closed(), Some(DisconnectReason::Ended));
    // The message does not contain the standard error, which is for the operator only.
    while server.server.stderr_tail() != "boom: /etc/secret" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_hanging_call_times_out_and_does_not_affect_other_calls() {
    let script = json!({"tools": [tool("silent", json!([])), tool("fine", json!([{"result": {}}]))]});
    let server = Connected::with(script, Limits { call: Duration::from_millis(200), ..limits() }).await;
    let expected = "`silent` of MCP server `s` failed: no response within 200 ms, so the call was cancelled; it may have taken effect. If calls of this server take longer, a person can raise `callTimeoutMs` in its entry";
    let (silent, fine) = tokio::join!(server.failed("silent"), server.returned("fine", json!({})));
    assert_eq!((silent.as_str(), fine.to_cell_value()), (expected, json!({})));
}

#[tokio::test]
async fn stray_lines_are_skipped_until_there_are_too_many() {
    let stray = |times: usize| -> Vec<Value> { vec![json!({"print": "Listening on stdio…"}); times] };
    let then_answer = |mut steps: Vec<Value>| {
        steps.push(json!({"result": {}}));
        Value::from(steps)
    };
    let tools = [tool("some", then_answer(stray(9))), tool("many", then_answer(stray(10)))];
    let server = Connected::with(json!({"start": stray(9), "tools": tools}), limits()).await;
    assert_eq!(server.returned("some", json!({})).await.to_cell_value(), json!({}));
    assert_eq!(server.call("many", json!({})).await, Outcome::Unknown);
    let expected = "`many` of MCP server `s` failed: the connection to the server was lost: the server sent 10 lines in a row that are not JSON-RPC; calls fail until it is connected again";
    assert_eq!(server.failed("many").await, expected);
}

#[tokio::test]
async fn calls_in_flight_fail_at_once_when_the_connection_closes() {
    let garbage = Value::from(vec![json!({"print": "?"}); 10]);
    let server =
        Connected::with(json!({"tools": [tool("silent", json!([])), tool("garbage", garbage)]}), limits()).await;
    let began = Instant::now();
    let both = tokio::join!(server.call("silent", json!({})), server.call("garbage", json!({})));
    assert_eq!(both, (Outcome::Unknown, Outcome::Unknown));
    assert!(began.elapsed() < Duration::from_secs(3));
}

#[tokio::test]
async fn an_endless_line_closes_the_connection_and_the_call_names_the_reason() {
    let server = Connected::with(json!({"tools": [tool("endless", json!([{"endless": true}]))]}), limits()).await;
    let Outcome::Dropped(dropped) = server.call("endless", json!({})).await else { panic!() };
    let expected = "`endless` of MCP server `s`: its message is longer than 167772160 bytes, so its connection was closed; ask it for less at once, such as a page, a filter or fewer fields; the call may have taken effect";
    assert!(dropped.cause == DropCause::TooLarge && dropped.message.ends_with(expected), "{}", dropped.message);
    let expected = "`endless` of MCP server `s` failed: the connection to the server was lost: the server sent a message of more than 167772160 bytes; calls fail until it is connected again";
    assert_eq!(server.failed("endless").await, expected);
    let at_start = connect_error(json!({"start": [{"endless": true}]}), limits()).await;
    assert_eq!(
        at_start,
        "connect to MCP server `s`: the server sent a message of more than 167772160 bytes; check its standard error"
    );
}

#[tokio::test]
async fn a_flood_of_stderr_is_drained_and_its_end_is_kept() {
    let flood = json!([{"stderrBytes": 4 << 20}, {"stderr": "the end"}, {"result": {}}]);
    let server = Connected::with(json!({"tools": [tool("flood", flood)]}), limits()).await;
    assert_eq!(server.returned("flood", json!({})).await.to_cell_value(), json!({}));
    while !server.server.stderr_tail().ends_with("the end") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(server.server.stderr_tail().len(), 64 << 10);
}

#[tokio::test]
async fn a_server_that_is_not_ready_in_time_fails_to_connect() {
    let short = Limits { connect: Duration::from_millis(300), ..limits() };
    let expected = "connect to MCP server `s`: it was not ready within 300 ms; start it once by hand to \
         see what it waits for, or raise its `startupTimeoutMs`";
    assert_eq!(connect_error(json!({"start": [{"sleepMs": 60_000}]}), short).await, expected);
    assert_eq!(connect_error(json!({"tools": [], "on": {"tools/list": []}}), short).await, expected);
}

#[tokio::test]
async fn the_exit_code_and_the_stderr_of_a_server_that_exits_at_startup_are_reported() {
    let exits = json!([{"stderr": "ImportError: no module"}, {"exit": 7}]);
    for script in [json!({"start": exits}), json!({"tools": [], "on": {"tools/list": exits}})] {
        let error = connect(&Folder::new(), script, limits()).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "connect to MCP server `s`: its command `{}` exited with code 7 before it was ready; check its standard \
                 error",
                env!("CARGO_BIN_EXE_fake-mcp")
            )
        );
        assert_eq!(error.stderr, "ImportError: no module");
    }
}

#[tokio::test]
async fn a_signal_that_ends_a_server_at_startup_is_named() {
    for (signal, named) in [("KILL", "was ended by SIGKILL"), ("SEGV", "was ended by SIGSEGV")] {
        let error = Server::connect(spec("sh", &["-c", &format!("kill -{signal} $$")], limits())).await.unwrap_err();
        assert!(error.reason().starts_with(&format!("its command `sh` {named} before")), "{error}");
    }
}

#[tokio::test]
async fn a_command_that_cannot_be_started_is_named_with_the_reason() {
    let reason = async |command: &str, cwd: Option<&str>| {
        let mut spec = spec(command, &[], limits());
        let Transport::Stdio { cwd: place, .. } = &mut spec.transport else { panic!("{spec:?}") };
        *place = cwd.map(Into::into);
        Server::connect(spec).await.unwrap_err().reason()
    };
    let missing =
        "its command `no-such-command` was not found in PATH; install it, or write its full path in the entry";
    assert_eq!(reason("no-such-command", None).await, missing);
    let no_file = "its command `/no/such/command` does not exist; install it, or correct the entry";
    assert_eq!(reason("/no/such/command", None).await, no_file);
    let no_folder = "its folder `/no/such/folder` does not exist; create it, or correct `cwd` in the entry";
    assert_eq!(reason("sh", Some("/no/such/folder")).await, no_folder);
}

#[tokio::test]
async fn the_first_line_of_a_server_that_prints_text_instead_of_messages_is_quoted() {
    let short = Limits { connect: Duration::from_millis(500), ..limits() };
    let printed = json!({"print": "Usage: server [OPTIONS]"});
    let first = "it printed `Usage: server [OPTIONS]` to its standard output instead of a JSON-RPC message; check that the \
                 command starts an MCP server, and that it logs to standard error (";
    let stray = |last: Value| json!({"start": [printed, {"print": "more"}, last]});
    for (script, then, limits) in [
        (stray(json!({"exit": 2})), "exited with code 2 before it was ready", limits()),
        (stray(json!({"sleepMs": 60_000})), "it was not ready within 500 ms", short),
        (
            json!({"start": vec![printed.clone(); 10]}),
            "the server sent 10 lines in a row that are not JSON-RPC",
            limits(),
        ),
    ] {
        let error = connect_error(script, limits).await;
        assert!(error.contains(first) && error.contains(then), "{error}");
    }
    // A banner before the first message does no harm, and is not the reason of a later failure.
    let listing = json!({"start": [printed], "tools": [], "on": {"tools/list": [{"exit": 2}]}});
    let error = connect_error(listing, self::limits()).await;
    assert!(error.contains("exited with code 2") && !error.contains("Usage"), "{error}");
}

#[tokio::test]
async fn too_many_tools_or_pages_are_rejected_and_a_huge_tool_is_left_out() {
    let many = "connect to MCP server `s`: it offers more than 2000 tools; configure it to offer fewer, or raise the limit on tools";
    let long_page = connect_error(json!({"manyTools": 100_000, "pageSize": 100_000}), limits()).await;
    assert!(long_page.contains("700009 JSON values"), "{long_page}");
    assert_eq!(connect_error(json!({"manyTools": 2_001, "pageSize": 500}), limits()).await, many);
    let pages = "connect to MCP server `s`: its tool list has more than 256 pages; configure it to offer fewer tools or longer pages";
    let endless = json!({"tools": [], "on": {"tools/list": [{"result": {"tools": [], "nextCursor": "again"}}]}});
    assert_eq!(connect_error(endless, limits()).await, pages);
    let huge = json!({"name": "huge", "description": "x".repeat(1 << 20), "inputSchema": {"type": "object"}});
    let server = Connected::with(json!({"tools": [huge, tool("fine", json!([{"result": {}}]))]}), limits()).await;
    assert_eq!(server.returned("fine", json!({})).await.to_cell_value(), json!({}));
    let left_out = server.server.left_out().remove(0);
    assert_eq!((left_out.tool.as_str(), left_out.why.as_str()), ("huge", "its description is longer than 16384 bytes"));
}

/// Checks both transports, because the listing must not depend on the transport.
#[tokio::test]
async fn cyclic_schemas_and_duplicate_names_are_handled() {
    let circle = |schema: Value| json!({"name": "circle", "inputSchema": schema, "does": [{"result": {}}]});
    let schemas = [
        json!({"type": "object", "$ref": "#"}),
        json!({"type": "object", "properties": {"a": {"$ref": "#/properties/b"}, "b": {"$ref": "#/properties/a"}}}),
        json!({"type": "object", "properties": {"a": {"$ref": "#"}}, "allOf": [{"$ref": "#"}, {"$ref": "#"}]}),
    ];
    for schema in schemas {
        let twice = [circle(schema), tool("circle", json!([{"error": {"code": 1, "message": "the second"}}]))];
        let script = json!({"tools": twice});
        for server in [Connected::with(script.clone(), limits()).await, Connected::at_address(script, limits()).await] {
            // The call may succeed or fail, but it must end soon.
            let began = Instant::now();
            let outcome = server.call("circle", json!({"a": 1})).await;
            assert!(began.elapsed() < Duration::from_secs(5), "{outcome:?}");
            assert!(!format!("{outcome:?}").contains("the second"), "{outcome:?}");
            let left_out = server.server.left_out().remove(0);
            assert_eq!(left_out.why, "another tool of this server has the same name");
        }
    }
}

#[tokio::test]
async fn unexpected_responses_and_floods_of_notifications_are_ignored() {
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    let wrong = json!({"jsonrpc": "2.0", "id": 999, "result": {"content": ["wrong"]}});
    let steps = json!([{"say": wrong}, {"sayTimes": [20_000, changed]}, {"result": {}}, {"say": wrong}]);
    let server = Connected::with(json!({"tools": [tool("flood", steps)]}), limits()).await;
    assert_eq!(server.returned("flood", json!({})).await.to_cell_value(), json!({}));
    assert_eq!(*server.server.list_changes().borrow(), 20_000);
    assert_eq!(server.returned("flood", json!({})).await.to_cell_value(), json!({}));
}

#[tokio::test]
async fn an_invalid_response_fails_the_call_or_the_connection() {
    let odd = |name: &str, result: Value| tool(name, json!([{"result": result}]));
    let tools = [
        odd("number", json!(7)),
        odd("null", Value::Null),
        odd("ask", json!({"resultType": "input_required", "inputRequests": {}})),
        tool("error", json!([{"error": {"code": "x"}}])),
        tool("long", json!([{"error": {"code": 1, "message": "é".repeat(5000)}}])),
    ];
    let server = Connected::with(json!({"tools": tools}), limits()).await;
    let not_a_result = "its response is not a valid result";
    let long = format!("{}… (code 1)", "é".repeat(1000));
    let expected = [
        ("number", not_a_result),
        ("null", not_a_result),
        ("ask", "its request for input cannot be passed on: it contains no question"),
        ("error", "an error without a readable message (code 0)"),
        ("long", &long),
    ];
    for (name, why) in expected {
        assert_eq!(server.failed(name).await, format!("`{name}` of MCP server `s` failed: {why}"));
    }
    let not_mcp = "connect to MCP server `s`: it does not speak a supported revision of MCP; check that the command starts an MCP server on standard input and output, or that the address is its MCP endpoint";
    assert_eq!(connect_error(json!({"on": {"initialize": [{"result": {"tools": []}}]}}), limits()).await, not_mcp);
    assert_eq!(connect_error(json!({"tools": [], "on": {"tools/list": [{"result": {}}]}}), limits()).await, not_mcp);
    let no = json!([{"error": {"code": -32000, "message": "not today"}}]);
    let script = json!({"on": {"initialize": no, "server/discover": no}});
    assert_eq!(
        connect_error(script, limits()).await,
        "connect to MCP server `s`: it rejected the request: not today (code -32000)"
    );
}

#[tokio::test]
async fn the_connection_closes_if_the_server_does_not_read() {
    let script = json!({"tools": [tool("sleep", json!([{"sleepMs": 600_000}]))]});
    let server = Connected::with(script, Limits { call: Duration::from_millis(100), ..limits() }).await;
    assert!(server.failed("sleep").await.contains("no response within 100 ms"));
    // Large calls fill the pipe to the server and then the queue of unsent messages.
    let large = json!({"text": "x".repeat(100 << 10)});
    for _ in 0..40 {
        let calls = (0..8).map(|_| server.call("sleep", large.clone()));
        futures_util::future::join_all(calls).await;
        if server.server.why_closed().is_some() {
            break;
        }
    }
    assert_eq!(server.server.why_closed(), Some(DisconnectReason::DoesNotRead));
}

/// Checks a server that exits at the end of its input, and one that ignores it.
#[tokio::test]
async fn processes_that_the_server_started_end_with_it() {
    for does in [json!([{"child": true}]), json!([{"child": true}, {"sleepMs": 600_000}])] {
        let server = Connected::with(json!({"tools": [tool("child", does)]}), limits()).await;
        let child = server.returned("child", json!({})).await.to_cell_value()["structuredContent"].as_u64().unwrap();
        let alive = || testkit::processes::is_alive(u32::try_from(child).unwrap());
        assert!(alive());
        drop(server);
        let gone = async {
            while alive() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), gone).await.unwrap();
    }
}

#[tokio::test]
async fn an_invalid_command_or_name_is_reported_with_a_remedy() {
    let mut spec = spec("no-such-command-anywhere", &[], limits());
    let error = Server::connect(spec.clone()).await.unwrap_err();
    let start = "connect to MCP server `s`: its command `no-such-command-anywhere` was not found in PATH; install it";
    assert!(error.to_string().starts_with(start), "{error}");
    for name in ["", "a:b", "a\nb", &"x".repeat(65)] {
        spec.name = name.to_owned();
        let error = mcp::Server::connect(spec.clone()).await.unwrap_err();
        assert!(matches!(error.why, mcp::ConnectFailure::BadName), "{name:?}: {error}");
    }
}
