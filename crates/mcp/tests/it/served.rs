//! The MCP server that agents call, with upstream servers that change while a client is connected.

use std::sync::Arc;

use catalog::UnavailableServer;
use catalog::policy::Provider;
use contract::config::AgentsConfig;
use contract::tool::{ToolId, ToolSpec};
use executor::{AuthorizedCall, CallFuture, Dispatch, Outcome, ToolResult, ToolSource};
use mcp::server::{ApprovalPolicy, McpService, OfferedSources, Principal, Settings, ToolPrefix, serve_streams};
use serde_json::{Value, json};
use testkit::runner;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf, split};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// A server with one tool, which returns the server's name.
#[derive(Debug)]
struct Behind(&'static str);

impl ToolSource for Behind {
    fn tools(&self) -> Vec<ToolSpec> {
        let id = ToolId::parse(&format!("mcp:{}:name", self.0)).unwrap();
        vec![ToolSpec::new(id, "Says its name.", json!({"type": "object"}))]
    }

    fn call(&self, _call: AuthorizedCall) -> CallFuture<'_> {
        let returned = ToolResult::json(json!({"structuredContent": self.0}));
        Box::pin(async move { Dispatch::Settled(Outcome::Returned(returned)) })
    }
}

struct Client {
    reader: Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
}

impl Client {
    async fn say(&mut self, message: Value) {
        self.writer.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn hear(&mut self) -> Value {
        let line = tokio::time::timeout(std::time::Duration::from_secs(30), self.reader.next_line()).await;
        serde_json::from_str(&line.unwrap().unwrap().unwrap()).unwrap()
    }

    async fn ask(&mut self, message: Value) -> Value {
        self.say(message).await;
        self.hear().await
    }
}

/// A server with long names, or one that is unavailable.
#[derive(Debug)]
enum Other {
    Long(usize),
    Unavailable(usize),
}

impl ToolSource for Other {
    fn tools(&self) -> Vec<ToolSpec> {
        let Self::Long(number) = self else { return Vec::new() };
        let id = ToolId::parse(&format!("mcp:s{number}-{}:read_{}", "server-".repeat(7), "x".repeat(40))).unwrap();
        let path = json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
        vec![ToolSpec::new(id, "Reads. ".repeat(1000), path)]
    }

    fn unavailable(&self) -> Option<UnavailableServer> {
        let Self::Unavailable(number) = self else { return None };
        let reason = format!("\u{1F600} {}", "no reason ".repeat(100));
        Some(UnavailableServer { name: format!("\u{1F600} missing {number}"), reason })
    }

    fn call(&self, _call: AuthorizedCall) -> CallFuture<'_> {
        Box::pin(async move { Dispatch::Settled(Outcome::Failed("not called".to_owned())) })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn descriptions_fit_with_any_number_of_servers_and_do_not_change() {
    let (mut client, offer) = serve().await;
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta()}});
    for number in [0, 1, 5, 64, 500] {
        let long = (0..number).map(|number| -> Arc<dyn ToolSource> { Arc::new(Other::Long(number)) });
        let missing = (0..number).map(|number| -> Arc<dyn ToolSource> { Arc::new(Other::Unavailable(number)) });
        let mut sources: Vec<_> = long.chain(missing).collect();
        offer.send_modify(|offered| offered.sources.clone_from(&sources));
        let listed = client.ask(list.clone()).await;
        for (tool, limit) in [(0, 1_900), (1, 900)] {
            let description = listed["result"]["tools"][tool]["description"].as_str().unwrap();
            assert!(description.chars().count() <= limit, "{number}: {description}");
            assert!(description.encode_utf16().count() <= limit, "{number}: {description}");
            assert!(!description.ends_with('…'), "{number}: {description}");
        }
        let description = listed["result"]["tools"][0]["description"].as_str().unwrap();
        let lines: Vec<&str> = description.lines().collect();
        assert_eq!(lines[1].starts_with("  const r = await MCP.s0Server"), number > 0, "{description}");
        assert!(lines.last().unwrap().starts_with("Limits: "), "{description}");
        // Five long names may fit or not.
        let is_cut = description.contains("; `await API.read(\"mcp/index.d.ts\")` lists all.");
        assert!(is_cut == (number > 5) || number == 5, "{description}");
        sources.reverse();
        offer.send_modify(|offered| offered.sources = sources);
        assert_eq!(client.ask(list.clone()).await, listed);
    }
}

/// Settings of a server that requires no approvals, with this value of `tools`.
pub(crate) fn settings(tools: &Value) -> Settings {
    Settings {
        config: AgentsConfig::resolve(tools, &Value::Null).unwrap(),
        approval_policy: ApprovalPolicy::Never,
        exempt: Vec::new(),
        tool_prefix: ToolPrefix::default(),
        surface: None,
        provider: Provider::Unknown,
        sandboxed: false,
        runtime_available: true,
        seal: [1; 32],
        project: None,
    }
}

async fn serve() -> (Client, watch::Sender<OfferedSources>) {
    serve_through(1 << 16).await
}

/// Serves over a pipe of this size: a longer write waits for the reader.
async fn serve_through(pipe_bytes: usize) -> (Client, watch::Sender<OfferedSources>) {
    let code_mode = runner::in_process().await.unwrap();
    let (offer, offered) = watch::channel(OfferedSources {
        sources: vec![Arc::new(Behind("one"))],
        settled: true,
        ..OfferedSources::default()
    });
    let service = McpService::new(code_mode, settings(&Value::Null), offered);
    let (ours, theirs) = tokio::io::duplex(pipe_bytes);
    let stop = CancellationToken::new();
    tokio::spawn(serve_streams(service, Principal::local(), split(ours), stop));
    let (reader, writer) = split(theirs);
    (Client { reader: BufReader::new(reader).lines(), writer }, offer)
}

fn two(offered: &mut OfferedSources) {
    offered.sources.push(Arc::new(Behind("two")));
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
    client.say(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
    let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
    let before = client.ask(list.clone()).await;
    // An update that changes nothing for the client is not announced.
    offer.send_modify(|_| {});
    offer.send_modify(two);
    assert_eq!(client.hear().await["method"], "notifications/tools/list_changed");
    let after = client.ask(list).await;
    assert_ne!(before, after);
    assert!(after.to_string().contains("Servers: one, two."), "{after}");
    let code = "return [(await MCP.two.name({})).structuredContent]";
    let call = json!({"name": "exec", "arguments": {"code": code}});
    let called = client.ask(json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": call})).await;
    assert_eq!(called["result"]["structuredContent"]["value"], json!(["two"]), "{called}");
}

#[tokio::test(flavor = "multi_thread")]
async fn since_2026_a_client_subscribes_to_changes() {
    let (mut client, offer) = serve().await;
    let params = json!({"_meta": meta(), "notifications": {"toolsListChanged": true, "promptsListChanged": true}});
    let listen = json!({"jsonrpc": "2.0", "id": "l", "method": "subscriptions/listen", "params": params});
    let begun = client.ask(listen).await;
    assert_eq!(begun["method"], "notifications/subscriptions/acknowledged", "{begun}");
    assert_eq!(begun["params"]["notifications"], json!({"toolsListChanged": true}), "{begun}");
    offer.send_modify(two);
    let told = client.hear().await;
    assert_eq!(told["method"], "notifications/tools/list_changed");
    assert_eq!(told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "l", "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_during_the_acknowledgement_of_a_subscription_is_announced() {
    for lists_before in [true, false] {
        let (mut client, offer) = serve_through(64).await;
        if lists_before {
            let params = json!({"_meta": meta()});
            client.ask(json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params})).await;
        }
        let params = json!({"_meta": meta(), "notifications": {"toolsListChanged": true}});
        client.say(json!({"jsonrpc": "2.0", "id": "l", "method": "subscriptions/listen", "params": params})).await;
        // The acknowledgement has started and cannot finish before the client reads it, so `listen` has not been
        // called.
        client.reader.get_mut().fill_buf().await.unwrap();
        offer.send_modify(two);
        let begun = client.hear().await;
        assert_eq!(begun["method"], "notifications/subscriptions/acknowledged", "{begun}");
        let told = client.hear().await;
        assert_eq!(told["method"], "notifications/tools/list_changed", "{told}");
    }
}
