//! A cell finds the tools of its own run and no others.

use std::sync::Arc;

use catalog::UnavailableServer;
use contract::tool::ToolSpec;
use executor::run::RunRequest;
use executor::{AuthorizedCall, CallFuture, Dispatch, Outcome, ToolSource};
use serde_json::{Value, json};

use crate::fake_tools::{Behavior, FakeTools};
use crate::world::{Parts, Run, World, request};

const CALL_ALL: &str = r#"
const ids = ["openclaw:core:read", "openclaw:core:secret", "openclaw:core:nothing", "mcp:vault:open", "mcp:vault:nothing"]
const calls = await Promise.allSettled(ids.map(id => tools.call(id, {})))
const described = await Promise.allSettled(ids.map(id => tools.describe(id)))
const messages = settled => settled.map((one, at) => one.status === "fulfilled" ? "yes" : one.reason.message.replaceAll(ids[at], "X"))
return { calls: messages(calls), described: messages(described) }
"#;

async fn world() -> (World, Arc<FakeTools>) {
    let fakes = FakeTools::new([
        ("openclaw:core:read", Behavior::Echo),
        ("openclaw:core:secret", Behavior::Echo),
        ("plugin:browser:browser_request", Behavior::Echo),
        ("mcp:github:create_issue", Behavior::Echo),
        ("mcp:vault:open", Behavior::Echo),
    ]);
    let tools = json!({"codeMode": true, "deny": ["openclaw:core:secret", "mcp:vault:*"]});
    (Parts { tools, sources: vec![fakes.clone()], ..Parts::default() }.open().await, fakes)
}

#[tokio::test(flavor = "multi_thread")]
async fn all_tools_lists_every_allowed_tool_except_mcp_tools() {
    let (world, _) = world().await;
    let client: Arc<dyn ToolSource> = FakeTools::new([("client:app:select_file", Behavior::Echo)]);
    let run = world.prepared(&RunRequest { client_tools: vec![client], ..request("main/session/run") });
    let value = run.value("return [ALL_TOOLS.map(tool => tool.id), ALL_TOOLS[0]]").await;
    let ids = ["client:app:select_file", "openclaw:core:read", "plugin:browser:browser_request"];
    assert_eq!(value[0], json!(ids));
    let entry = json!({
        "id": ids[0], "name": "select_file", "description": "Does client:app:select_file.",
        "source": "client", "sourceName": "app",
    });
    assert_eq!(value[1], entry, "the entry has no schema");
}

/// A configured MCP server that cannot be reached.
#[derive(Debug)]
struct Unreachable(&'static str);

impl ToolSource for Unreachable {
    fn tools(&self) -> Vec<ToolSpec> {
        Vec::new()
    }

    fn unavailable(&self) -> Option<UnavailableServer> {
        Some(UnavailableServer { name: self.0.to_owned(), reason: "it requires a login; log in".to_owned() })
    }

    fn call(&self, _call: AuthorizedCall) -> CallFuture<'_> {
        Box::pin(std::future::ready(Dispatch::Settled(Outcome::Failed("unreachable".to_owned()))))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unavailable_server_is_named_with_its_reason_unless_policy_denies_it() {
    let fakes = FakeTools::new([("mcp:github:create_issue", Behavior::Echo)]);
    let sources: Vec<Arc<dyn ToolSource>> =
        vec![fakes, Arc::new(Unreachable("my-mail")), Arc::new(Unreachable("vault")), Arc::new(Unreachable("github"))];
    let tools = json!({"codeMode": true, "deny": ["mcp:vault:*"]});
    let world = Parts { tools, sources, ..Parts::default() }.open().await;
    let run = world.run();
    let description = &run.prepared.visible[0].description;
    assert!(description.contains("Servers: github. Unavailable: my-mail (requires a login)."), "{description}");
    let cell = "const call = (server) => server.send({}).catch(error => error.message)
        return [Object.keys(MCP), await call(MCP.myMail), typeof MCP.vault, await MCP.myMail.$api().catch(String),
                (await API.read('mcp/index.d.ts')).includes('server \"my-mail\": it requires a login')]";
    let why = "the MCP server `my-mail` is unavailable: it requires a login; log in; tell your user, or continue \
               without it";
    let keys = json!(["$api", "github"]);
    assert_eq!(run.value(cell).await, json!([keys, why, "undefined", format!("Error: {why}"), true]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denied_tool_is_indistinguishable_from_an_unknown_one() {
    let (world, fakes) = world().await;
    let value = world.run().value(CALL_ALL).await;
    for kind in ["calls", "described"] {
        let [read, secret, nothing, vault, server] = [0, 1, 2, 3, 4].map(|at| &value[kind][at]);
        assert_eq!(read, "yes");
        assert_eq!(secret, nothing, "{kind}");
        assert_eq!((vault, server), (nothing, nothing), "{kind}");
        assert!(nothing.as_str().unwrap().starts_with("unknown tool `X`"), "{nothing}");
    }
    assert_eq!(fakes.called(), ["openclaw:core:read"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denied_tool_appears_in_no_listing_or_declaration() {
    let (world, _) = world().await;
    let run = world.run();
    let code = r#"
        const files = await API.list()
        const texts = await Promise.all(files.map(file => API.read(file.path)))
        return [ALL_TOOLS, await tools.search("secret vault open", { limit: 50 }), files, texts, Object.keys(tools),
                Object.keys(MCP), await MCP.$api(), typeof MCP.vault]
    "#;
    let value = run.value(code).await;
    let shown = format!("{value}{:?}", run.prepared.visible);
    assert!(!shown.contains("secret") && !shown.contains("vault"), "{shown}");
    assert!(shown.contains("browser_request") && shown.contains("github"), "{shown}");
    assert_eq!(value[7], "undefined");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_runs_do_not_share_tools_or_globals() {
    let fakes = FakeTools::new([("openclaw:core:read", Behavior::Echo), ("openclaw:core:write", Behavior::Echo)]);
    let parts = Parts {
        agents: json!({"reader": {"tools": {"deny": ["write"]}}, "writer": {"tools": {"deny": ["read"]}}}),
        sources: vec![fakes.clone()],
        ..Parts::default()
    };
    let world = parts.open().await;
    let mine: Arc<dyn ToolSource> = FakeTools::new([("client:app:mine", Behavior::Echo)]);
    let with_client = RunRequest { client_tools: vec![mine], ..request("writer/session/run") };
    let (reader, writer) = (world.run_as("reader/session/run"), world.prepared(&with_client));
    let seen = async |run: &Run| {
        run.value("return [ALL_TOOLS.map(tool => tool.name), Object.getOwnPropertyNames(globalThis).includes('kept')]")
            .await
    };
    assert_eq!(reader.value("globalThis.kept = 1; return kept").await, 1);
    // Both run at the same time on the same worker.
    let (one, other) = tokio::join!(seen(&reader), seen(&writer));
    assert_eq!(one, json!([["read"], false]));
    assert_eq!(other, json!([["mine", "write"], false]));
    // Another run of the same agent does not have the client's tool.
    assert_eq!(seen(&world.run_as("writer/session/run-2")).await, json!([["write"], false]));
    let denied = reader.value("return await tools.call('openclaw:core:write', {}).catch(error => error.message)").await;
    assert!(denied.as_str().unwrap().starts_with("unknown tool"), "{denied}");
    assert_eq!(fakes.called(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn core_plugin_and_client_tools_are_found_described_and_called() {
    let (world, fakes) = world().await;
    let client = FakeTools::new([("client:app:select_file", Behavior::Echo)]);
    let client_tools: Vec<Arc<dyn ToolSource>> = vec![client.clone()];
    let run = world.prepared(&RunRequest { client_tools, ..request("main/session/run") });
    let code = r#"
        const found = []
        for (const word of ["read", "browser", "select_file"]) {
          const [hit] = await tools.search(word, { limit: 1 })
          const { id, parameters } = await tools.describe(hit.id)
          found.push([id, parameters.type, await tools.call(id, { word })])
        }
        return [found, await tools.read({ by: "name" })]
    "#;
    let expected = json!([[
        ["openclaw:core:read", "object", {"word": "read"}],
        ["plugin:browser:browser_request", "object", {"word": "browser"}],
        ["client:app:select_file", "object", {"word": "select_file"}],
    ], {"by": "name"}]);
    assert_eq!(run.value(code).await, expected);
    assert_eq!((fakes.called().len(), client.called().len()), (3, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shell_is_called_by_its_id_and_cells_do_not_nest() {
    let fakes = FakeTools::new([("openclaw:core:exec", Behavior::Echo), ("openclaw:core:wait", Behavior::Echo)]);
    let world = Parts { sources: vec![fakes.clone()], ..Parts::default() }.open().await;
    let code = r#"
        const refused = await Promise.allSettled(["exec", "wait", "openclaw:core:wait", "openclaw:core:tool_call"].map(id => tools.call(id, {})))
        return [await tools.call("openclaw:core:exec", { command: "ls" }), await tools.exec({ command: "pwd" }), typeof exec,
                typeof wait, typeof tools.wait, refused.map(one => one.status)]
    "#;
    let refused = ["rejected"; 4];
    let expected = json!([{"command": "ls"}, {"command": "pwd"}, "undefined", "undefined", "undefined", refused]);
    assert_eq!(world.run().value(code).await, expected);
    assert_eq!(fakes.called(), ["openclaw:core:exec", "openclaw:core:exec"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn mcp_tools_are_declared_and_called_in_the_mcp_namespace() {
    let (world, fakes) = world().await;
    let code = r#"
        const files = await API.list("mcp")
        const text = await API.read("mcp/github.d.ts")
        const inline = await MCP.github.$api("createIssue", { schema: true })
        const made = await MCP.github.createIssue({ title: "t" })
        const wrong = await MCP.github.createIssue("t").catch(error => error.message)
        return [files.map(file => file.path), text.includes("function createIssue("), JSON.stringify(inline).includes("createIssue"),
                made, wrong, ALL_TOOLS.some(tool => tool.source === "mcp"), await tools.search("issue")]
    "#;
    let result = world.run().exec(code).await;
    let value = &result["value"];
    assert_eq!(value[0], json!(["mcp/index.d.ts", "mcp/github.d.ts"]), "{result}");
    assert_eq!((&value[1], &value[2]), (&json!(true), &json!(true)), "{result}");
    assert_eq!(value[3], json!({"title": "t"}), "{result}");
    let wrong = value[4].as_str().unwrap();
    assert!(wrong.starts_with("MCP tools take one object argument: MCP.github.createIssue("), "{wrong}");
    assert_eq!((&value[5], &value[6]), (&json!(false), &json!([])));
    assert_eq!(fakes.called(), ["mcp:github:create_issue"]);
    // Reading declarations does not count as a call.
    let read: Value = world.run().exec("return (await API.read('mcp/github.d.ts')).length > 0").await;
    assert_eq!((&read["value"], &read["telemetry"]["callCount"]), (&json!(true), &json!(0)));
}
