//! Several pending calls decided at once: in one form, with one *always*, or with one command.

use serde_json::{Value, json};

use super::clients::{Era, Streams, structured};
use super::place::{Place, on_terminal, writes};

const FIVE: &str = "return (await Promise.all([1, 2, 3, 4, 5].map(n => MCP.s.push({ n })))).length";
const MIXED: &str = "const calls = [MCP.s.push({ n: 1 }), MCP.s.drop({ n: 2 }), MCP.s.push({ n: 3 })];
    return (await Promise.allSettled(calls)).map(one => one.status)";

fn place() -> Place {
    Place::new(json!([writes("push"), writes("drop")]))
}

fn forms() -> Value {
    json!({"elicitation": {"form": {}}})
}

fn made(place: &Place) -> usize {
    place.received().matches("\"tools/call\"").count()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn choice(word: &str) -> Value {
    json!({"action": "accept", "content": {"decision": word}})
}

/// Runs a cell whose calls are decided in forms, with these answers in order. Returns the result and the forms' texts.
fn decide_in_forms(place: &Place, era: Era, code: &str, answers: &[&str]) -> (Value, Vec<String>) {
    let mut client = Streams::start(place, era, forms(), &[]);
    let params = json!({"name": "exec", "arguments": {"code": code}});
    let mut texts = Vec::new();
    if !era.is_modern() {
        let id = client.send("tools/call", params);
        for answer in answers {
            let form = client.next("form", |message| message["method"] == "elicitation/create");
            texts.push(form["params"]["message"].as_str().unwrap().to_owned());
            client.write(&json!({"jsonrpc": "2.0", "id": form["id"], "result": choice(answer)}));
        }
        let done = structured(&client.answer(id));
        assert_eq!(client.notifications("elicitation/create"), Vec::<Value>::new(), "more forms than answers");
        return (done, texts);
    }
    let mut answer = client.ask("tools/call", params.clone());
    for word in answers {
        let asked = answer["result"].clone();
        let requests = asked["inputRequests"].as_object().unwrap_or_else(|| panic!("no form: {asked}"));
        let [(id, request)] = requests.iter().collect::<Vec<_>>()[..] else { panic!("several forms: {asked}") };
        texts.push(request["params"]["message"].as_str().unwrap().to_owned());
        let mut again = params.clone();
        again["requestState"] = asked["requestState"].clone();
        again["inputResponses"] = json!({ id: choice(word) });
        answer = client.ask("tools/call", again);
    }
    (structured(&answer), texts)
}

#[test]
fn five_parallel_calls_with_always_ask_once() {
    for era in Era::ALL {
        let place = place();
        let (done, texts) = decide_in_forms(&place, era, FIVE, &["approve always"]);
        assert_eq!((&done["status"], &done["value"]), (&json!("completed"), &json!(5)), "{done}");
        let [form] = texts.as_slice() else { panic!("{texts:?}") };
        assert!(form.starts_with("Allow these 5 calls?\n"), "{form}");
        for n in 1..=5 {
            assert!(form.contains(&format!("\n{n}. s.push {{ \"n\": {n} }}\n")), "{form}");
        }
        let (again, texts) = decide_in_forms(&place, era, FIVE, &[]);
        assert_eq!((&again["value"], texts.len(), made(&place)), (&json!(5), 0, 10), "{again}");
    }
}

#[test]
fn one_decision_in_a_form_applies_to_all_calls_that_it_lists_and_to_no_later_ones() {
    for era in [Era::November2025, Era::July2026] {
        let place = place();
        let (done, _) = decide_in_forms(&place, era, MIXED, &["approve once"]);
        assert_eq!(done["value"], json!(["fulfilled", "fulfilled", "fulfilled"]), "{done}");
        let (done, texts) = decide_in_forms(&place, era, MIXED, &["deny"]);
        assert_eq!(done["value"], json!(["rejected", "rejected", "rejected"]), "{done}");
        assert!(texts[0].contains("s.push {") && texts[0].contains("s.drop {"), "{texts:?}");
        assert_eq!(made(&place), 3);
    }
}

#[test]
fn decided_one_by_one_always_covers_the_pending_calls_of_its_tool_only() {
    for era in [Era::November2025, Era::July2026] {
        let place = place();
        let code = "const calls = [1, 2, 3].map(n => MCP.s.push({ n }));
            return (await Promise.allSettled(calls)).map(one => one.status)";
        let (done, texts) = decide_in_forms(&place, era, code, &["decide one by one", "approve always"]);
        assert_eq!(done["value"], json!(["fulfilled", "fulfilled", "fulfilled"]), "{done}");
        assert!(texts[1].starts_with("Allow a call to s.push?") && texts[1].contains("2 more calls wait"), "{texts:?}");

        let place = self::place();
        let mut client = Streams::plain(&place, Era::July2026);
        let waiting = client.exec(MIXED);
        let listed: Value = serde_json::from_slice(&place.approvals(&["list", "--json"]).stdout).unwrap();
        let push = listed.as_array().unwrap().iter().find(|one| one["toolId"] == "mcp:s:push").unwrap();
        let decided = place.approvals(&["approve", push["approvalId"].as_str().unwrap(), "--always"]);
        let out = text(&decided.stdout);
        assert_eq!((decided.status.code(), out.lines().count()), (Some(0), 2), "{out}");
        assert!(out.contains("mcp:s:push  (covered by the standing approval)"), "{out}");
        let left: Value = serde_json::from_slice(&place.approvals(&["list", "--json"]).stdout).unwrap();
        assert_eq!((left.as_array().map(Vec::len), &left[0]["toolId"]), (Some(1), &json!("mcp:s:drop")), "{left}");
        assert_eq!(place.approvals(&["deny", "--all"]).status.code(), Some(0));
        let done = client.call("wait", json!({"runId": waiting["runId"]}));
        assert_eq!(done["value"], json!(["fulfilled", "rejected", "fulfilled"]), "{done}");
    }
}

#[test]
fn a_form_is_replaced_when_one_of_its_calls_is_decided_elsewhere() {
    let place = place();
    let mut client = Streams::start(&place, Era::November2025, forms(), &[]);
    let id = client.send("tools/call", json!({"name": "exec", "arguments": {"code": MIXED}}));
    let is_form = |message: &Value| message["method"] == "elicitation/create";
    let first = client.next("form", is_form);
    assert!(first["params"]["message"].as_str().unwrap().starts_with("Allow these 3 calls?"), "{first}");
    let listed: Value = serde_json::from_slice(&place.approvals(&["list", "--json"]).stdout).unwrap();
    let drop = listed.as_array().unwrap().iter().find(|one| one["toolId"] == "mcp:s:drop").unwrap();
    assert_eq!(place.approvals(&["deny", drop["approvalId"].as_str().unwrap()]).status.code(), Some(0));
    let withdrawn = client.next("withdrawal", |message| message["method"] == "notifications/cancelled");
    assert_eq!(withdrawn["params"]["requestId"], first["id"], "{withdrawn}");
    let second = client.next("form", is_form);
    let message = second["params"]["message"].as_str().unwrap();
    assert!(message.starts_with("Allow these 2 calls?") && !message.contains("s.drop"), "{message}");
    client.write(&json!({"jsonrpc": "2.0", "id": second["id"], "result": choice("approve once")}));
    let done = structured(&client.answer(id));
    assert_eq!(done["value"], json!(["fulfilled", "rejected", "fulfilled"]), "{done}");
}

#[test]
fn a_command_decides_all_calls_of_a_run_or_all_there_are() {
    let place = place();
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client = Streams::plain(&place, Era::July2026);
        let waiting = client.exec(FIVE);
        clients.push((client, waiting["runId"].as_str().unwrap().to_owned()));
    }
    let approved = place.approvals(&["approve", "--run", &clients[0].1]);
    assert_eq!((approved.status.code(), text(&approved.stdout).lines().count()), (Some(0), 5));
    let (client, run_id) = &mut clients[0];
    assert_eq!(client.call("wait", json!({"runId": run_id}))["value"], 5);
    assert_eq!(made(&place), 5);

    // The other two runs stay pending; a beginning that fits both selects nothing.
    let ambiguous = place.approvals(&["approve", "--run", "cm_"]);
    let stderr = text(&ambiguous.stderr);
    assert_eq!(ambiguous.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("is the beginning of 2 ids") && stderr.contains(&clients[1].1), "{stderr}");
    let unknown = place.approvals(&["approve", "--run", "cm_unknown"]);
    assert_eq!(unknown.status.code(), Some(1), "{}", text(&unknown.stderr));
    assert_eq!(text(&place.approvals(&["list"]).stdout).lines().count(), 10);

    let denied = place.approvals(&["deny", "--run", &clients[1].1, "--note", "not now"]);
    assert_eq!((denied.status.code(), text(&denied.stdout).lines().count()), (Some(0), 5));
    let all = place.approvals(&["approve", "--all", "--always"]);
    assert_eq!((all.status.code(), text(&all.stdout).lines().count()), (Some(0), 5), "{}", text(&all.stderr));
    let (client, run_id) = &mut clients[2];
    assert_eq!(client.call("wait", json!({"runId": run_id}))["value"], 5);
    let rules = place.approvals(&["rules", "list", "--json", "--config", &place.path("config.json")]);
    let rules: Value = serde_json::from_slice(&rules.stdout).unwrap();
    assert_eq!(rules.as_array().map(Vec::len), Some(1), "one standing approval covers all: {rules}");

    let nothing = place.approvals(&["deny", "--all"]);
    assert_eq!((nothing.status.code(), text(&nothing.stderr).as_str()), (Some(0), "no pending approvals\n"));
    for usage in [vec!["approve"], vec!["deny", "apr_1", "--all"], vec!["approve", "--all", "--run", "cm_1"]] {
        assert_eq!(place.approvals(&usage).status.code(), Some(2), "{usage:?}");
    }
    assert_eq!(place.approvals(&["approve", "--all", "--input", "{}"]).status.code(), Some(2));
}

#[test]
fn the_beginning_of_an_id_is_enough_if_it_is_unique() {
    let place = place();
    let mut client = Streams::plain(&place, Era::July2026);
    let waiting = client.exec(FIVE);
    let ids: Vec<String> = waiting["approvals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["approvalId"].as_str().unwrap().to_owned())
        .collect();
    assert!(ids.iter().all(|id| id.len() == 20), "{ids:?}");
    let ambiguous = place.approvals(&["deny", "apr_"]);
    let stderr = text(&ambiguous.stderr);
    assert!(ambiguous.status.code() == Some(2) && stderr.contains("is the beginning of 5 ids"), "{stderr}");
    assert!(ids.iter().all(|id| stderr.contains(id)), "{stderr}");
    let unique = (5..=20).find(|length| ids.iter().filter(|id| id.starts_with(&ids[0][..*length])).count() == 1);
    let beginning = &ids[0][..unique.unwrap()];
    let shown = place.approvals(&["show", beginning]);
    assert!(text(&shown.stdout).contains(&ids[0]), "{}", text(&shown.stderr));
    assert_eq!(place.approvals(&["approve", beginning]).status.code(), Some(0));
    assert_eq!(place.approvals(&["show", beginning]).status.code(), Some(1), "it is decided");
    let left = text(&place.approvals(&["list"]).stdout);
    assert!(left.lines().count() == 4 && !left.contains(&ids[0]), "{left}");
}

#[test]
fn on_a_terminal_several_calls_are_shown_and_confirmed_together() {
    let place = place();
    place.own(&json!({}));
    let mut client = Streams::plain(&place, Era::July2026);
    let run_id = client.exec(FIVE)["runId"].as_str().unwrap().to_owned();
    let refused = place.approvals(&["approve", "--all"]);
    assert!(refused.status.code() == Some(2) && text(&refused.stderr).contains("needs a terminal"));

    let unsure = on_terminal(&place.approvals_command(&["approve", "--run", &run_id]), "\n");
    let shown = text(&unsure.stdout);
    assert_eq!(unsure.status.code(), Some(1), "{shown}");
    assert!(shown.contains("approve these 5 calls? [y]es, [o]ne by one, [N]o: "), "{shown}");
    assert!((1..=5).all(|n| shown.contains(&format!("\"n\": {n}"))), "{shown}");
    assert!(shown.contains("5 calls are still pending") && made(&place) == 0, "{shown}");

    // One by one: the first is left pending, "no" is no denial.
    let some = on_terminal(&place.approvals_command(&["approve", "--run", &run_id]), "o\nn\ny\nn\nn\nn\n");
    assert_eq!((some.status.code(), text(&some.stdout).matches("approved  apr_").count()), (Some(1), 1));
    let sure = on_terminal(&place.approvals_command(&["approve", "--all"]), "y\n");
    assert_eq!(sure.status.code(), Some(0), "{}", text(&sure.stdout));
    assert_eq!(client.call("wait", json!({"runId": run_id}))["value"], 5);
}

#[test]
fn on_a_terminal_always_asks_once_for_the_calls_that_it_covers() {
    let place = place();
    place.own(&json!({}));
    let mut client = Streams::plain(&place, Era::July2026);
    let run_id = client.exec(FIVE)["runId"].as_str().unwrap().to_owned();
    let seen = on_terminal(&place.approvals_command(&[]), "a\n");
    let shown = text(&seen.stdout);
    assert_eq!((seen.status.code(), shown.matches("call it? ").count()), (Some(0), 1), "{shown}");
    assert_eq!(shown.matches("(covered by the standing approval)").count(), 4, "{shown}");
    assert_eq!(client.call("wait", json!({"runId": run_id}))["value"], 5);
}
