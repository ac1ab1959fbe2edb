//! The regression of Tool Search, and the sizes of requests with small and large catalogs.

use serde_json::{Value, json};
use testkit::model::{RecordedRequest, Reply};

use super::super::running::{Running, Setup, when_last};
use super::super::wires::{Answer, Wire};
use super::transcripts::{listed, newest_run, session};
use super::{Provider, configure, names, plugin, providers, request, results, setup, tools};
use crate::mcp::place::fake;

const TICKET: &str = "plugin:big:create_ticket";

const SEARCH: &str = "const hits = await openclaw.tools.search('open a ticket'); \
    const tool = await openclaw.tools.describe(hits[0].id); \
    return { required: tool.parameters.required, made: await openclaw.tools.call(tool.id, { title: 'Crash' }) }";

/// The most bytes of the tools in a request with code mode.
const MAX_CODE_MODE_BYTES: usize = 4 << 10;

/// A plugin with a hundred tools and one that the test calls.
fn install_large_plugin(setup: &Setup) {
    let fields = json!({"project": {"type": "string", "description": "The project that it belongs to."}, "count": {"type": "number"}});
    let parameters = json!({"type": "object", "properties": fields});
    let mut all: Vec<Value> = (0..100)
        .map(|n| plugin::tool(&format!("report_{n}"), &format!("Writes the report number {n}."), parameters.clone()))
        .collect();
    let title = json!({"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]});
    all.push(plugin::tool("create_ticket", "Opens a ticket.", title));
    plugin::install(&setup.place, "big", &all);
}

/// The requests to the model and the session's transcript of one turn.
struct Turn {
    requests: Vec<RecordedRequest>,
    transcript: Vec<(String, Value)>,
}

fn turn(setup: &Setup, running: &Running, wire: Wire, text: &str) -> Turn {
    let before = setup.model.requests().len();
    let answer: Answer = running.send(wire, &request(wire, "ada", &wire.user(text), wire != Wire::Chat));
    assert_eq!(answer.text, "The ticket is open.", "{wire:?} {}", answer.body);
    let requests = setup.model.requests().split_off(before);
    Turn { requests, transcript: session(&setup.place, &newest_run(&setup.place)) }
}

fn kinds(turn: &Turn) -> Vec<&str> {
    turn.transcript.iter().map(|(kind, _)| kind.as_str()).collect()
}

#[test]
fn tool_search_calls_the_tool_of_a_large_plugin_with_a_smaller_request_than_direct_mode() {
    let replies = vec![
        when_last("open it directly", Reply::call("create_ticket", json!({"title": "Crash"}))),
        when_last("open it by search", Reply::call("tool_search_code", json!({"code": SEARCH}))),
        when_last("Crash", Reply::text("The ticket is open.")),
    ];
    let setup = setup(replies);
    install_large_plugin(&setup);
    let mut bytes = Vec::new();
    // A gateway in direct mode.
    configure(&setup, &json!({"codeMode": false, "toolSearch": false}), &json!({}));
    let running = setup.start();
    for wire in Wire::ALL {
        let direct = turn(&setup, &running, wire, &format!("open it directly {wire:?}"));
        // 1 and 3. It calls the tool, whose schema the model saw with all others.
        let shown = tools(&direct.requests[0]);
        let seen = names(&direct.requests[0]);
        assert!((0..100).all(|n| seen.contains(&format!("report_{n}"))), "{seen:?}");
        assert_eq!(super::parameters(&shown, "create_ticket")["required"], json!(["title"]));
        // 6. The session has the call, and nothing around it.
        let expected = ["user_message", "model_message", "tool_call", "tool_result", "model_message", "turn_note"];
        assert_eq!(kinds(&direct), expected, "{wire:?} {:?}", direct.transcript);
        assert_eq!(direct.transcript[2].1["toolId"], TICKET);
        bytes.push((direct.requests[0].body.len(), results(direct.requests.last().unwrap())));
    }
    drop(running);
    // A gateway with Tool Search.
    configure(&setup, &json!({"toolSearch": true}), &json!({}));
    let running = setup.start();
    for (wire, (direct_bytes, directly)) in Wire::ALL.into_iter().zip(bytes) {
        let searched = turn(&setup, &running, wire, &format!("open it by search {wire:?}"));
        // 4 and 5. The model saw the bridge alone, in a request that is much smaller.
        assert!(searched.requests.iter().all(|request| names(request) == ["tool_search_code"]));
        let searched_bytes = searched.requests[0].body.len();
        assert!(searched_bytes * 8 < direct_bytes, "{searched_bytes} and {direct_bytes}");
        // 2. It called the same tool with the same result.
        let answer = &results(searched.requests.last().unwrap())[0];
        assert_eq!((&answer["ok"], &answer["value"]["required"]), (&json!(true), &json!(["title"])), "{answer}");
        assert_eq!(answer["value"]["made"], directly[0], "{answer}");
        // 6. The session has the call below the control call, and the counts.
        let middle = ["control_call", "tool_call", "tool_result", "control_result"];
        let expected = [&["user_message", "model_message"], &middle[..], &["model_message", "turn_note"]].concat();
        assert_eq!(kinds(&searched), expected, "{wire:?} {:?}", searched.transcript);
        let entry = |at: usize| &searched.transcript[at].1;
        assert_eq!((&entry(3)["toolId"], &entry(3)["parentToolCallId"]), (&json!(TICKET), &entry(2)["toolCallId"]));
        let telemetry = &entry(5)["result"]["telemetry"];
        let counts = ["searchCount", "describeCount", "callCount"].map(|count| telemetry[count].clone());
        assert_eq!(counts, [json!(1), json!(1), json!(1)], "{telemetry}");
        assert_eq!(telemetry["selectedTools"], json!([{"id": TICKET, "source": "plugin"}]));
        assert_eq!(telemetry["visibleTools"], json!(["tool_search_code"]));
        assert!(
            telemetry["sources"]["plugin"].as_u64() >= Some(101) && telemetry["sources"]["client"] == 1,
            "{telemetry}"
        );
        let (visible, all) = (telemetry["visibleBytes"].as_u64().unwrap(), telemetry["directBytes"].as_u64().unwrap());
        assert!(visible > 0 && visible * 8 < all, "{telemetry}");
    }
    assert_eq!(plugin::called(&setup.place, "big", "create_ticket"), 6);
    assert_eq!(listed(&setup.place).len(), 6);
}

/// A surface by its settings, with the names that the model sees if they do not depend on the catalog.
const SURFACES: [(&str, &str, &[&str]); 4] = [
    ("direct", r#"{"codeMode": false, "toolSearch": false}"#, &[]),
    ("searched", r#"{"codeMode": false, "toolSearch": true}"#, &["tool_search_code"]),
    (
        "structured",
        r#"{"codeMode": false, "toolSearch": {"mode": "tools"}}"#,
        &["tool_search", "tool_describe", "tool_call"],
    ),
    ("coded", r#"{"codeMode": {"enabled": true}}"#, &["exec", "wait"]),
];

const SIZES: [usize; 3] = [10, 100, 500];

#[test]
fn the_tools_of_a_request_have_a_size_that_only_direct_mode_lets_grow() {
    let setup = Setup::new(json!([]), vec![when_last("hello", Reply::text("Hello."))]);
    let (mut servers, mut agents) = (json!({}), json!({}));
    for size in SIZES {
        let script = setup.place.path(&format!("script-{size}.json"));
        std::fs::write(&script, json!({"manyTools": size}).to_string()).unwrap();
        servers[format!("t{size}")] = json!({"command": fake(), "args": [script], "trusted": true});
        for (surface, settings, _) in SURFACES {
            for provider in Provider::ALL {
                let mut tools: Value = serde_json::from_str(settings).unwrap();
                tools["allow"] = json!([format!("mcp:t{size}:*"), "client:*"]);
                let model = format!("{}/one", provider.api());
                agents[format!("{surface}-{size}-{}", provider.agent())] = json!({"model": model, "tools": tools});
            }
        }
    }
    setup
        .place
        .configure(&json!({"mcpServers": servers, "agents": agents, "models": {"providers": providers(&setup)}}));
    let running = setup.start();
    for provider in Provider::ALL {
        let mut coded = Vec::new();
        for (surface, _, fixed) in SURFACES {
            let mut sizes = Vec::new();
            for size in SIZES {
                let agent = format!("{surface}-{size}-{}", provider.agent());
                let wire = Wire::Chat;
                let answer = running.send(wire, &request(wire, &agent, &wire.user(&format!("hello {agent}")), false));
                assert_eq!(answer.text, "Hello.", "{agent} {}", answer.body);
                let sent = setup.model.requests().pop().unwrap();
                let seen = names(&sent);
                if fixed.is_empty() {
                    // The client's own tool is among them.
                    assert!(
                        (0..size).all(|n| seen.iter().any(|name| name.ends_with(&format!("__tool{n}")))),
                        "{agent} {seen:?}"
                    );
                    assert!(seen.iter().any(|name| name == "look") && seen.len() == size + 1, "{agent} {seen:?}");
                } else {
                    assert_eq!(seen, fixed, "{agent}");
                }
                sizes.push(sent.json()["tools"].to_string().len());
            }
            println!("{provider:?} {surface}: {sizes:?}");
            match surface {
                "direct" => assert!(sizes[0] * 20 < sizes[2] && sizes[2] > 30_000, "{sizes:?}"),
                "coded" => coded = sizes,
                _ => assert!(sizes[2] <= sizes[0] + 64, "{surface} {sizes:?}"),
            }
        }
        assert!(coded.iter().all(|bytes| *bytes <= MAX_CODE_MODE_BYTES), "{provider:?} {coded:?}");
    }
}

#[test]
fn tools_of_a_client_that_have_the_names_of_controls_are_not_shown_to_the_model() {
    let code = "return ['called', await tools.call('client:app:exec', {})]";
    let replies = vec![
        when_last("use yours", super::super::running::cell(code)),
        when_last("called", Reply::text("It was called.")),
    ];
    let setup = setup(replies);
    configure(&setup, &json!({"codeMode": {"enabled": true}}), &json!({}));
    let running = setup.start();
    for (wire, provider) in Wire::ALL.into_iter().zip(Provider::ALL) {
        let with_tools = |items: &[Value]| {
            let mut body = request(wire, provider.agent(), items, false);
            let look = body["tools"][0].clone();
            let named = |name: &str| {
                let mut tool = look.clone();
                let place = if wire == Wire::Chat { &mut tool["function"]["name"] } else { &mut tool["name"] };
                *place = json!(name);
                tool
            };
            body["tools"] = ["exec", "wait", "tool_search_code", "read"].iter().map(|name| named(name)).collect();
            body
        };
        let mut items = wire.user("use yours");
        let first = running.send(wire, &with_tools(&items));
        assert_eq!(first.calls.iter().map(|call| call.name.as_str()).collect::<Vec<_>>(), ["exec"], "{}", first.body);
        items.extend(first.items.clone());
        items.extend(wire.results(&[(&first.calls[0].id, "mine")]));
        let last = running.send(wire, &with_tools(&items));
        assert_eq!(last.text, "It was called.", "{wire:?} {}", last.body);
    }
    assert!(setup.model.requests().iter().all(|request| names(request) == ["exec", "wait"]));
}
