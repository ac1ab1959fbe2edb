//! What a person sees of a call before approving it, and who may approve: people on terminals, and programs only if
//! the user's own configuration allows it.

use std::process::Command;

use serde_json::{Value, json};

use super::clients::{Era, Streams, structured};
use super::place::{Place, on_terminal, writes};

const TARGET: &str = "/home/me/everything";

fn pushes() -> Place {
    Place::new(json!([writes("push")]))
}

fn made(place: &Place) -> usize {
    place.received().matches("\"tools/call\"").count()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a cell that calls the tool once for each of these arguments; returns the client and the `waiting` result.
fn ask(place: &Place, arguments: &[&str]) -> (Streams, Value) {
    let mut client = Streams::plain(place, Era::July2026);
    let calls: Vec<String> = arguments.iter().map(|given| format!("MCP.s.push({given})")).collect();
    let code = format!("return (await Promise.allSettled([{}])).map(one => one.status)", calls.join(", "));
    let waiting = client.exec(&code);
    assert_eq!(waiting["approvals"].as_array().map(Vec::len), Some(arguments.len()), "{waiting}");
    (client, waiting)
}

fn id(waiting: &Value) -> &str {
    waiting["approvals"][0]["approvalId"].as_str().unwrap()
}

#[test]
fn every_view_of_a_call_names_every_key_and_marks_what_is_cut() {
    let hiding = format!("{{ note: 'tidy up '.repeat(2000), more: Array(5000).fill('x'), target: '{TARGET}' }}");
    let place = pushes();
    let code = format!("return await MCP.s.push({hiding})");
    let mut client = Streams::start(&place, Era::July2026, json!({"elicitation": {"form": {}}}), &[]);
    let asked = client.ask("tools/call", json!({"name": "exec", "arguments": {"code": code}}))["result"].clone();
    let (id, request) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
    let show = format!("`cellmate approvals show {id}`");
    let form = request["params"]["message"].as_str().unwrap();
    let terminal = text(&on_terminal(&place.approvals_command(&[]), "s\n").stdout);
    let confirm = text(&on_terminal(&place.approvals_command(&["approve", id]), "n\n").stdout);
    for shown in [form, &terminal, &confirm] {
        assert!(shown.contains(&format!("\"target\": \"{TARGET}\"")), "{shown}");
        assert!(shown.contains("characters missing") && shown.contains("more entries"), "{shown}");
        assert!(shown.contains(&show), "{shown}");
        assert!(shown.chars().count() < 6_000, "{}", shown.chars().count());
    }
    let listed = text(&place.approvals(&["list"]).stdout);
    assert!(listed.contains(&format!("\"target\": \"{TARGET}\"")) && listed.lines().count() == 1, "{listed}");
    let whole = text(&place.approvals(&["show", id]).stdout);
    assert!(whole.contains(&"tidy up ".repeat(2000)) && whole.matches("\"x\"").count() == 5000, "nothing may be cut");
    assert!(whole.contains(&format!("\"target\": \"{TARGET}\"")) && !whole.contains("missing"));
    assert_eq!(made(&place), 0);

    let mut by_hand = place.by_hand("s.push");
    by_hand.args([format!("note={}", "tidy up ".repeat(2000)), format!("target={TARGET}")]);
    let seen = text(&on_terminal(&by_hand, "n\n").stdout);
    assert!(seen.contains(&format!("\"target\": \"{TARGET}\"")) && seen.contains("characters missing"), "{seen}");
}

#[test]
fn a_thousand_keys_are_counted_in_the_form_and_invisible_characters_are_escaped_everywhere() {
    let place = pushes();
    let arguments = "Object.fromEntries([['\\u202ehidden\\u200b', '\\u009b31m'], ...Array(1000).keys()].map(k => \
                     Array.isArray(k) ? k : ['key' + k, 'v'.repeat(100)]))";
    let (_client, waiting) = ask(&place, &[arguments]);
    let shown = text(&on_terminal(&place.approvals_command(&[]), "s\n").stdout);
    assert!(shown.contains("1001 keys, values not shown") && shown.contains("more keys"), "{shown}");
    for printed in [
        shown,
        text(&place.approvals(&["list"]).stdout),
        text(&place.approvals(&["show", id(&waiting)]).stdout),
        text(&place.approvals(&["show", id(&waiting), "--json"]).stdout),
        text(&place.approvals(&["list", "--json"]).stdout),
    ] {
        assert!(printed.contains("202e"), "{printed}");
        assert!(!printed.contains(['\u{202e}', '\u{200b}', '\u{9b}']), "{printed}");
    }
}

#[test]
fn a_model_receives_no_command_that_approves() {
    let place = pushes();
    let mut client = Streams::start(&place, Era::November2025, json!({}), &[]);
    let waiting = client.exec("return await MCP.s.push({})");
    let meta = json!({"progressToken": "p"});
    let wait = json!({"name": "wait", "arguments": {"runId": waiting["runId"]}, "_meta": meta});
    let number = client.send("tools/call", wait);
    let progress = client.next("progress", |message| {
        message["method"] == "notifications/progress" && message["params"]["message"].to_string().contains("person")
    });
    assert_eq!(place.approvals(&["deny", id(&waiting)]).status.code(), Some(0));
    let denied = structured(&client.answer(number));
    for sent in [&waiting, &progress, &denied] {
        let sent = sent.to_string();
        for command in ["approvals approve", "--always", "--yes", "\"approve\":", "nonInteractive"] {
            assert!(!sent.contains(command), "{command}: {sent}");
        }
    }
    let message = waiting["message"].as_str().unwrap();
    assert!(
        message.contains(id(&waiting)) && message.contains("Ask your user to run `cellmate approvals`"),
        "{message}"
    );
}

#[test]
fn the_command_that_trusts_a_server_is_shown_to_the_user_and_not_to_the_model() {
    let place = pushes();
    let mut config: Value = serde_json::from_slice(&std::fs::read(place.path("config.json")).unwrap()).unwrap();
    config["mcpServers"]["s"]["trusted"] = json!(false);
    place.configure(&config);
    let (_client, waiting) = ask(&place, &["{ to: 'one' }", "{ to: 'two' }"]);
    assert!(!waiting.to_string().contains("trust"), "{waiting}");
    let config = ["--config", &place.path("config.json")];
    let hint = format!(
        "server `s` is not trusted to declare which tools only read; to trust it, run `cellmate servers trust-tools s {}`",
        config.join(" ")
    );
    let listed = place.approvals(&[&["list"], &config[..]].concat());
    assert_eq!(text(&listed.stderr), format!("note: {hint}\n"), "once for both calls");
    let shown = place.approvals(&[&["show", id(&waiting)], &config[..]].concat());
    assert!(text(&shown.stdout).contains(&format!("note       {hint}\n")), "{}", text(&shown.stdout));
    let reviewed = text(&on_terminal(&place.approvals_command(&config), "n\n\nn\n\n").stdout);
    assert_eq!(reviewed.matches(&hint).count(), 2, "{reviewed}");
}

#[test]
fn approving_without_a_terminal_needs_the_users_own_configuration_and_denying_does_not() {
    const ALLOWED: &str = "{ approvals: { nonInteractive: true } }";
    let place = pushes();
    let (mut client, waiting) = ask(&place, &["{ to: 'main' }"]);
    let project = place.path("project");
    std::fs::create_dir_all(&project).unwrap();
    std::fs::write(place.path("project/.cellmate.json5"), ALLOWED).unwrap();
    let approve = |more: &[&str]| {
        let words: Vec<&str> = ["approve", id(&waiting)].iter().chain(more).copied().collect();
        let mut command = place.approvals_command(&words);
        command.current_dir(&project);
        command
    };
    for own in [
        json!({}),
        json!({"approvals": {}}),
        json!({"approvals": {"nonInteractive": false}}),
        json!({"trustedProjects": [project]}),
        json!({"approvals": {"ask": "never"}, "trustedProjects": [project]}),
    ] {
        place.own(&own);
        for more in [vec![], vec!["--always"], vec!["--input", "{}"], vec!["--json"]] {
            let refused = approve(&more).output().unwrap();
            let stderr = text(&refused.stderr);
            assert_eq!(refused.status.code(), Some(2), "{own} {more:?}: {stderr}");
            assert!(stderr.contains("needs a terminal") && stderr.contains("nonInteractive"), "{stderr}");
        }
    }
    place.own(&json!({"approvals": {"nonInteractive": "yes"}}));
    assert_eq!(approve(&[]).output().unwrap().status.code(), Some(2));
    assert_eq!(made(&place), 0);
    let listed: Value = serde_json::from_slice(&place.approvals(&["list", "--json"]).stdout).unwrap();
    assert_eq!(
        listed[0]["approvalId"], waiting["approvals"][0]["approvalId"],
        "the approval is still pending: {listed}"
    );

    // Without a terminal, `cellmate approvals` without a subcommand lists the pending approvals.
    place.own(&json!({}));
    assert!(text(&place.approvals(&[]).stdout).starts_with(id(&waiting)));
    let listed: Value = serde_json::from_slice(&place.approvals(&["--json"]).stdout).unwrap();
    assert_eq!(listed[0]["input"], json!({"to": "main"}));
    assert_eq!(place.approvals(&["deny", id(&waiting)]).status.code(), Some(0));
    let done = client.call("wait", json!({"runId": waiting["runId"]}));
    assert_eq!(done["value"], json!(["rejected"]), "{done}");

    let (mut client, waiting) = ask(&place, &["{ to: 'main' }"]);
    place.own(&json!({"approvals": {"nonInteractive": true}}));
    assert_eq!(place.approvals(&["approve", id(&waiting)]).status.code(), Some(0));
    let done = client.call("wait", json!({"runId": waiting["runId"]}));
    assert_eq!((&done["value"], made(&place)), (&json!(["fulfilled"]), 1), "{done}");
}

#[test]
fn on_a_terminal_open_approvals_are_shown_and_decided_one_by_one() {
    let place = pushes();
    place.own(&json!({}));
    let (mut client, waiting) = ask(&place, &["{ to: 'one' }", "{ to: 'two' }", "{ to: 'three' }"]);
    // The calls are made concurrently, so their order is that of the list.
    let open: Value = serde_json::from_slice(&place.approvals(&["--json"]).stdout).unwrap();
    let third = &open[2]["input"];
    let seen = on_terminal(&place.approvals_command(&[]), "maybe\ny\nn\nnot \u{1b} today\n\n");
    let shown = text(&seen.stdout);
    for to in ["one", "two", "three"] {
        assert!(shown.contains(&format!("\"to\": \"{to}\"")), "{shown}");
    }
    assert_eq!(seen.status.code(), Some(0), "{shown}");
    let left: Value = serde_json::from_slice(&place.approvals(&["--json"]).stdout).unwrap();
    assert_eq!((left.as_array().map(Vec::len), &left[0]["input"]), (Some(1), third), "{left}");

    let id = left[0]["approvalId"].as_str().unwrap();
    let unsure = on_terminal(&place.approvals_command(&["approve", id]), "\n");
    assert_eq!(unsure.status.code(), Some(1), "{}", text(&unsure.stdout));
    assert!(text(&unsure.stdout).contains(third["to"].as_str().unwrap()), "{}", text(&unsure.stdout));
    let sure = on_terminal(&place.approvals_command(&["approve", id, "--always"]), "y\n");
    assert_eq!(sure.status.code(), Some(0), "{}", text(&sure.stdout));
    let done = client.call("wait", json!({"runId": waiting["runId"]}));
    let rejected = ["one", "two", "three"].iter().position(|to| open[1]["input"]["to"] == **to).unwrap();
    let ends: Vec<&str> = (0..3).map(|at| if at == rejected { "rejected" } else { "fulfilled" }).collect();
    assert_eq!(done["value"], json!(ends), "{done}");
    assert_eq!(made(&place), 2);
    let run = waiting["runId"].as_str().unwrap();
    let recorded = text(&place.command(&["runs", "show", run]).stdout);
    assert_eq!(recorded.matches("(cellmate approvals), ").count(), 3, "{recorded}");
    assert_eq!(recorded.matches("           approved by ").count(), 2, "{recorded}");
    let denied = recorded.lines().find(|line| line.starts_with("           denied by ")).unwrap();
    assert!(denied.contains(" ago: not ") && denied.ends_with(" today"), "{denied}");
    let recorded: Value = serde_json::from_slice(&place.command(&["runs", "show", run, "--json"]).stdout).unwrap();
    let decided = |approval: &Value| approval["decidedAt"].is_i64() && approval["decidedBy"].is_string();
    assert!(recorded["approvals"].as_array().unwrap().iter().all(decided), "{recorded}");
    assert!(text(&on_terminal(&place.approvals_command(&[]), "").stdout).contains("no pending approvals"));
}

#[test]
fn a_tools_question_is_answered_on_a_terminal() {
    let place = Place::new(json!([]));
    let mut book = writes("book");
    let form = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let request = json!({"method": "elicitation/create", "params": {"message": "Where to?", "requestedSchema": form}});
    let question = json!({"resultType": "input_required", "inputRequests": {"where": request}, "requestState": "s1"});
    book["does"] = json!([{"ifAnswered": [[{"echo": true}], [{"result": question}]]}]);
    let script = json!({"tools": [book], "record": place.path("received")});
    std::fs::write(place.path("script.json"), script.to_string()).unwrap();
    place.own(&json!({}));
    let mut client = Streams::start(&place, Era::July2026, json!({}), &["--ask-nobody"]);
    let waiting = client.exec("return (await MCP.s.book({})).structuredContent.inputResponses.where.content");
    let seen = on_terminal(&place.approvals_command(&[]), "y\n{\"city\":\"Oslo\"}\n");
    assert!(text(&seen.stdout).contains("Where to?"), "{}", text(&seen.stdout));
    let done = client.call("wait", json!({"runId": waiting["runId"]}));
    assert_eq!(done["value"], json!({"city": "Oslo"}), "{done}\n{}", text(&seen.stdout));
}

fn rules(place: &Place, more: &[&str]) -> Value {
    let config = place.path("config.json");
    let words: Vec<&str> = ["rules", "list", "--json", "--config", &config].iter().chain(more).copied().collect();
    let listed = place.approvals(&words);
    serde_json::from_slice(&listed.stdout).unwrap_or_else(|_| panic!("{}", text(&listed.stderr)))
}

fn code(command: &mut Command) -> Option<i32> {
    command.output().unwrap().status.code()
}

#[test]
fn standing_approvals_are_listed_revoked_and_bound_to_the_command_of_their_server() {
    let place = pushes();
    let (_client, waiting) = ask(&place, &["{}"]);
    assert_eq!(rules(&place, &[]), json!([]));
    assert_eq!(place.approvals(&["approve", id(&waiting), "--always"]).status.code(), Some(0));
    let listed = rules(&place, &[]);
    assert_eq!((&listed[0]["toolId"], &listed[0]["standing"]), (&json!("mcp:s:push"), &json!("inForce")), "{listed}");
    assert_eq!(code(&mut place.by_hand("s.push")), Some(0), "no approval is needed");

    // Another command provides the same tools under the same server name.
    let other = place.path("other.json");
    std::fs::copy(place.path("script.json"), &other).unwrap();
    let before: Value = serde_json::from_slice(&std::fs::read(place.path("config.json")).unwrap()).unwrap();
    let mut after = before.clone();
    after["mcpServers"]["s"]["args"] = json!([other]);
    place.configure(&after);
    assert_eq!(code(&mut place.by_hand("s.push")), Some(1), "another command needs a new approval");
    let waiting = Streams::plain(&place, Era::July2026).exec("return await MCP.s.push({})");
    assert_eq!(waiting["status"], "waiting", "{waiting}");
    assert_eq!(rules(&place, &[])[0]["standing"], "otherServer");
    place.configure(&json!({}));
    assert_eq!(rules(&place, &[])[0]["standing"], "noServer");
    place.configure(&before);
    assert_eq!(code(&mut place.by_hand("s.push")), Some(0), "the first command is allowed as before");

    let rule = listed[0]["ruleId"].as_str().unwrap();
    let shown = text(&place.approvals(&["rules", "list", "--config", &place.path("config.json")]).stdout);
    assert!(shown.starts_with("agent ") && shown.contains(rule) && shown.contains("in force"), "{shown}");
    assert_eq!(place.approvals(&["rules", "revoke", rule]).status.code(), Some(0));
    assert_eq!(place.approvals(&["rules", "revoke", rule]).status.code(), Some(1), "a rule can be revoked only once");
    assert_eq!(code(&mut place.by_hand("s.push")), Some(1), "the call needs approval again");
    assert_eq!((rules(&place, &[]), &rules(&place, &["--all"])[0]["standing"]), (json!([]), &json!("revoked")));
}

#[test]
fn a_standing_approval_of_another_definition_is_listed_as_inactive() {
    let place = pushes();
    let (client, waiting) = ask(&place, &["{}"]);
    assert_eq!(place.approvals(&["approve", id(&waiting), "--always"]).status.code(), Some(0));
    drop(client);
    assert_eq!(rules(&place, &[])[0]["standing"], "inForce");

    // An upgrade of the server changes the definition, which the next start lists.
    let script = std::fs::read_to_string(place.path("script.json")).unwrap();
    let upgraded = script.replace("\"inputSchema\":", "\"title\":\"New\",\"inputSchema\":");
    std::fs::write(place.path("script.json"), upgraded).unwrap();
    let refused = Streams::plain(&place, Era::July2026).exec("return await MCP.s.push({})");
    assert!(refused["error"].as_str().unwrap_or_default().contains("its definition has changed"), "{refused}");
    assert_eq!(rules(&place, &[])[0]["standing"], "otherDefinition");
    let shown = text(&place.approvals(&["rules", "list", "--config", &place.path("config.json")]).stdout);
    assert!(shown.contains("inactive: the tool's definition has changed"), "{shown}");
}
