//! `cellmate runs` while a server is at work: listing, showing, replaying and forking its runs.

use std::process::Output;

use contract::ids::RunId;
use contract::tool::ContentHash;
use serde_json::{Value, json};
use store::{Change, Durability, FencedRun, Keys, Location, NewRun, RunState, Store};

use super::clients::{Era, Streams};
use super::place::{Place, reads, writes};

const CELL: &str = "text('before'); const { structuredContent: at } = await MCP.s.look({ n: 1 }); text('looked'); \
                    return [at.when, (await MCP.s.push({ to: 'main' })).structuredContent.done]";

fn place() -> Place {
    let found = json!([{"result": {"content": [], "structuredContent": {"when": "now"}}}]);
    Place::new(json!([reads("look", found), writes("push")]))
}

impl Place {
    pub(super) fn runs(&self, arguments: &[&str]) -> Output {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_cellmate"));
        command.arg("runs").args(arguments).args(["--state-dir", &self.path("state")]).output().unwrap()
    }

    fn fork(&self, run: &str, at: &str, more: &[&str]) -> Output {
        let config = self.path("config.json");
        let arguments: Vec<&str> = ["fork", run, "--at", at, "--config", &config].iter().chain(more).copied().collect();
        self.runs(&arguments)
    }

    fn called(&self, tool: &str) -> usize {
        self.received().lines().filter(|line| line.contains("\"tools/call\"") && line.contains(tool)).count()
    }
}

pub(super) fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn show_prints_the_whole_result_and_errors_and_says_if_something_is_cut() {
    let error = format!("{} end of error", "e".repeat(300));
    let place = Place::new(json!([reads("fails", json!([{"error": {"code": -1, "message": error}}]))]));
    let mut client = Streams::plain(&place, Era::July2026);
    let show = |input: &str, client: &mut Streams| {
        let code = format!(
            "await yield_control(); await MCP.s.fails({{input: '{input}'}}).catch(() => null); \
             return 'r'.repeat(2_000) + ' end of result'"
        );
        let run = client.exec(&code)["runId"].clone();
        assert_eq!(client.call("wait", json!({ "runId": run }))["status"], "completed");
        let shown = place.runs(&["show", run.as_str().unwrap()]);
        (text(&shown.stdout), text(&shown.stderr), run)
    };
    let (shown, notes, _) = show("short", &mut client);
    assert!(shown.contains(&format!("{} end of result", "r".repeat(2_000))), "{shown}");
    assert!(shown.contains("end of error") && notes.is_empty(), "{shown}{notes}");
    let (_, notes, run) = show(&"i".repeat(200), &mut client);
    let run = run.as_str().unwrap();
    assert_eq!(
        notes,
        format!("values that end with … are cut; `cellmate runs show {run} --json` prints all of them\n")
    );
}

#[test]
fn a_run_is_listed_shown_and_replayed_while_it_waits_and_after_it_ended() {
    let place = place();
    let mut client = Streams::plain(&place, Era::July2026);
    let waiting = client.exec(CELL);
    assert_eq!(waiting["status"], "waiting", "{waiting}");
    let run = waiting["runId"].as_str().unwrap();

    let listed = json_of(&place.runs(&["list", "--json"]));
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!(
        (&listed[0]["runId"], &listed[0]["state"], &listed[0]["agentId"], &listed[0]["pending"]),
        (&json!(run), &json!("waiting"), &json!("local"), &json!(1))
    );
    let code = &listed[0]["code"];
    assert!(code.as_str().is_some_and(|code| CELL.starts_with(code)), "{listed}");
    let lines = text(&place.runs(&["list"]).stdout);
    let (header, row) = lines.split_once('\n').unwrap();
    assert!(header.starts_with("RUN ") && header.contains("  STATE    AGE"), "{lines}");
    assert!(row.starts_with(&format!("{run}  waiting  ")) && row.contains("local  text('before'); const "), "{lines}");

    let shown = json_of(&place.runs(&["show", run, "--json"]));
    assert_eq!((&shown["source"], shown["legs"].as_array().map(Vec::len)), (&json!(CELL), Some(2)), "{shown}");
    let states: Vec<&str> =
        shown["calls"].as_array().unwrap().iter().map(|call| call["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["delivered", "approval"]);

    let replayed = place.runs(&["replay", run, "--json"]);
    assert_eq!(replayed.status.code(), Some(0), "{replayed:?}");
    let played = json_of(&replayed);
    assert_eq!(played["same"], true, "{played}");
    let [first, second] = &played["steps"].as_array().unwrap()[..] else { panic!("{played}") };
    assert_eq!(first["output"], json!([{"type": "text", "text": "before"}]));
    assert_eq!(first["made"][0]["payload"], json!([["s", "look"], [{"n": 1}]]));
    assert_eq!(second["given"][0]["resolved"]["structuredContent"], json!({"when": "now"}));
    assert_eq!((&second["end"]["status"], &second["verdict"]), (&json!("suspended"), &json!("same")));
    let steps = text(&place.runs(&["replay", run]).stdout);
    assert!(steps.ends_with("all 2 steps match the record; no tool was called\n"), "{steps}");
    // Replaying changed nothing.
    assert_eq!(json_of(&place.runs(&["show", run, "--json"])), shown);
    assert_eq!(json_of(&place.runs(&["list", "--json"])), listed);
    assert_eq!((place.called("look"), place.called("push")), (1, 0));

    let approval = waiting["approvals"][0]["approvalId"].as_str().unwrap();
    assert_eq!(place.approvals(&["approve", approval]).status.code(), Some(0));
    let done = client.call("wait", json!({"runId": run}));
    assert_eq!(done["value"], json!(["now", "push"]), "{done}");
    let played = json_of(&place.runs(&["replay", run, "--json"]));
    assert_eq!((&played["same"], &played["steps"][2]["end"]["value"]), (&json!(true), &json!(["now", "push"])));
    // A run that ended with its first commit has its catalog in the store, too.
    client.exec("return Object.keys(MCP.s).length");
    let short = json_of(&place.runs(&["list", "--json"]))[0]["runId"].as_str().unwrap().to_owned();
    assert_eq!(json_of(&place.runs(&["replay", &short, "--json"]))["same"], true);
    assert_eq!((place.called("look"), place.called("push")), (1, 1));

    let unknown = place.runs(&["replay", "cm_nobody"]);
    assert_eq!(
        (unknown.status.code(), text(&unknown.stderr).as_str()),
        (Some(2), "cellmate: no run `cm_nobody`; `cellmate runs list` lists the runs\n")
    );
}

#[test]
fn an_export_has_the_nested_calls_of_one_run_under_their_control_calls() {
    let place = place();
    let mut client = Streams::start(&place, Era::July2026, json!({}), &["--ask-nobody"]);
    client.exec("return 'another run'");
    assert_eq!(client.exec(CELL)["status"], "completed");
    let run = json_of(&place.runs(&["list", "--json"]))[0]["runId"].as_str().unwrap().to_owned();
    let exported = text(&place.runs(&["export", &run]).stdout);
    let entries: Vec<Value> = exported.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&str> = entries.iter().map(|entry| entry["kind"].as_str().unwrap()).collect();
    let calls = ["tool_call", "tool_result", "tool_call", "tool_result"];
    assert_eq!(kinds, [&["control_call"], &calls[..], &["control_result"]].concat(), "{exported}");
    let control = &entries[0]["toolCallId"];
    assert!(entries[0]["arguments"]["code"] == CELL && control.is_string(), "{exported}");
    for (entry, tool) in entries[1..5].iter().zip(["mcp:s:look", "mcp:s:look", "mcp:s:push", "mcp:s:push"]) {
        assert_eq!((&entry["toolId"], &entry["parentToolCallId"]), (&json!(tool), control), "{entry}");
    }
    assert_eq!(entries[5]["result"]["value"], json!(["now", "push"]));
}

#[test]
fn a_fork_continues_from_a_step_and_repeats_no_recorded_call() {
    let place = place();
    let mut client = Streams::start(&place, Era::July2026, json!({}), &["--ask-nobody"]);
    assert_eq!(client.exec(CELL)["status"], "completed");
    let run = json_of(&place.runs(&["list", "--json"]))[0]["runId"].as_str().unwrap().to_owned();
    assert_eq!((place.called("look"), place.called("push")), (1, 1));

    // The fork reuses both calls, which were made within the first two steps, with their answers.
    let whole = place.fork(&run, "2", &["--json"]);
    assert_eq!(whole.status.code(), Some(0), "{whole:?}");
    let whole = json_of(&whole);
    assert_eq!(whole["result"]["value"], json!(["now", "push"]), "{whole}");
    assert_eq!(whole["result"]["output"].as_array().map(Vec::len), Some(2), "{whole}");
    assert_eq!((place.called("look"), place.called("push")), (1, 1));
    assert_ne!(whole["runId"], json!(run));

    // The fork runs the second step live: its call needs approval and is then dispatched.
    let asked = place.fork(&run, "1", &["--json"]);
    assert_eq!(asked.status.code(), Some(3), "{asked:?}");
    let asked = json_of(&asked);
    assert_eq!(asked["result"]["pendingToolCalls"][0]["state"], "approval", "{asked}");
    assert_eq!((place.called("look"), place.called("push")), (1, 1));
    let approvals = json_of(&place.approvals(&["list", "--json"]));
    assert_eq!((&approvals[0]["runId"], &approvals[0]["toolId"]), (&asked["runId"], &json!("mcp:s:push")));
    place.approvals(&["approve", approvals[0]["approvalId"].as_str().unwrap()]);
    // The fork belongs to the principal of the original run, whose client can resume it.
    let done = client.call("wait", json!({"runId": asked["runId"]}));
    assert_eq!(done["value"], json!(["now", "push"]), "{done}");
    assert_eq!((place.called("look"), place.called("push")), (1, 2));

    let begun = text(&place.fork(&run, "2", &["--no-wait"]).stdout);
    assert_eq!(client.call("wait", json!({"runId": begun.trim()}))["status"], "completed");
    for (at, expected) in [("0", "the run has 3 steps; pass"), ("4", "the run has 3 steps; pass")] {
        let refused = place.fork(&run, at, &[]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(text(&refused.stderr).contains(expected), "{refused:?}");
    }
}

/// Stores a run whose journal does not match its source, as if the source behaved differently by now.
async fn forge(place: &Place, run: &RunId) {
    let location = Location::File(place.path("state/runs.db").into());
    let store = Store::open(&location, Keys::ephemeral().unwrap()).await.unwrap();
    let row = store.run(run).await.unwrap().unwrap();
    let tables = store.tables(&row.catalog, 1 << 24).await.unwrap().unwrap();
    let mut calls = store.calls(run).await.unwrap();
    calls[1].payload = calls[1].payload.replace("main", "other");
    calls[1].input_hash = ContentHash::of(calls[1].payload.as_bytes()).to_string();
    let mut held = FencedRun::new(NewRun {
        run_id: "cm_forged".into(),
        scope: row.scope,
        tool_call_id: "exec-1".to_owned(),
        holder: String::new(),
        lease_until: 0,
        expires_at: row.expires_at,
        catalog: row.catalog,
        tables: tables.into(),
        definition: row.definition,
    });
    let legs = store.legs(run).await.unwrap();
    let change = Change { state: Some(RunState::Completed), legs, calls, result: row.result, ..Change::default() };
    store.commit(&mut held, &change, Durability::Relaxed, row.created_at).await.unwrap();
}

#[test]
fn replay_reports_where_a_cell_diverges_from_its_record() {
    let place = place();
    let mut client = Streams::start(&place, Era::July2026, json!({}), &["--ask-nobody"]);
    client.exec(CELL);
    let run = json_of(&place.runs(&["list", "--json"]))[0]["runId"].as_str().unwrap().to_owned();
    tokio::runtime::Runtime::new().unwrap().block_on(forge(&place, &run.as_str().into()));

    let played = place.runs(&["replay", "cm_forged", "--json"]);
    assert_eq!(played.status.code(), Some(1));
    let played = json_of(&played);
    assert_eq!((&played["same"], played["steps"].as_array().map(Vec::len)), (&json!(false), Some(2)), "{played}");
    let diverged = &played["steps"][1]["diverged"];
    assert_eq!((&diverged["leg"], &diverged["call"]), (&json!(1), &json!(2)), "{played}");
    assert_eq!(
        diverged["message"],
        "leg 1, call 2: expected `namespace` of `MCP` with [[\"s\",\"push\"],[{\"to\":\"other\"}]], got \
         `namespace` of `MCP` with [[\"s\",\"push\"],[{\"to\":\"main\"}]]"
    );
    let replayed = place.runs(&["replay", "cm_forged"]);
    assert!(text(&replayed.stdout).contains("DIFFERS from the record\n  leg 1, call 2: expected"), "{replayed:?}");
    // A fork that would replay the divergent step fails, too, and calls nothing.
    let forked = place.fork("cm_forged", "2", &["--json"]);
    assert_eq!(
        (forked.status.code(), json_of(&forked)["result"]["code"].as_str()),
        (Some(1), Some("snapshot_restore_failed"))
    );
    assert_eq!(place.called("push"), 1);
}
