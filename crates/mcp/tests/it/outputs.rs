//! Images, sounds and stored outputs as a client receives them, on the wire.

use std::sync::Arc;

use catalog::policy::Provider;
use contract::config::AgentsConfig;
use contract::tool::{ToolId, ToolSpec};
use executor::{AuthorizedCall, CallFuture, Dispatch, Outcome, Returned, ToolSource};
use mcp::server::{ApprovalPolicy, McpService, OfferedSources, Principal, Settings, ToolPrefix, serve_streams};
use serde_json::{Value, json};
use testkit::runner;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf, split};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Base64 of the image that the tool returns.
const PNG: &str = "iVBORw0KGgpub3QgcmVhbGx5IGEgUE5H";
const WAV: &str = "UklGRm5vdCByZWFsbHkgYSBzb3VuZA==";

/// A server with one tool, which returns an image and a sound.
#[derive(Debug)]
struct Studio;

impl ToolSource for Studio {
    fn tools(&self) -> Vec<ToolSpec> {
        let id = ToolId::parse("mcp:studio:record").unwrap();
        vec![ToolSpec::new(id, "Records.", json!({"type": "object"}))]
    }

    fn call(&self, _call: AuthorizedCall) -> CallFuture<'_> {
        let blocks = json!([
            {"type": "image", "data": PNG, "mimeType": "image/png"},
            {"type": "audio", "data": WAV, "mimeType": "audio/wav"},
        ]);
        let returned = Returned::json(json!({"content": blocks}));
        Box::pin(async move { Dispatch::Settled(Outcome::Returned(returned)) })
    }
}

async fn service(tools: Value) -> McpService {
    let code_mode = runner::in_process().await.unwrap();
    let offered = OfferedSources { sources: vec![Arc::new(Studio)], settled: true, ..OfferedSources::default() };
    let settings = Settings {
        config: AgentsConfig::resolve(&tools, &Value::Null).unwrap(),
        approval_policy: ApprovalPolicy::Never,
        exempt: Vec::new(),
        tool_prefix: ToolPrefix::default(),
        surface: None,
        provider: Provider::Unknown,
        sandboxed: false,
        runtime_available: true,
        seal: [1; 32],
        project: None,
    };
    McpService::new(code_mode, settings, watch::channel(offered).1)
}

struct Client {
    reader: Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
    next_id: u64,
}

impl Client {
    /// Connects a client of a revision that has a handshake.
    async fn connect(service: &McpService, principal: &str, (name, revision): (&str, &str)) -> Self {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let principal = Principal::named(principal).unwrap();
        tokio::spawn(serve_streams(service.clone(), principal, split(ours), CancellationToken::new()));
        let (reader, writer) = split(theirs);
        let mut client = Self { reader: BufReader::new(reader).lines(), writer, next_id: 0 };
        let about = json!({"name": name, "version": "1"});
        let hello = json!({"protocolVersion": revision, "capabilities": {}, "clientInfo": about});
        let begun = client.ask("initialize", hello).await;
        assert_eq!(begun["result"]["protocolVersion"], revision, "{begun}");
        assert!(begun["result"]["capabilities"]["resources"].is_object(), "{begun}");
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        client
    }

    async fn send(&mut self, message: &Value) {
        self.writer.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    /// Returns the answer as it was sent.
    async fn ask_line(&mut self, method: &str, params: Value) -> String {
        self.next_id += 1;
        let id = self.next_id;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        loop {
            let line = tokio::time::timeout(std::time::Duration::from_secs(60), self.reader.next_line()).await;
            let line = line.unwrap().unwrap().unwrap();
            if serde_json::from_str::<Value>(&line).unwrap()["id"] == id {
                return line;
            }
        }
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        serde_json::from_str(&self.ask_line(method, params).await).unwrap()
    }

    async fn call(&mut self, tool: &str, arguments: Value) -> Shown {
        let answer = self.ask("tools/call", json!({"name": tool, "arguments": arguments})).await;
        let result = answer["result"].clone();
        let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
        let blocks = result["content"].as_array().unwrap()[1..].to_vec();
        let json: Value = serde_json::from_str(&text).unwrap();
        // Structured content is there exactly if there is no other block, and then it is the text.
        let expected = if blocks.is_empty() { json.clone() } else { Value::Null };
        assert_eq!(result["structuredContent"], expected, "{answer}");
        assert!(!text.contains(&PNG[..16]) && !text.contains(&WAV[..16]), "{text}");
        Shown { json, blocks }
    }

    async fn exec(&mut self, code: &str) -> Shown {
        self.call("exec", json!({"code": code})).await
    }

    async fn read(&mut self, uri: &str) -> Value {
        self.ask("resources/read", json!({"uri": uri})).await
    }
}

/// A result as the model sees it.
#[derive(Debug)]
struct Shown {
    json: Value,
    blocks: Vec<Value>,
}

const OLD: (&str, &str) = ("test", "2025-06-18");

#[tokio::test(flavor = "multi_thread")]
async fn exec_and_wait_declare_no_output_schema() {
    let service = service(Value::Null).await;
    let mut client = Client::connect(&service, "local", OLD).await;
    let line = client.ask_line("tools/list", json!({})).await;
    assert!(line.contains("\"name\":\"exec\"") && line.contains("\"name\":\"wait\""), "{line}");
    assert!(!line.contains("outputSchema"), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_address_of_an_output_is_a_template_and_what_is_unknown_is_not_found() {
    let service = service(Value::Null).await;
    let mut client = Client::connect(&service, "local", OLD).await;
    let templates = client.ask("resources/templates/list", json!({})).await;
    let template = &templates["result"]["resourceTemplates"][0]["uriTemplate"];
    assert_eq!(template, "cellmate://out/{handle}{?offset,length}", "{templates}");
    for uri in ["cellmate://out/out_cm_nobody_l1n0", "cellmate://out/x", "file:///etc/passwd", ""] {
        let unknown = client.read(uri).await;
        assert_eq!(unknown["error"]["code"], -32002, "{uri}: {unknown}");
    }
    let wrong = client.read("cellmate://out/out_cm_nobody_l1n0?offset=x").await;
    assert_eq!(wrong["error"]["code"], -32602, "{wrong}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_without_media_is_the_same_as_text_and_as_structured_content() {
    let service = service(Value::Null).await;
    let mut client = Client::connect(&service, "local", OLD).await;
    let shown = client.exec("return (await MCP.studio.record({})).content.length").await;
    assert_eq!((shown.json, shown.blocks.len()), (json!({"status": "completed", "value": 2}), 0));
}
