//! A cell finds the tools of its own run and no others.

use std::sync::Arc;

use catalog::UnavailableServer;
use contract::scope::Scope;
use contract::tool::ToolSpec;
use executor::run::RunRequest;
use executor::{AuthorizedCall, CallFuture, Dispatch, Outcome, ToolSource};
use futures_util::future::join_all;
use serde_json::json;

use crate::fake_tools::{Behavior, FakeTools, spec};
use crate::world::{Parts, Workers, World, request, scope, value};

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

/// A run that is not the writer's, and what differs.
fn strangers() -> [(&'static str, Scope); 4] {
    let own = scope("writer/session/run");
    [
        ("sender", Scope { sender: Some("eve".to_owned()), ..own.clone() }),
        ("session", Scope { session_id: "other".to_owned(), ..own.clone() }),
        ("run", Scope { agent_run_id: "other".to_owned(), ..own.clone() }),
        ("agent", Scope { agent_id: "reader".to_owned(), ..own }),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_leaks_to_another_agent_session_sender_or_run() {
    for workers in [Workers::Attached, Workers::Jailed] {
        let fakes = FakeTools::new([("openclaw:core:read", Behavior::Echo), ("openclaw:core:write", Behavior::Echo)]);
        let parts = Parts {
            workers,
            agents: json!({"reader": {"tools": {"deny": ["write"]}}, "writer": {"tools": {"deny": ["read"]}}}),
            sources: vec![fakes.clone()],
            ..Parts::default()
        };
        let world = parts.open().await;
        let mine = FakeTools::new([("client:app:mine", Behavior::Echo)]);
        let client_tools: Vec<Arc<dyn ToolSource>> = vec![mine.clone()];
        let writer = world.prepared(&RunRequest { client_tools, ..request("writer/session/run") });
        // The writer's cell keeps a global and stays in the worker while the others run there.
        let secret = "globalThis.kept = 'canary'; await yield_control(); return [kept, await tools.mine({ n: 1 })]";
        let (run_id, _) = writer.suspend(secret).await;
        let look = "const call = id => tools.call(id, { n: 1 }).then(() => 'answered', error => error.message.split(';')[0])
            return [ALL_TOOLS.map(tool => tool.name), typeof kept, await tools.search('mine', { limit: 9 }),
                    await call('client:app:mine'), await call('openclaw:core:read'), await call('openclaw:core:write')]";
        let hidden = |id: &str| format!("unknown tool `{id}`");
        let others = strangers();
        let runs = others.iter().map(|(_, scope)| {
            let stranger = world.prepared(&RunRequest { scope: scope.clone(), ..RunRequest::default() });
            async move { stranger.value(look).await }
        });
        for ((differs, scope), seen) in others.iter().zip(join_all(runs).await) {
            let (own, read, write) = if *differs == "agent" {
                ("read", "answered".to_owned(), hidden("openclaw:core:write"))
            } else {
                ("write", hidden("openclaw:core:read"), "answered".to_owned())
            };
            let expected = json!([[own], "undefined", [], hidden("client:app:mine"), read, write]);
            assert_eq!(seen, expected, "{workers:?}: another {differs}");
            // The tool acts for the run that called it.
            let calls = fakes.calls().iter().filter(|call| call.scope == *scope).count();
            assert_eq!(calls, 1, "{workers:?}: another {differs}: {:?}", fakes.calls());
        }
        assert_eq!(fakes.calls().len(), 4);
        assert_eq!(mine.called(), [""; 0]);
        assert_eq!(value(&writer.wait(&run_id).await), &json!(["canary", {"n": 1}]), "{workers:?}");
        assert_eq!(mine.calls()[0].scope, scope("writer/session/run"));
    }
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
async fn searches_of_a_cell_respect_the_configured_limits() {
    let cell = "const count = async options => (await tools.search('widget', options)).length
        return [await count(), await count({ limit: 2 }), await count({ limit: 100 })]";
    for (code_mode, expected) in [
        (json!(true), [8, 2, 50]),
        (json!({"enabled": true, "searchDefaultLimit": 3, "maxSearchLimit": 5}), [3, 2, 5]),
        (json!({"enabled": true, "searchDefaultLimit": 9, "maxSearchLimit": 4}), [4, 2, 4]),
    ] {
        let fakes = FakeTools::new([]);
        (0..60).for_each(|number| fakes.put(spec(&format!("plugin:fake:widget_{number:02}")), Behavior::Echo));
        let world =
            Parts { tools: json!({ "codeMode": code_mode }), sources: vec![fakes], ..Parts::default() }.open().await;
        assert_eq!(world.run().value(cell).await, json!(expected), "{code_mode}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shell_is_called_by_its_id_and_cells_do_not_nest() {
    // Every id that the cell tries is offered by a source, so only the catalog can refuse it.
    let fakes = FakeTools::new([
        ("openclaw:core:exec", Behavior::Echo),
        ("openclaw:core:wait", Behavior::Echo),
        ("openclaw:core:tool_search_code", Behavior::Echo),
        ("openclaw:core:tool_search", Behavior::Echo),
        ("openclaw:core:tool_describe", Behavior::Echo),
        ("openclaw:core:tool_call", Behavior::Echo),
    ]);
    let world = Parts { sources: vec![fakes.clone()], ..Parts::default() }.open().await;
    let code = r#"
        const names = ["wait", "tool_search_code", "tool_search", "tool_describe", "tool_call"]
        const ids = [...names.map(name => "openclaw:core:" + name), "exec", "wait"]
        const message = promise => promise.then(() => "answered", error => error.message.split(";")[0])
        return [await tools.call("openclaw:core:exec", { command: "ls" }), await tools.exec({ command: "pwd" }), typeof exec,
                typeof wait, names.map(name => typeof tools[name]), await Promise.all(ids.map(id => message(tools.call(id, {}))))]
    "#;
    let refused = [
        "openclaw:core:wait",
        "openclaw:core:tool_search_code",
        "openclaw:core:tool_search",
        "openclaw:core:tool_describe",
        "openclaw:core:tool_call",
        "exec",
        "wait",
    ]
    .map(|id| format!("unknown tool `{id}`"));
    let no_functions = ["undefined"; 5];
    let expected = json!([
        {"command": "ls"}, {"command": "pwd"}, "undefined", "undefined", no_functions, refused,
    ]);
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
}

#[tokio::test(flavor = "multi_thread")]
async fn declarations_are_read_without_a_bridge_call_and_are_no_files() {
    let folder = tempfile::tempdir().unwrap();
    let fakes = FakeTools::new([("mcp:github:create_issue", Behavior::Echo)]);
    let parts = Parts { sources: vec![fakes.clone()], store: Some(folder.path().join("store.db")), ..Parts::default() };
    let world = parts.open().await;
    let run = world.run();
    let cell = "const files = await API.list('mcp')
        const texts = await Promise.all(files.map(file => API.read(file.path)))
        await API.read('mcp/nothing.d.ts').catch(() => {})
        await yield_control()
        return texts.map(text => text.includes('createIssue'))";
    let (run_id, _) = run.suspend(cell).await;
    // The journal has every call of the cell that crossed the bridge.
    let calls = world.store().calls(&run_id).await.unwrap();
    let methods: Vec<&str> = calls.iter().map(|call| call.method.as_str()).collect();
    assert_eq!(methods, ["yield"], "{calls:?}");
    let files = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name());
    let others: Vec<_> = files.filter(|name| !name.to_string_lossy().starts_with("store.db")).collect();
    assert!(others.is_empty(), "{others:?}");
    let result = run.wait(&run_id).await;
    assert_eq!(value(&result), &json!([true, true]));
    let telemetry = &result["telemetry"];
    for count in ["searchCount", "describeCount", "callCount"] {
        assert_eq!(telemetry[count], 0, "{telemetry}");
    }
    assert_eq!(fakes.called(), [""; 0]);
}
