//! Images, sounds and stored outputs as a client receives them, on the wire.

use std::sync::Arc;

use catalog::SurfaceChoice;
use codemode::CodeMode;
use contract::limits::{MAX_PAGE_RESOURCES, MAX_RESOURCE_READ_BYTES, MAX_RESOURCE_READS};
use contract::tool::{Repeat, ToolId, ToolSpec};
use executor::{AuthorizedCall, CallFuture, Dispatch, Outcome, ToolResult, ToolSource};
use mcp::server::{McpService, OfferedSources, Principal, Settings, serve_streams};
use serde_json::{Value, json};
use testkit::runner;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf, split};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::served::settings;

/// Base64 of the image that the tool returns.
const PNG: &str = "iVBORw0KGgpub3QgcmVhbGx5IGEgUE5H";
const WAV: &str = "UklGRm5vdCByZWFsbHkgYSBzb3VuZA==";

/// A server whose tools return an image and a sound.
#[derive(Debug)]
struct Studio;

impl ToolSource for Studio {
    fn tools(&self) -> Vec<ToolSpec> {
        let tool = |id: &str, repeat: Repeat| {
            let spec = ToolSpec::new(ToolId::parse(id).unwrap(), "Records.", json!({"type": "object"}));
            ToolSpec { repeat, declared_repeat: repeat, ..spec }
        };
        vec![
            tool("mcp:studio:record", Repeat::Never),
            tool("mcp:studio:reserve", Repeat::Additive),
            tool("mcp:studio:listen", Repeat::Always),
        ]
    }

    fn call(&self, _call: AuthorizedCall) -> CallFuture<'_> {
        let blocks = json!([
            {"type": "image", "data": PNG, "mimeType": "image/png"},
            {"type": "audio", "data": WAV, "mimeType": "audio/wav"},
        ]);
        let returned = ToolResult::json(json!({"content": blocks}));
        Box::pin(async move { Dispatch::Settled(Outcome::Returned(returned)) })
    }
}

async fn service(tools: Value) -> McpService {
    service_with(runner::in_process().await.unwrap(), settings(&tools))
}

fn service_with(code_mode: CodeMode, settings: Settings) -> McpService {
    let offered = OfferedSources { sources: vec![Arc::new(Studio)], settled: true, ..OfferedSources::default() };
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

#[tokio::test(flavor = "multi_thread")]
async fn images_and_sounds_of_output_and_value_become_blocks() {
    let service = service(Value::Null).await;
    let (image, audio) = (
        json!({"type": "image", "data": PNG, "mimeType": "image/png"}),
        json!({"type": "audio", "data": WAV, "mimeType": "audio/wav"}),
    );
    let mut client = Client::connect(&service, "local", OLD).await;
    let code = "const [a, b] = (await MCP.studio.record({})).content; image(a); audio(b); return 1";
    let output = client.exec(code).await;
    assert_eq!(output.blocks, [image.clone(), audio.clone()], "{}", output.json);
    let [first, second] = output.json["output"].as_array().unwrap().as_slice() else { panic!("{}", output.json) };
    assert_eq!(
        (&first["type"], &first["mimeType"], &first["bytes"]),
        (&json!("image"), &json!("image/png"), &json!(24))
    );
    assert_eq!(second["type"], "audio");
    assert!(first["handle"].as_str().unwrap().starts_with("out_cm_"), "{first}");

    let value = client.exec("return await MCP.studio.record({})").await;
    assert_eq!(value.blocks, [image.clone(), audio], "{}", value.json);
    let block = &value.json["value"]["content"][0];
    assert_eq!((&block["type"], &block["bytes"], block.get("data")), (&json!("image"), &json!(24), None));

    // The block is shown again from its handle, by another cell.
    let again = client.exec(&format!("image({}); return 2", first["handle"])).await;
    assert_eq!(again.blocks, [image], "{}", again.json);
    // The data is a resource too.
    let read = client.read(&format!("cellmate://out/{}", first["handle"].as_str().unwrap())).await;
    let contents = &read["result"]["contents"][0];
    assert_eq!((&contents["blob"], &contents["mimeType"]), (&json!(PNG), &json!("image/png")), "{read}");
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_past_the_limit_wait_and_are_all_answered() {
    let service = service(Value::Null).await;
    let mut client = Client::connect(&service, "local", OLD).await;
    let shown = client.exec("return 'x'.repeat(300_000)").await;
    let uri = format!("cellmate://out/{}", shown.json["value"]["handle"].as_str().unwrap());
    let count = 5 * MAX_RESOURCE_READS;
    for id in 0..count {
        let id = format!("read-{id}");
        let params = json!({"uri": uri});
        client.send(&json!({"jsonrpc": "2.0", "id": id, "method": "resources/read", "params": params})).await;
    }
    let mut answered = std::collections::BTreeSet::new();
    while answered.len() < count {
        let line = tokio::time::timeout(std::time::Duration::from_secs(60), client.reader.next_line()).await;
        let message: Value = serde_json::from_str(&line.unwrap().unwrap().unwrap()).unwrap();
        let Some(id) = message["id"].as_str() else { continue };
        assert_eq!(message["result"]["contents"][0]["text"].as_str().map(str::len), Some(300_000), "{id}");
        assert!(answered.insert(id.to_owned()), "{id} was answered twice");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_revision_gets_no_sound() {
    let service = service(Value::Null).await;
    let mut client = Client::connect(&service, "local", ("test", "2024-11-05")).await;
    let shown = client.exec("return await MCP.studio.record({})").await;
    let types: Vec<&Value> = shown.blocks.iter().map(|block| &block["type"]).collect();
    assert_eq!(types, ["image"], "{}", shown.json);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_is_lost_is_returned_again_with_its_images() {
    let service = service(Value::Null).await;
    let mut client = Client::connect(&service, "local", OLD).await;
    let waiting = client.exec("await yield_control(); image((await MCP.studio.record({})).content[0]); return 1").await;
    let wait = json!({"runId": waiting.json["runId"]});
    let done = client.call("wait", wait.clone()).await;
    assert_eq!((done.blocks.len(), &done.json["value"]), (1, &json!(1)), "{}", done.json);
    let again = client.call("wait", wait).await;
    assert_eq!((&again.blocks, &again.json["output"]), (&done.blocks, &done.json["output"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_exceeds_the_media_budget_is_stored_and_named() {
    let service = service(json!({"codeMode": {"maxMediaBlocks": 1}})).await;
    let mut client = Client::connect(&service, "local", OLD).await;
    let shown = client.exec("return await MCP.studio.record({})").await;
    assert_eq!(shown.blocks.len(), 1, "{}", shown.json);
    let stored = &shown.json["output"][1];
    assert_eq!((&stored["type"], &stored["of"], &stored["bytes"]), (&json!("stored"), &json!("audio"), &json!(22)));
    let read = client.read(&format!("cellmate://out/{}", stored["handle"].as_str().unwrap())).await;
    assert_eq!(read["result"]["contents"][0]["blob"], WAV, "{read}");
    // The client has read a resource, so it gets links from now on.
    let linked = client.exec("return await MCP.studio.record({})").await;
    let types: Vec<&Value> = linked.blocks.iter().map(|block| &block["type"]).collect();
    assert_eq!(types, ["image", "resource_link"], "{}", linked.json);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_output_is_linked_for_clients_that_use_resources() {
    let service = service(Value::Null).await;
    let code = "text('a'.repeat(100_000)); return 1";
    let mut client = Client::connect(&service, "local", OLD).await;
    let plain = client.exec(code).await;
    assert!(plain.blocks.is_empty(), "{:?}", plain.blocks);
    let preview = &plain.json["output"][0];
    assert_eq!((&preview["type"], &preview["bytes"]), (&json!("stored"), &json!(100_000)));
    let listed = client.ask("resources/list", json!({})).await;
    let resource = &listed["result"]["resources"][0];
    assert_eq!(resource["uri"], format!("cellmate://out/{}", preview["handle"].as_str().unwrap()), "{listed}");
    assert_eq!((&resource["size"], &resource["mimeType"]), (&json!(100_000), &json!("text/plain")), "{listed}");
    let linked = client.exec(code).await;
    let link = &linked.blocks[0];
    assert_eq!((&link["type"], &link["size"]), (&json!("resource_link"), &json!(100_000)), "{link}");
    let read = client.read(link["uri"].as_str().unwrap()).await;
    assert_eq!(read["result"]["contents"][0]["text"], "a".repeat(100_000));

    // The revision before does not know links.
    let mut older = Client::connect(&service, "local", ("test", "2025-03-26")).await;
    older.ask("resources/list", json!({})).await;
    assert!(older.exec(code).await.blocks.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn outputs_are_listed_in_pages_for_their_client_and_read_by_their_principal() {
    let service = service(Value::Null).await;
    let mut client = Client::connect(&service, "ada", OLD).await;
    let number = MAX_PAGE_RESOURCES + 3;
    let code = "for (let n = 0; n < 8; n++) image({ data: btoa('image ' + n + ' of ' + INDEX), mimeType: 'image/png' }); return 1";
    for index in 0..number.div_ceil(8) {
        let shown = client.exec(&code.replace("INDEX", &index.to_string())).await;
        assert_eq!(shown.blocks.len(), 8, "{}", shown.json);
    }
    let first = client.ask("resources/list", json!({})).await["result"].clone();
    let cursor = first["nextCursor"].as_str().unwrap_or_else(|| panic!("{first}")).to_owned();
    assert_eq!(first["resources"].as_array().unwrap().len(), MAX_PAGE_RESOURCES);
    let second = client.ask("resources/list", json!({"cursor": cursor})).await["result"].clone();
    assert_eq!(second["resources"].as_array().unwrap().len(), number.div_ceil(8) * 8 - MAX_PAGE_RESOURCES, "{second}");
    let wrong = client.ask("resources/list", json!({"cursor": "x"})).await;
    assert_eq!(wrong["error"]["code"], -32602, "{wrong}");

    // Another client of the principal reads it and does not list it; for another principal it does not exist.
    let uri = first["resources"][0]["uri"].as_str().unwrap();
    let mut other = Client::connect(&service, "ada", ("other", "2025-11-25")).await;
    assert_eq!(other.ask("resources/list", json!({})).await["result"]["resources"], json!([]));
    assert!(other.read(uri).await["result"]["contents"][0]["blob"].is_string());
    let mut foreign = Client::connect(&service, "bob", OLD).await;
    assert_eq!(foreign.ask("resources/list", json!({})).await["result"]["resources"], json!([]));
    let (denied, unknown) = (foreign.read(uri).await, foreign.read("cellmate://out/out_cm_nobody_l1n0").await);
    assert_eq!((&denied["error"], &denied["error"]["code"]), (&unknown["error"], &json!(-32002)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_output_is_read_in_parts_that_add_up() {
    let service = service(Value::Null).await;
    let mut client = Client::connect(&service, "local", OLD).await;
    let shown = client.exec("return Array.from({ length: 600_000 }, (_, n) => n + 'é').join(' ')").await;
    let value = &shown.json["value"];
    assert_eq!(value["type"], "stored", "{}", shown.json);
    let expected = (0..600_000).map(|n| format!("{n}é")).collect::<Vec<_>>().join(" ");
    let uri = format!("cellmate://out/{}", value["handle"].as_str().unwrap());
    let whole = client.read(&uri).await;
    assert_eq!(
        (&whole["error"]["code"], &whole["error"]["data"]["bytes"]),
        (&json!(-32602), &json!(expected.len())),
        "{whole}"
    );
    let (mut read, mut next) = (String::new(), whole["error"]["data"]["first"].as_str().map(str::to_owned));
    while let Some(uri) = next {
        let part = client.read(&uri).await["result"]["contents"][0].clone();
        let text = part["text"].as_str().unwrap();
        assert!(text.len() as u64 <= MAX_RESOURCE_READ_BYTES + 3, "{}", text.len());
        read += text;
        next = part["_meta"]["cellmate/part"]["next"].as_str().map(str::to_owned);
    }
    assert!(read == expected, "{} of {} bytes", read.len(), expected.len());
    let some = client.read(&format!("{uri}?offset=7&length=5")).await;
    assert_eq!(some["result"]["contents"][0]["text"], expected[7..12], "{some}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_of_the_store_is_an_incident_whose_text_no_client_receives() {
    let code_mode = runner::in_process().await.unwrap();
    let service = service_with(code_mode.clone(), settings(&Value::Null));
    let mut client = Client::connect(&service, "local", OLD).await;
    let shown = client.exec("return 'x'.repeat(300_000)").await;
    let uri = format!("cellmate://out/{}", shown.json["value"]["handle"].as_str().unwrap());
    let direct = Settings { surface: Some(SurfaceChoice::Direct), ..settings(&Value::Null) };
    let direct = service_with(code_mode.clone(), direct);
    let mut direct = Client::connect(&direct, "local", OLD).await;
    let tool = direct.ask("tools/list", json!({})).await["result"]["tools"][0]["name"].clone();

    code_mode.store().close().await;
    let (read, listed) = (client.read(&uri).await, client.ask("resources/list", json!({})).await);
    let called = direct.ask("tools/call", json!({"name": tool, "arguments": {}})).await;
    for message in [
        &read["error"]["message"],
        &listed["error"]["message"],
        &client.call("wait", json!({})).await.json["error"],
        &called["result"]["content"][0]["text"],
    ] {
        let message = message.as_str().unwrap_or_else(|| panic!("{read} {listed} {called}"));
        assert!(message.starts_with("internal error (incident "), "{message}");
        assert!(!message.contains("the store failed") && !message.contains("pool"), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_cell_names_the_calls_that_had_effects() {
    let service = service(Value::Null).await;
    let mut client = Client::connect(&service, "local", OLD).await;
    let calls = "await MCP.studio.record({}); await MCP.studio.listen({}); await MCP.studio.reserve({})";
    let failed = client.exec(&format!("{calls}; throw new Error('late')")).await;
    assert_eq!(
        failed.json["effects"],
        json!([
            {"tool": "mcp:studio:record", "call": 1, "state": "done"},
            {"tool": "mcp:studio:reserve", "call": 3, "state": "done"},
        ]),
        "{}",
        failed.json
    );
}
