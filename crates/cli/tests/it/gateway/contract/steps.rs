//! The sixteen steps of code mode's end-to-end plan: every wire of clients with every wire of providers.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::model::{RecordedRequest, Reply, ScriptedCall};

use super::super::running::{Running, Setup, cell, when_last};
use super::super::wires::{Answer, Wire};
use super::transcripts::{exported, nested, newest_run};
use super::{Provider, configure, names, parameters, plugin, request, results, resumes, setup, tools};

/// Steps 7 to 11, in one cell.
const ALL: &str = r"
    const use = async (query, id, input) => {
        const hit = (await tools.search(query, { limit: 20 })).find(hit => hit.id === id);
        const { parameters } = await tools.describe(hit.id);
        return { parameters, result: await tools.call(hit.id, input) };
    };
    const core = await use('read a file', 'openclaw:core:read', { path: 'notes.txt' });
    const plugin = await use('repeat a word', 'plugin:demo:echo', { word: 'p' });
    const client = await use('look', 'client:app:look', { n: 5 });
    const guessed = {};
    for (const id of ['plugin:demo:other', 'mcp:s:hidden', 'openclaw:core:write', 'mcp:s:add', 'plugin:demo:never']) {
        guessed[id] = await tools.call(id, {}).catch(error => error.message);
    }
    return {
        done: 'all tools were used', core, plugin, client, guessed,
        ids: ALL_TOOLS.map(tool => tool.id), hits: (await tools.search('', { limit: 50 })).map(hit => hit.id),
        files: (await API.list('mcp')).map(file => file.path), declared: await API.read('mcp/s.d.ts'),
        mcp: (await MCP.s.add({ a: 1, b: 2 })).structuredContent, functions: Object.keys(MCP.s), hidden: typeof MCP.s.hidden,
        named: ['read', 'echo', 'look', 'add', 'other', 'exec', 'wait'].filter(name => typeof tools[name] === 'function'),
    };
";

fn replies() -> Vec<Reply> {
    let call = |name: &str, arguments: Value| ScriptedCall { name: name.to_owned(), arguments, id: None };
    let direct = vec![
        call("read", json!({"path": "notes.txt"})),
        call("echo", json!({"word": "p"})),
        call("s__add", json!({"a": 1, "b": 2})),
        call("look", json!({"n": 5})),
    ];
    vec![
        resumes(),
        when_last("use all directly", Reply { calls: direct, ..Reply::default() }),
        when_last("use all in a cell", cell(ALL)),
        when_last("all tools were used", Reply::text("All were used.")),
        when_last("output after the restore", Reply::text("It came after the restore.")),
        when_last("seen 5", Reply::text("All were called.")),
    ]
}

/// Sends a message and answers the call of the client's tool that follows it. Returns the last answer.
fn turn_with_look(running: &Running, wire: Wire, agent: &str, text: &str, stream: bool) -> Answer {
    let mut items = wire.user(text);
    let first = running.send(wire, &request(wire, agent, &items, stream));
    let [look] = first.calls.as_slice() else { panic!("{wire:?} {agent} {}", first.body) };
    assert_eq!((look.name.as_str(), &look.arguments), ("look", &json!({"n": 5})), "{}", first.body);
    items.extend(first.items.clone());
    items.extend(wire.results(&[(&look.id, "seen 5")]));
    running.send(wire, &request(wire, agent, &items, stream))
}

/// Every wire of clients with every wire of providers.
fn rows() -> impl Iterator<Item = (Wire, Provider)> {
    Wire::ALL.into_iter().flat_map(|wire| Provider::ALL.map(|provider| (wire, provider)))
}

fn new_requests(setup: &Setup, before: usize) -> Vec<RecordedRequest> {
    setup.model.requests().split_off(before)
}

#[test]
fn the_sixteen_steps_of_the_contract_hold_for_every_pair_of_wires() {
    let setup = setup(replies());
    // 1. A gateway with code mode off.
    configure(&setup, &json!({"codeMode": {"enabled": false}}), &json!({}));
    let mut running = setup.start();
    for (wire, provider) in rows() {
        let before = setup.model.requests().len();
        // 2. A turn with a small direct tool set.
        let answer = turn_with_look(&running, wire, provider.agent(), "use all directly", wire == Wire::Chat);
        assert_eq!(answer.text, "All were called.", "{wire:?} {provider:?} {}", answer.body);
        let requests = new_requests(&setup, before);
        assert_eq!(requests.len(), 2);
        unchanged(&requests);
    }
    // 4. The same gateway with code mode on.
    running.signal(rustix::process::Signal::TERM);
    assert!(running.wait().success());
    configure(&setup, &json!({"codeMode": {"enabled": true, "maxWaitMs": 1_000}}), &json!({}));
    let running = setup.start();
    for (wire, provider) in rows() {
        let before = setup.model.requests().len();
        // 5. A turn with core, plugin, MCP and client tools.
        let answer = turn_with_look(&running, wire, provider.agent(), "use all in a cell", wire == Wire::Messages);
        assert_eq!(answer.text, "All were used.", "{wire:?} {provider:?} {}", answer.body);
        let requests = new_requests(&setup, before);
        // 6. The model sees two tools.
        assert!(requests.iter().all(|request| names(request) == ["exec", "wait"]), "{wire:?} {provider:?}");
        every_tool_was_used(&results(requests.last().unwrap())[0]["value"]);
        // 16. The exported transcript has the nested calls under the calls of the cell.
        let calls = ["openclaw:core:read", "plugin:demo:echo", "client:app:look", "mcp:s:add"];
        nested(&exported(&setup.place, &newest_run(&setup.place)), &calls);
    }
    for (wire, provider) in Wire::ALL.into_iter().zip(Provider::ALL) {
        a_late_call_is_delivered_after_the_restore(&setup, &running, wire, provider);
    }
    // The plugin ran once for each turn: 2, 8 and 12.
    assert_eq!((plugin::called(&setup.place, "demo", "echo"), plugin::called(&setup.place, "demo", "late")), (18, 3));
    assert_eq!(setup.place.received().matches("\"tools/call\"").count(), 18);
}

/// 3. The model sees the tools themselves, with their own parameters, and the denied ones not at all.
fn unchanged(requests: &[RecordedRequest]) {
    for request in requests {
        let mut names = names(request);
        names.sort();
        let expected = ["echo", "late", "look", "read", "s__add"];
        assert!(expected.iter().all(|name| names.iter().any(|one| one == name)), "{names:?}");
        for absent in ["other", "s__hidden", "write", "exec", "wait", "tool_search_code"] {
            assert!(!names.iter().any(|name| name == absent), "{names:?}");
        }
        let tools = tools(request);
        let number = json!({"type": "number"});
        assert_eq!(parameters(&tools, "look")["properties"], json!({"n": number}));
        assert_eq!(parameters(&tools, "s__add")["properties"], json!({"a": number, "b": number}));
        assert_eq!(parameters(&tools, "echo")["required"], json!(["word"]));
    }
    let last = requests.last().unwrap().json().to_string();
    assert!(["buy tea", "seen 5", "sum"].iter().all(|text| last.contains(text)), "{last}");
}

/// 7 to 11, as the model received them.
fn every_tool_was_used(value: &Value) {
    let texts = |value: &Value| -> Vec<String> { serde_json::from_value(value.clone()).unwrap() };
    // 7. `ALL_TOOLS` has the tools that are allowed, and 10. no MCP tool, and 11. no denied one.
    let (ids, hits) = (texts(&value["ids"]), texts(&value["hits"]));
    for id in ["openclaw:core:read", "plugin:demo:echo", "plugin:demo:late", "client:app:look"] {
        assert!(ids.iter().any(|one| one == id), "{ids:?}");
    }
    for list in [&ids, &hits] {
        let wrong = |id: &String| id.starts_with("mcp:") || id.ends_with(":other") || id.ends_with(":write");
        assert!(!list.iter().any(wrong), "{list:?}");
    }
    // 8. Core, plugin and client tools are found, described and called.
    assert!(value["core"]["result"].to_string().contains("buy tea"), "{value}");
    assert_eq!(value["plugin"]["result"], json!({"tool": "echo", "input": {"word": "p"}}), "{value}");
    assert!(value["client"]["result"].to_string().contains("seen 5"), "{value}");
    assert!(value["core"]["parameters"]["properties"]["path"].is_object(), "{value}");
    assert_eq!(value["plugin"]["parameters"]["required"], json!(["word"]), "{value}");
    assert_eq!(value["client"]["parameters"]["properties"], json!({"n": {"type": "number"}}), "{value}");
    // 9. The declarations describe the MCP tools that are visible.
    assert_eq!(value["files"], json!(["mcp/index.d.ts", "mcp/s.d.ts"]), "{value}");
    let declared = value["declared"].as_str().unwrap();
    assert!(
        declared.contains("Adds two numbers.") && declared.contains("add(") && !declared.contains("hidden"),
        "{value}"
    );
    // 10. MCP tools are called in `MCP` and are not in `tools`.
    assert_eq!((&value["mcp"], &value["hidden"]), (&json!({"sum": 3}), &json!("undefined")), "{value}");
    assert!(texts(&value["functions"]).contains(&"add".to_owned()), "{value}");
    assert_eq!(value["named"], json!(["read", "echo", "look"]), "{value}");
    // 11. A denied tool cannot be guessed: the answer is the same as for a tool that does not exist.
    let guessed = |id: &str| value["guessed"][id].as_str().unwrap().to_owned();
    let unknown = guessed("plugin:demo:never");
    assert!(unknown.contains("plugin:demo:never"), "{unknown}");
    for id in ["plugin:demo:other", "openclaw:core:write"] {
        let said = guessed(id).split('.').next().unwrap().replace(id, "plugin:demo:never");
        assert!(unknown.starts_with(&said), "{said} and {unknown}");
    }
    assert!(!guessed("mcp:s:hidden").contains("MCP.s.hidden") && guessed("mcp:s:add").contains("MCP.s.add"), "{value}");
}

/// 12 to 14.
fn a_late_call_is_delivered_after_the_restore(setup: &Setup, running: &Running, wire: Wire, provider: Provider) {
    let file = format!("go-{}", provider.agent());
    let code = format!(
        "const kept = 'output'; const late = await tools.late({{ file: '{file}' }}); \
         text(kept + ' after the restore of ' + late.input.file); return late.tool"
    );
    setup.model.push(when_last(&format!("wait for {file}"), cell(&code)));
    let before = setup.model.requests().len();
    let answer = std::thread::scope(|scope| {
        let items = wire.user(&format!("wait for {file}"));
        let turn = scope.spawn(move || running.send(wire, &request(wire, provider.agent(), &items, true)));
        // 12. `exec` returns `waiting` before the tool has an answer.
        let requests = setup.model.wait_for_requests(before + 2, Duration::from_secs(60)).unwrap();
        let waiting = &results(&requests[before + 1])[0];
        assert_eq!((&waiting["status"], &waiting["reason"]), (&json!("waiting"), &json!("pending_tools")), "{waiting}");
        assert_eq!(waiting["pendingToolCalls"][0]["toolId"], "plugin:demo:late", "{waiting}");
        plugin::release(&setup.place, &file);
        turn.join().unwrap()
    });
    // 13. The restored cell received the result. 14. The answer was made from output after the restore.
    assert_eq!(answer.text, "It came after the restore.", "{wire:?} {}", answer.body);
    let requests = new_requests(setup, before);
    let done = &results(requests.last().unwrap())[0];
    assert_eq!((&done["status"], &done["value"]), (&json!("completed"), &json!("late")), "{done}");
    assert_eq!(done["output"][0]["text"], format!("output after the restore of {file}"), "{done}");
    assert!(requests.iter().all(|request| names(request) == ["exec", "wait"]));
}
