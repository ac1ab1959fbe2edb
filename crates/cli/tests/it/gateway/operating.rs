//! Who may connect to a gateway, what it says at its start, and how it ends.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::model::Reply;

use super::running::{Setup, when_last};
use super::wires::Wire;
use crate::mcp::clients::Era;

#[test]
fn requests_without_a_valid_token_are_refused_in_the_form_of_the_wires() {
    let setup = Setup::new(json!([]), vec![when_last("hi", Reply::text("Hello."))]);
    let running = setup.start();
    let body = Wire::Chat.request(&Wire::Chat.user("hi"), false, false);
    for headers in [&[][..], &[("Authorization", "Bearer 00000000000000000000000000000000")], &[("x-api-key", "wrong")]]
    {
        for wire in Wire::ALL {
            let refused = running.post(wire.path(), headers, &body);
            assert_eq!(refused.status, 401);
            let refused: Value = serde_json::from_str(&refused.text()).unwrap();
            assert!(refused["error"]["message"].as_str().unwrap().contains("token"), "{refused}");
        }
    }
    let bearer = format!("Bearer {}", running.token());
    let foreign = [("Authorization", bearer.as_str()), ("Origin", "https://evil.example")];
    assert_eq!(running.post(Wire::Chat.path(), &foreign, &body).status, 403);
    assert_eq!(setup.model.requests().len(), 0, "no model was asked");
    assert_eq!(running.send(Wire::Chat, &body).text, "Hello.");
}

#[test]
fn a_stored_token_works_until_it_is_revoked_and_only_for_what_it_permits() {
    let setup = Setup::new(json!([]), vec![when_last("hi", Reply::text("Hello."))]);
    let running = setup.start();
    let created = |scope: &str| {
        let created = setup.place.tokens(&["create", "bob", "--scope", scope, "--json"]);
        let created: Value = serde_json::from_slice(&created.stdout).unwrap_or_else(|_| panic!("{created:?}"));
        (created["tokenId"].as_str().unwrap().to_owned(), created["secret"].as_str().unwrap().to_owned())
    };
    let status = |token: &str| {
        let bearer = format!("Bearer {token}");
        let body = Wire::Chat.request(&Wire::Chat.user("hi"), false, false);
        running.post(Wire::Chat.path(), &[("Authorization", &bearer)], &body).status
    };
    let (_, reader) = created("read");
    assert_eq!(status(&reader), 403);
    let (id, token) = created("execute");
    assert_eq!(status(&token), 200);
    assert!(setup.place.tokens(&["revoke", &id]).status.success());
    let deadline = Instant::now() + Duration::from_secs(60);
    while status(&token) != 401 {
        assert!(Instant::now() < deadline, "a revoked token still works");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn the_models_are_the_agents_and_tools_are_served_over_mcp() {
    let setup = Setup::new(json!([]), Vec::new());
    let running = setup.start();
    let models: Value = serde_json::from_str(&running.get("/v1/models").text()).unwrap();
    let ids: Vec<&str> = models["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert!(ids.contains(&"openclaw") && ids.contains(&"openclaw/ada"), "{models}");
    assert_eq!(running.get("/v1/models/openclaw/ada").status, 200);
    let unknown = running.send(Wire::Chat, &json!({"model": "gpt-4", "messages": Wire::Chat.user("hi")}));
    assert_eq!(unknown.status, 404, "{}", unknown.body);
    let mut client = running.mcp(Era::July2026);
    assert_eq!(client.exec("return 6 * 7")["value"], 42);
    assert_eq!(running.get("/readyz").status, 200);
    for path in ["/", "/api/v1/nothing", "/v1/nothing"] {
        let unknown = running.get(path);
        let status = unknown.status;
        let body: Value = serde_json::from_str(&unknown.text()).unwrap();
        assert_eq!((status, &body["error"]["type"]), (404, &json!("not_found")), "{path}: {body}");
    }
}

#[test]
fn a_request_of_several_mebibytes_is_accepted() {
    let setup = Setup::new(json!([]), vec![Reply::text("Long.")]);
    let running = setup.start();
    let answer = running.send(Wire::Chat, &Wire::Chat.request(&Wire::Chat.user(&"x".repeat(6 << 20)), false, false));
    assert_eq!((answer.status, answer.text.as_str()), (200, "Long."), "{}", answer.body);
}

#[test]
fn a_terminated_gateway_ends_in_order_while_a_model_is_silent() {
    let silent = Reply { delay_ms: 60_000, ..Reply::text("too late") };
    let setup = Setup::new(json!([]), vec![silent]);
    let mut running = setup.start();
    std::thread::scope(|scope| {
        let body = Wire::Chat.request(&Wire::Chat.user("hi"), false, true);
        let running = &running;
        let request = scope.spawn(move || running.send(Wire::Chat, &body));
        setup.model.wait_for_requests(1, Duration::from_secs(60)).unwrap();
        running.signal(Signal::TERM);
        drop(request.join());
    });
    let began = Instant::now();
    assert!(running.wait().success());
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    // The next process can use the store at once.
    setup.model.push(Reply::text("Back."));
    let answer = setup.start().send(Wire::Chat, &Wire::Chat.request(&Wire::Chat.user("other"), false, false));
    assert_eq!(answer.text, "Back.", "{}", answer.body);
}

#[test]
fn what_is_missing_is_said_at_the_start_and_by_doctor() {
    let setup = Setup::new(json!([]), Vec::new());
    let config = json!({
        "models": {"providers": {
            "good": {"baseUrl": "http://127.0.0.1:1/v1", "api": "chat"},
            "bad": {"baseUrl": "https://api.example/v1", "api": "chat", "apiKey": "${secret:NOT_THERE}"},
        }},
        "agents": {"ada": {"model": "good/one", "default": true}, "bob": {}, "eve": {"model": "nowhere/x"}},
    });
    setup.place.configure(&config);
    let said = [
        "`models.providers.bad.apiKey`: secret `NOT_THERE` is not set; run `cellmate secrets set NOT_THERE`",
        "the agent `bob` has no model; set `agents.bob.model` or `agents.defaults.model` to `PROVIDER/MODEL`",
        "the agent `eve` uses the model `nowhere/x`, whose provider is not in `models.providers`",
    ];
    let lines = setup.first_lines();
    assert!(lines.contains("model `openclaw` is the agent `ada` with `good/one`"), "{lines}");
    assert!(said.iter().all(|text| lines.contains(text)), "{lines}");
    let doctor = setup.place.command(&["doctor", "--json"]);
    let report: Value = serde_json::from_slice(&doctor.stdout).unwrap();
    assert_eq!(report["gateway"]["problems"].as_array().map(Vec::len), Some(3), "{report}");
    assert_eq!(report["gateway"]["providers"], json!(["good"]));
    assert_eq!(doctor.status.code(), Some(1));
    setup.place.configure(&json!({}));
    let lines = setup.first_lines();
    assert!(lines.contains("no provider of models is configured"), "{lines}");
    let report: Value = serde_json::from_slice(&setup.place.command(&["doctor", "--json"]).stdout).unwrap();
    assert_eq!(report["gateway"]["configured"], false, "{report}");
}

/// Workers and servers are started before the models are read.
#[test]
fn a_gateway_whose_models_cannot_be_read_stops_what_it_has_started() {
    let setup = Setup::new(json!([]), vec![Reply::text("Back.")]);
    setup.configure(&json!({"holdSeconds": "soon"}));
    let mut command = Command::new(env!("CARGO_BIN_EXE_cellmate"));
    command.args(["gateway", "--listen", "127.0.0.1:0", "--config", &setup.place.path("config.json")]);
    command.args(["--state-dir", &setup.place.path("state")]).env("MODEL_KEY", "key-of-the-model");
    let (done, ended) = std::sync::mpsc::channel();
    // The output ends when no process has it open any more: neither the gateway nor what it has started.
    std::thread::spawn(move || done.send(command.output().unwrap()));
    let failed = ended.recv_timeout(Duration::from_secs(60));
    let failed = failed.unwrap_or_else(|_| panic!("a process of the gateway is left"));
    let said = String::from_utf8_lossy(&failed.stderr);
    assert!(!failed.status.success() && said.contains("gateway.holdSeconds"), "{failed:?}");
    assert!(!said.contains("serving agents at"), "{said}");
    // Nothing holds the store.
    setup.configure(&json!({"holdSeconds": 60}));
    let answer = setup.start().send(Wire::Chat, &Wire::Chat.request(&Wire::Chat.user("hi"), false, false));
    assert_eq!(answer.text, "Back.", "{}", answer.body);
}

#[test]
fn listening_for_other_machines_without_a_token_or_tls_is_refused() {
    let setup = Setup::new(json!([]), Vec::new());
    for (more, reason) in [(&["--no-token"][..], "requires a token"), (&[], "unencrypted")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cellmate"));
        command.args(["gateway", "--listen", "0.0.0.0:0", "--config", &setup.place.path("config.json")]);
        command.args(["--state-dir", &setup.place.path("state")]).args(more).env("MODEL_KEY", "key-of-the-model");
        let refused = command.output().unwrap();
        assert_eq!(refused.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&refused.stderr).contains(reason), "{refused:?}");
    }
}
