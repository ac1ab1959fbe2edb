//! Tool Search beside direct tools: the same calls, a fraction of the request. Then what it refuses.

use std::sync::Arc;
use std::time::{Duration, Instant};

use codemode::tool_search::is_failure;
use codemode::{CodeMode, ExecInput, ToolSearch};
use contract::config::AgentsConfig;
use contract::config::pattern::Pattern;
use contract::limits::Limits;
use contract::scope::Scope;
use executor::run::{Host, PreparedRun, RunRequest, prepare};
use executor::{CallEnd, Canned, Executor, Outcome, Routes, ToolSource, Updates};
use serde_json::{Value, json};
use store::{Decision, Reach};
use testkit::ledger::Ledger;
use testkit::runner;

const TICKET: &str = "plugin:fake:create_ticket";
const EVENT: &str = "mcp:calendar:create_event";
const DEPLOY: &str = "openclaw:ops:deploy";
const NEVER: &str = "plugin:fake:never";
const SECRET: &str = "plugin:fake:secret";

/// A plugin with a large catalog, an MCP server, and tools that make trouble.
fn source() -> Arc<dyn ToolSource> {
    let mut tools: Vec<Value> = (0..220)
        .map(|number| {
            let properties = json!({
                "target": {"type": "string", "description": "What to work on, by its full name or its number."},
                "mode": {"type": "string", "enum": ["fast", "careful", "dry-run"]},
                "count": {"type": "integer", "minimum": 1, "maximum": 100},
            });
            json!({
                "id": format!("plugin:fake:widget_{number:03}"),
                "description": format!("Turns widget number {number} and reports what became of it, step by step."),
                "parameters": {"type": "object", "properties": properties, "required": ["target"]},
            })
        })
        .collect();
    let title = json!({"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]});
    tools.extend([
        json!({"id": TICKET, "description": "Opens a ticket.", "parameters": title, "answers": [{"echo": true}]}),
        json!({"id": EVENT, "description": "Adds to the calendar.", "parameters": title, "answers": [{"echo": true}]}),
        json!({"id": DEPLOY, "description": "Ships it.", "answers": [{"returns": "shipped"}]}),
        json!({"id": NEVER, "description": "Says nothing.", "answers": [{"never": true}]}),
        json!({"id": SECRET, "description": "Opens a ticket nobody may see."}),
        json!({"id": "plugin:fake:broken", "description": "Breaks.", "answers": [{"fails": "out of paper"}]}),
    ]);
    Arc::new(Canned::parse(&json!({ "tools": tools }).to_string()).unwrap())
}

fn host(tools: Value, sources: Vec<Arc<dyn ToolSource>>) -> Host {
    Host {
        config: AgentsConfig::resolve(&tools, &Value::Null).unwrap(),
        sources,
        hooks: Vec::new(),
        ask: vec![Pattern::parse(DEPLOY).unwrap()],
        namespaces: catalog::Registry::default(),
        namespace_config: Value::Null,
        runtime_available: true,
    }
}

fn run(host: &Host, session: &str) -> PreparedRun {
    let scope = Scope { session_id: session.to_owned(), ..Scope::default() };
    prepare(host, &RunRequest { scope, ..RunRequest::default() }).unwrap()
}

/// A run with Tool Search, and what its tools are called with.
struct Bench {
    code_mode: CodeMode,
    tool_search: ToolSearch,
    run: PreparedRun,
}

impl Bench {
    async fn new(tool_search: Value) -> Self {
        Self::of(host(json!({"toolSearch": tool_search, "deny": [SECRET]}), vec![source()])).await
    }

    async fn of(host: Host) -> Self {
        let code_mode = runner::in_process().await.unwrap();
        let tool_search = ToolSearch::new(code_mode.clone());
        Self { code_mode, tool_search, run: run(&host, "session") }
    }

    async fn code(&self, code: &str) -> Value {
        let input = json!({ "code": code });
        self.tool_search.code(&self.run.executor, &self.run.config.tool_search, "call-1", &input).await
    }

    async fn search(&self, input: Value) -> Value {
        self.tool_search.search(&self.run.executor, &self.run.config.tool_search, "call-1", &input).await
    }

    async fn describe(&self, id: &str) -> Value {
        let input = json!({ "id": id });
        self.tool_search.describe(&self.run.executor, &self.run.config.tool_search, "call-1", &input).await
    }

    async fn call(&self, id: &str, args: Value) -> Value {
        let input = json!({"id": id, "args": args});
        self.tool_search.call(&self.run.executor, &self.run.config.tool_search, "call-1", &input).await
    }

    /// Kind and tool of each entry of the session's transcript.
    async fn transcript(&self, session: &str) -> Vec<String> {
        let entries = self.code_mode.store().transcript(session).await.unwrap();
        let line = |entry: &store::Entry| {
            let tool = entry.entry.get("toolId").or_else(|| entry.entry.get("toolName"));
            format!("{} {}", entry.kind.as_str(), tool.and_then(Value::as_str).unwrap_or("-"))
        };
        entries.iter().map(line).collect()
    }

    async fn decide_when_asked(&self, decision: Decision) {
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let pending = self.code_mode.store().pending_approvals().await.unwrap();
            if let Some(approval) = pending.first() {
                self.code_mode.decide(&approval.approval_id, &decision, "a person").await.unwrap();
                return;
            }
            assert!(Instant::now() < deadline, "nobody was asked");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn ids(found: &Value) -> Vec<&str> {
    found.as_array().unwrap().iter().map(|entry| entry["id"].as_str().unwrap()).collect()
}

const FIND_AND_CALL: &str = r#"
const hits = await openclaw.tools.search("open a ticket")
const tool = await openclaw.tools.describe(hits[0].id)
return { required: tool.parameters.required, made: await openclaw.tools.call(tool.id, { title: "Crash" }) }
"#;

/// The contract's regression, point by point.
#[tokio::test]
async fn tool_search_calls_what_direct_mode_calls_with_a_fraction_of_the_request() {
    let direct = run(&host(json!({"deny": [SECRET]}), vec![source()]), "direct");
    let bench = Bench::new(json!(true)).await;

    // 1. Direct mode can call the tool.
    let tool = direct.surface.direct_tool("create_ticket").unwrap();
    assert_eq!(tool.id.as_str(), TICKET);
    let store = bench.code_mode.store();
    let input = json!({"title": "Crash"});
    let made = direct.executor.call_directly(store, "call-0", TICKET, input, Updates::default()).await.unwrap();
    let CallEnd::Settled(Outcome::Returned(directly)) = made.end else { panic!("{made:?}") };
    // 2. Tool Search can call the same.
    let answer = bench.code(FIND_AND_CALL).await;
    let value = json!({"required": ["title"], "made": directly.for_guest()});
    assert_eq!((&answer["ok"], &answer["value"]), (&json!(true), &value), "{answer}");

    // 3. Direct mode shows every schema. 4. Tool Search shows the bridge alone.
    assert_eq!(direct.visible.len(), 225);
    let shown = direct.visible.iter().find(|tool| tool.name == "create_ticket").unwrap();
    assert_eq!(shown.parameters["required"], json!(["title"]));
    let names: Vec<&str> = bench.run.visible.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["tool_search_code"]);
    // 5. That is a small part of it, and telemetry says so.
    let bytes = |run: &PreparedRun| run.visible.iter().map(catalog::VisibleTool::bytes).sum::<usize>();
    assert!(bytes(&bench.run) * 40 < bytes(&direct), "{} and {}", bytes(&bench.run), bytes(&direct));
    let mut telemetry = answer["telemetry"].clone();
    assert!(telemetry.as_object_mut().unwrap().remove("durationMs").unwrap().is_object());
    let expected = json!({
        "mode": "code",
        "visibleTools": ["tool_search_code"],
        "visibleBytes": bytes(&bench.run),
        "directBytes": bytes(&direct),
        "catalogSize": 225,
        "sources": {"openclaw": 1, "plugin": 223, "mcp": 1, "client": 0},
        "searchCount": 1,
        "describeCount": 1,
        "callCount": 1,
        "selectedTools": [{"id": TICKET, "source": "plugin"}],
    });
    assert_eq!(telemetry, expected);

    // 6. Both transcripts have the call; Tool Search's is under the control call.
    let call = [format!("tool_call {TICKET}"), format!("tool_result {TICKET}")];
    assert_eq!(bench.transcript("direct").await, call);
    let control = ["control_call tool_search_code".to_owned(), call[0].clone(), call[1].clone()];
    let transcript = bench.transcript("session").await;
    assert_eq!((&transcript[..3], transcript.len()), (&control[..], 4));
    let entries = store.transcript("session").await.unwrap();
    assert_eq!(entries[1].entry["parentToolCallId"], "call-1");
    assert_eq!(entries[3].entry["result"], answer, "what was told is what is written");
}

#[tokio::test]
async fn the_structured_tools_do_the_same_step_by_step() {
    let bench = Bench::new(json!({"mode": "tools"})).await;
    let names: Vec<&str> = bench.run.visible.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["tool_search", "tool_describe", "tool_call"]);

    let found = bench.search(json!({"query": "open a ticket", "limit": 1})).await;
    let compact = json!({
        "id": TICKET, "name": "create_ticket", "description": "Opens a ticket.", "source": "plugin", "sourceName": "fake",
    });
    assert_eq!(found, json!([compact]));
    let described = bench.describe(TICKET).await;
    let parameters = json!({"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]});
    let mut expected = compact.clone();
    expected["parameters"] = parameters;
    assert_eq!(described, expected);
    let called = bench.call(TICKET, json!({"title": "Crash"})).await;
    assert_eq!(called, json!({"tool": compact, "result": {"title": "Crash"}}));

    let tool = |name: &str| [format!("control_call {name}"), format!("control_result {name}")];
    let ([search, found], [describe, described], [call, called]) =
        (tool("tool_search"), tool("tool_describe"), tool("tool_call"));
    let (made, gave) = (format!("tool_call {TICKET}"), format!("tool_result {TICKET}"));
    assert_eq!(bench.transcript("session").await, [search, found, describe, described, call, made, gave, called]);
    let entries = bench.code_mode.store().transcript("session").await.unwrap();
    let telemetry = &entries[7].entry["telemetry"];
    assert_eq!(telemetry["selectedTools"], json!([{"id": TICKET, "source": "plugin"}]));
    assert_eq!((&telemetry["mode"], &telemetry["callCount"]), (&json!("tools"), &json!(1)));
}

#[tokio::test]
async fn mcp_tools_are_found_and_called_here_and_nowhere_in_code_mode() {
    let bench = Bench::new(json!(true)).await;
    let code = format!(
        "const [hit] = await openclaw.tools.search('calendar'); \
         return [hit.id, hit.source, await openclaw.tools.call('{EVENT}', {{ title: 'Planning' }})]"
    );
    let answer = bench.code(&code).await;
    assert_eq!(answer["value"], json!([EVENT, "mcp", {"title": "Planning"}]), "{answer}");
    assert_eq!(answer["telemetry"]["selectedTools"], json!([{"id": EVENT, "source": "mcp"}]));
    assert_eq!(ids(&bench.search(json!({"query": "calendar"})).await), [EVENT]);
    assert_eq!(bench.call(EVENT, json!({"title": "P"})).await["result"], json!({"title": "P"}));

    let source = format!(
        "const hidden = await tools.call('{EVENT}', {{}}).catch((error) => error.message); \
         return [typeof openclaw, (await tools.search('calendar')).length, hidden]"
    );
    let config = contract::config::CodeMode::enabled(Limits::DEFAULT);
    let input = ExecInput::javascript(source);
    let result = json!(bench.code_mode.exec(&bench.run.executor, &config, "exec-1", input).await);
    let unknown = format!("unknown tool `{EVENT}`; tools.search(query) finds the tools there are");
    assert_eq!(result["value"], json!(["undefined", 0, unknown]), "{result}");
}

#[tokio::test]
async fn a_denied_tool_answers_as_one_that_does_not_exist() {
    let bench = Bench::new(json!(true)).await;
    assert_eq!(ids(&bench.search(json!({"query": "ticket"})).await), [TICKET]);
    for id in [SECRET, "plugin:fake:no_such_thing", "not an id"] {
        let unknown = format!("unknown tool `{id}`; openclaw.tools.search(query) finds the tools there are");
        let code = format!(
            "const message = (error) => error.message; \
             return [await openclaw.tools.describe('{id}').catch(message), \
                     await openclaw.tools.call('{id}', {{}}).catch(message)]"
        );
        assert_eq!(bench.code(&code).await["value"], json!([unknown, unknown]));
        let unknown = format!("unknown tool `{id}`; tool_search finds the tools there are");
        for answer in [bench.describe(id).await, bench.call(id, json!({})).await] {
            assert_eq!((&answer["error"], &answer["code"]), (&json!(unknown), &json!("invalid_input")));
            assert!(is_failure(&answer));
            assert_eq!(answer["telemetry"]["selectedTools"], json!([]));
        }
    }
}

#[tokio::test]
async fn searches_list_as_many_as_the_configuration_says() {
    let bench = Bench::new(json!({"searchDefaultLimit": 3, "maxSearchLimit": 5})).await;
    let code = "const count = async (options) => (await openclaw.tools.search('widget', options)).length; \
                const refused = await count({ limit: 0 }).catch((error) => error.message); \
                return [await count(), await count({ limit: 4 }), await count({ limit: 100 }), refused]";
    assert_eq!(bench.code(code).await["value"], json!([3, 4, 5, "`limit` must be a whole number above 0"]));
    for (input, count) in [
        (json!({"query": "widget"}), 3),
        (json!({"query": "widget", "limit": 4}), 4),
        (json!({"query": "widget", "options": {"limit": 100}}), 5),
    ] {
        assert_eq!(bench.search(input.clone()).await.as_array().map(Vec::len), Some(count), "{input}");
    }
}

#[tokio::test]
async fn what_a_cell_logs_and_how_it_fails_is_told() {
    let bench = Bench::new(json!(true)).await;
    let answer = bench.code("console.log('a', 1); console.warn({ b: 2 }); console.error('c'); return null").await;
    assert_eq!((&answer["ok"], &answer["value"]), (&json!(true), &Value::Null));
    assert_eq!(answer["logs"], json!(["a 1", "{\"b\":2}", "c"]));

    let cases = [
        ("console.log('x'); throw new TypeError('no')", "TypeError: no (at 1:29)", Value::Null),
        ("return await openclaw.tools.call('plugin:fake:broken', {})", "", json!("nested_tool_failed")),
        ("return require('fs')", "", json!("module_access_denied")),
        ("return (", "", json!("invalid_input")),
        ("  ", "`code` is empty; give the cell's JavaScript or TypeScript source", json!("invalid_input")),
    ];
    for (code, error, error_code) in cases {
        let answer = bench.code(code).await;
        assert_eq!((&answer["ok"], &answer["code"]), (&json!(false), &error_code), "{code}: {answer}");
        assert!(error.is_empty() || answer["error"] == error, "{code}: {answer}");
        assert_eq!(answer["telemetry"]["catalogSize"], 225, "{code}");
        assert_eq!(answer["logs"].as_array().map(Vec::len), Some(usize::from(code.contains("console"))), "{code}");
    }
    let broken = bench.call("plugin:fake:broken", json!({})).await;
    assert_eq!((&broken["error"], &broken["code"]), (&json!("out of paper"), &json!("nested_tool_failed")));
    let missing = bench.call(TICKET, json!({})).await;
    assert_eq!(missing["code"], "nested_tool_failed");
    assert!(missing["error"].as_str().unwrap().contains("title"), "{missing}");
}

#[tokio::test]
async fn a_cell_has_its_time_and_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let ledger: Arc<dyn ToolSource> = Arc::new(Ledger::open(&folder.path().join("ledger")).unwrap());
    let config = json!({"toolSearch": {"codeTimeoutMs": 1000}});
    let bench = Bench::of(host(config, vec![source(), ledger])).await;
    let call = |id: &str| format!("console.log('called'); return await openclaw.tools.call('{id}', {{}})");
    let block = |text: &str| format!("timed out after 1000 ms: {text}");
    let cases = [
        (call(NEVER), block(&format!("`{NEVER}` has not answered"))),
        (call(DEPLOY), block(&format!("a person has not approved `{DEPLOY}`"))),
        (call("client:ledger:pick"), block("the client has not answered `client:ledger:pick`")),
        ("console.log(1); await new Promise((go) => setTimeout(go, 60000))".to_owned(), block("a timer has not fired")),
        ("console.log(1); for (;;) {}".to_owned(), String::new()),
    ];
    for (code, error) in cases {
        let began = Instant::now();
        let answer = bench.code(&code).await;
        let took = began.elapsed();
        assert_eq!((&answer["ok"], &answer["code"]), (&json!(false), &json!("timeout")), "{code}: {answer}");
        assert!(error.is_empty() || answer["error"] == error, "{code}: {answer}");
        assert_eq!(answer["logs"].as_array().map(Vec::len), Some(1), "{code}: {answer}");
        assert!((900..4000).contains(&took.as_millis()), "{code}: {took:?}");
    }
    // The structured tools hold on for people only, as long.
    for (id, who) in [(DEPLOY, "a person has not approved"), ("client:ledger:pick", "the client has not answered")] {
        let answer = bench.call(id, json!({})).await;
        let expected = (json!("timeout"), json!(block(&format!("{who} `{id}`"))));
        assert_eq!((answer["code"].clone(), answer["error"].clone()), expected);
    }
    // Nobody is asked any more, nothing is left running, and the cells cannot be gone on with.
    assert_eq!(bench.code_mode.store().pending_approvals().await.unwrap(), []);
    assert_eq!(bench.code_mode.live_runs(), 0);
    let entries = bench.code_mode.store().transcript("session").await.unwrap();
    let run_id = entries.iter().find_map(|entry| entry.entry["runId"].as_str()).unwrap();
    let config = contract::config::CodeMode::enabled(Limits::DEFAULT);
    let waited = json!(bench.code_mode.wait(&bench.run.executor, &config, "wait-1", run_id).await);
    assert_eq!(waited["code"], "invalid_input", "{waited}");
}

#[tokio::test]
async fn a_persons_word_within_that_time_counts() {
    let bench = Bench::new(json!({"codeTimeoutMs": 5000})).await;
    let code = format!("return await openclaw.tools.call('{DEPLOY}', {{}}).catch((error) => error.message)");
    let yes = || Decision::Approve { edited_input: None, reach: Reach::Once };
    let no = || Decision::Deny { note: "not on a Friday".to_owned() };
    let refused = "a person denied this call: not on a Friday";

    for (decision, expected) in [(yes(), "shipped"), (no(), refused)] {
        let (answer, ()) = tokio::join!(bench.code(&code), bench.decide_when_asked(decision));
        assert_eq!(answer["value"], expected, "{answer}");
    }
    let (answer, ()) = tokio::join!(bench.call(DEPLOY, json!({})), bench.decide_when_asked(yes()));
    assert_eq!(answer["result"], "shipped", "{answer}");
    let (answer, ()) = tokio::join!(bench.call(DEPLOY, json!({})), bench.decide_when_asked(no()));
    assert_eq!((&answer["error"], &answer["code"]), (&json!(refused), &json!("nested_tool_failed")));
}

#[tokio::test]
async fn a_client_that_answers_within_that_time_is_heard() {
    let folder = tempfile::tempdir().unwrap();
    let ledger: Arc<dyn ToolSource> = Arc::new(Ledger::open(&folder.path().join("ledger")).unwrap());
    let bench = Bench::of(host(json!({"toolSearch": true}), vec![ledger])).await;
    let settle = async {
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let runs = bench.code_mode.store().runs_of_session("session").await.unwrap();
            let picked = executor::Returned::json(json!("picked"));
            for run in runs {
                let token = executor::CallToken { run, call: 1 };
                if bench.code_mode.settle(&token, &Outcome::Returned(picked.clone())).await.is_ok() {
                    return;
                }
            }
            assert!(Instant::now() < deadline, "nothing was parked");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let (answer, ()) = tokio::join!(bench.call("client:ledger:pick", json!({})), settle);
    assert_eq!(answer["result"], "picked", "{answer}");
}

#[tokio::test]
async fn a_tool_that_has_gone_fails_and_a_cell_has_nobody_to_yield_to() {
    let mut bench = Bench::new(json!(true)).await;
    assert_eq!(bench.code("await yield_control('later'); return ALL_TOOLS.length").await["value"], json!(0));

    let catalog = Arc::clone(bench.run.executor.catalog());
    bench.run.executor = Executor::new(catalog, Routes::default(), Scope::default());
    let gone = format!("`{TICKET}` is not there any more");
    let code =
        format!("return await openclaw.tools.call('{TICKET}', {{ title: 'x' }}).catch((error) => error.message)");
    assert_eq!(bench.code(&code).await["value"], json!(gone));
    let answer = bench.call(TICKET, json!({"title": "x"})).await;
    assert_eq!((&answer["error"], &answer["code"]), (&json!(gone), &json!("nested_tool_failed")));
}

#[tokio::test]
async fn without_a_runtime_code_becomes_tools_and_says_so() {
    let without = Host { runtime_available: false, ..host(json!({"toolSearch": true}), vec![source()]) };
    let bench = Bench::of(without).await;
    let names: Vec<&str> = bench.run.visible.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["tool_search", "tool_describe", "tool_call"]);
    let note = bench.run.surface.note().unwrap();
    assert!(note.starts_with("tools.toolSearch.mode is `code`, but no runtime is available"), "{note}");
    assert_eq!(bench.run.executor.catalog().len(), 226);
    assert_eq!(bench.call(TICKET, json!({"title": "x"})).await["result"], json!({"title": "x"}));

    let with = host(json!({"toolSearch": true}), vec![source()]);
    assert_eq!(run(&with, "s").surface.note(), None);
}
