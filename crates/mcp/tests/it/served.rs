//! The MCP server in process, with upstream tools that change while a client is connected.

use std::sync::Arc;

use contract::config::AgentsConfig;
use contract::tool::{ToolId, ToolSpec};
use executor::{AuthorizedCall, CallFuture, Dispatch, Outcome, Returned, ToolSource};
use mcp::server::{ApprovalPolicy, McpService, Offered, Principal, Settings, ToolPrefix, serve_streams};
use serde_json::{Value, json};
use testkit::runner;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf, split};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// An upstream server with one tool, which answers with the name of its server.
#[derive(Debug)]
struct UpstreamServer(&'static str);

impl ToolSource for UpstreamServer {
    fn tools(&self) -> Vec<ToolSpec> {
        let id = ToolId::parse(&format!("mcp:{}:name", self.0)).unwrap();
        vec![ToolSpec::new(id, "Says its name.", json!({"type": "object"}))]
    }

    fn call(&self, _call: AuthorizedCall) -> CallFuture<'_> {
        let returned = Returned::json(json!({"structuredContent": self.0}));
        Box::pin(async move { Dispatch::Settled(Outcome::Returned(returned)) })
    }
}

struct Client {
    reader: Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
}

impl Client {
    async fn send(&mut self, message: Value) {
        self.writer.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn receive(&mut self) -> Value {
        let line = tokio::time::timeout(std::time::Duration::from_secs(30), self.reader.next_line()).await;
        serde_json::from_str(&line.unwrap().unwrap().unwrap()).unwrap()
    }

    async fn ask(&mut self, message: Value) -> Value {
        self.send(message).await;
        self.receive().await
    }
}

async fn serve() -> (Client, watch::Sender<Offered>) {
    serve_through(1 << 16).await
}

/// Serves a client over a pipe with this capacity: a writer that fills it waits for the reader.
async fn serve_through(pipe_bytes: usize) -> (Client, watch::Sender<Offered>) {
    let code_mode = runner::in_process().await.unwrap();
    let (offer, offered) = watch::channel(Offered { sources: vec![Arc::new(UpstreamServer("one"))], settled: true });
    let settings = Settings {
        config: AgentsConfig::resolve(&Value::Null, &Value::Null).unwrap(),
        asking: ApprovalPolicy::Nobody,
        pass: Vec::new(),
        tool_prefix: ToolPrefix::default(),
        seal: [1; 32],
    };
    let frontend = McpService::new(code_mode, settings, offered);
    let (ours, theirs) = tokio::io::duplex(pipe_bytes);
    let stop = CancellationToken::new();
    tokio::spawn(serve_streams(frontend, Principal::local(), split(ours), stop));
    let (reader, writer) = split(theirs);
    (Client { reader: BufReader::new(reader).lines(), writer }, offer)
}

fn two(offered: &mut Offered) {
    offered.sources.push(Arc::new(UpstreamServer("two")));
}

fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_a_session_is_notified_of_new_servers() {
    let (mut client, offer) = serve().await;
    let hello =
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let begun = client.ask(json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})).await;
    assert_eq!(begun["result"]["capabilities"]["tools"]["listChanged"], true, "{begun}");
    client.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
    let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
    let before = client.ask(list.clone()).await;
    // A change that does not affect the list is not announced.
    offer.send_modify(|_| {});
    offer.send_modify(two);
    assert_eq!(client.receive().await["method"], "notifications/tools/list_changed");
    let after = client.ask(list).await;
    assert_ne!(before, after);
    assert!(after.to_string().contains("Servers: one, two."), "{after}");
    let code = "return [(await MCP.two.name({})).structuredContent]";
    let call = json!({"name": "exec", "arguments": {"code": code}});
    let called = client.ask(json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": call})).await;
    assert_eq!(called["result"]["structuredContent"]["value"], json!(["two"]), "{called}");
}

#[tokio::test(flavor = "multi_thread")]
async fn since_2026_a_client_subscribes_to_tool_list_changes() {
    let (mut client, offer) = serve().await;
    let params = json!({"_meta": meta(), "notifications": {"toolsListChanged": true, "promptsListChanged": true}});
    let listen = json!({"jsonrpc": "2.0", "id": "l", "method": "subscriptions/listen", "params": params});
    let begun = client.ask(listen).await;
    assert_eq!(begun["method"], "notifications/subscriptions/acknowledged", "{begun}");
    assert_eq!(begun["params"]["notifications"], json!({"toolsListChanged": true}), "{begun}");
    offer.send_modify(two);
    let notification = client.receive().await;
    assert_eq!(notification["method"], "notifications/tools/list_changed");
    assert_eq!(notification["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "l", "{notification}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_during_the_acknowledgement_of_a_subscription_is_reported() {
    for lists_before in [true, false] {
        let (mut client, offer) = serve_through(64).await;
        if lists_before {
            let params = json!({"_meta": meta()});
            client.ask(json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params})).await;
        }
        let params = json!({"_meta": meta(), "notifications": {"toolsListChanged": true}});
        client.send(json!({"jsonrpc": "2.0", "id": "l", "method": "subscriptions/listen", "params": params})).await;
        // The acknowledgement has started and cannot finish before it is read, so the subscription is not active yet.
        client.reader.get_mut().fill_buf().await.unwrap();
        offer.send_modify(two);
        let begun = client.receive().await;
        assert_eq!(begun["method"], "notifications/subscriptions/acknowledged", "{begun}");
        let notification = client.receive().await;
        assert_eq!(notification["method"], "notifications/tools/list_changed", "{notification}");
    }
}
