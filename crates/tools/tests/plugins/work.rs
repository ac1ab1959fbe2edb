//! What plugins are for: tools, hooks that decide and change, namespaces, settings, reloading.

use std::sync::Arc;
use std::time::Duration;

use contract::config::PluginsConfig;
use executor::{CallEnd, Outcome, ProgressSink, ToolSource};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tools::plugins::{HookTrial, Plugins, try_call, try_plugin, try_start};

use crate::place::{Place, Ready, eventually, manifest, with_hooks};

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_is_known_without_starting_the_plugin_and_its_call_has_key_and_scope() {
    let place = Place::new().await;
    place.install(&manifest("demo", "good"));
    let ready = place.ready().await;
    assert!(ready.run.executor.catalog().get("plugin:demo:echo").is_some());
    assert_eq!((place.recorded("demo"), ready.plugin("demo").status().state), (String::new(), "stopped"));
    let value = ready.value("plugin:demo:echo", json!({"a": [1]})).await;
    assert_eq!((&value["input"], &value["scope"]["agentId"]), (&json!({"a": [1]}), &json!("ada")));
    let record = place.recorded("demo");
    let key = record.lines().find_map(|line| line.strip_prefix("call echo ")).unwrap();
    assert_eq!(key.len(), 64);
    assert_eq!(ready.plugin("demo").status().state, "running");
    let message = ready.failed("plugin:demo:nothing", json!({})).await;
    assert!(message.contains("plugin:demo:nothing"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_reaches_the_caller() {
    let place = Place::new().await;
    place.install(&manifest("demo", "good"));
    let ready = place.ready().await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    let updates = ProgressSink::to(move |update: Value| sink.lock().push(update["message"].clone()));
    let made = ready.run.executor.call_directly(&place.store, "t", "plugin:demo:progress", json!({}), updates).await;
    assert!(matches!(made.unwrap().end, CallEnd::Settled(Outcome::Returned(_))));
    assert_eq!(*seen.lock(), [json!("step 0"), json!("step 1"), json!("step 2")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_block_rewrite_require_approval_and_see_results() {
    let place = Place::new().await;
    place.install(&with_hooks("guard", "good"));
    let ready = place.ready().await;
    let message = ready.failed("plugin:guard:echo", json!({"text": "a secret"})).await;
    assert!(message.contains("plugin `guard`: it contains a secret"), "{message}");
    let value = ready.value("plugin:guard:echo", json!({"old": "x", "kept": 1})).await;
    assert_eq!(value["input"], json!({"old": "new", "kept": 1}));
    let asked = ready.direct("plugin:guard:echo", json!({"text": "dangerous"})).await;
    assert!(matches!(asked.end, CallEnd::Parked(_)), "{:?}", asked.end);
    let called = ready.value("plugin:guard:echo", json!({"plain": 1})).await;
    let record = place.recorded("guard");
    let event = record.lines().find_map(|line| line.strip_prefix("event ")).unwrap();
    let event: Value = serde_json::from_str(event).unwrap();
    let names = ["toolName", "toolId", "params", "runId", "toolCallId", "agentId", "sessionId"];
    assert!(names.iter().all(|name| event.get(name).is_some_and(|value| !value.is_null())), "{event}");
    assert_eq!((&event["toolName"], &event["toolId"]), (&json!("echo"), &json!("plugin:guard:echo")));
    assert!(record.contains(r#"after {"result":"#), "{record}");
    // The ids of the call in `tools/call` are those of its event.
    let tool_call_id = event["toolCallId"].as_str().unwrap();
    let number = tool_call_id.rsplit(':').next().unwrap();
    assert_eq!(called["under"], json!([format!("{}:{number}", event["runId"].as_str().unwrap()), tool_call_id]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_that_rewrites_arguments_to_invalid_ones_is_named_in_the_error() {
    let place = Place::new().await;
    let mut guard = with_hooks("guard", "good");
    guard["tools"][0]["inputSchema"] = json!({"type": "object", "properties": {"old": {"type": "integer"}}});
    place.install(&guard);
    let ready = place.ready().await;
    let message = ready.failed("plugin:guard:echo", json!({"old": 1})).await;
    let expected =
        "the before_tool_call hook of plugin `guard` rewrote the input of this call to one that cannot be used";
    assert!(message.starts_with(expected) && message.contains("expected integer"), "{message}");
    assert!(!place.recorded("guard").contains("call echo"));
    let own = ready.failed("plugin:guard:echo", json!({"old": "x"})).await;
    assert!(!own.contains("hook"), "{own}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_sees_only_the_tools_that_it_asked_for_and_cells_if_it_says_so() {
    let place = Place::new().await;
    let mut narrow = manifest("guard", "good");
    narrow["hooks"] = json!({"before_tool_call": {"tools": ["plugin:guard:change"]}});
    place.install(&narrow);
    let ready = place.ready().await;
    ready.value("plugin:guard:echo", json!({"text": "secret"})).await;
    ready.failed("plugin:guard:change", json!({"text": "secret"})).await;
    assert!(ready.run.executor.before_cell("c1", json!({"code": "secret"}), None).await.is_ok());
    let place = Place::new().await;
    place.install(&with_hooks("guard", "good"));
    let ready = place.ready().await;
    let blocked = ready.run.executor.before_cell("c1", json!({"code": "secret"}), None).await.unwrap_err();
    assert!(blocked.contains("plugin `guard`: it contains a secret"), "{blocked}");
    ready
        .run
        .executor
        .before_cell("c1", json!({"code": "1"}), Some(contract::cell::Language::TypeScript))
        .await
        .unwrap();
    let record = place.recorded("guard");
    assert!(record.contains(r#""toolInputKind": "typescript", "toolKind": "code_mode_exec""#), "{record}");
}

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_call_the_plugins_tools_with_mapped_input() {
    let place = Place::new().await;
    let mut demo = manifest("demo", "good");
    demo["namespaces"] = json!([
        {
            "id": "fixed", "globalName": "Fixed", "description": "Fixed.", "requiredToolNames": ["echo"],
            "scope": {"echo": {"$tool": "echo", "input": {"positional": ["number"], "constants": {"kind": "a"}}}},
        },
        {
            "id": "made", "globalName": "Made", "description": "Made.", "requiredToolNames": ["echo"],
            "createScope": true,
        },
    ]);
    place.install(&demo);
    let plugins = place.configured(&json!({"entries": {"demo": {"config": {"project": "p"}}}}));
    let ready = Ready::of(&place, plugins).await;
    let catalog = ready.run.executor.catalog();
    assert_eq!(catalog.namespaces().globals().collect::<Vec<_>>(), ["Fixed", "Made"]);
    let (id, input) = catalog.namespace_call("Fixed", &["echo"], &[json!(7)]).unwrap();
    assert_eq!((id.as_str(), &input), ("plugin:demo:echo", &json!({"number": 7, "kind": "a"})));
    let (_, input) = catalog.namespace_call("Made", &["echo"], &[json!("hi")]).unwrap();
    assert_eq!(input, json!({"text": "hi"}));
    assert!(place.recorded("demo").contains(r#"{"project": "p"}"#));
    // The scope is created once, and cleaned up when the plugin is disabled.
    let mut local = executor::run::LocalTools::default();
    ready.plugins.add_to(&mut local);
    local.make_ready(&crate::place::scope(), Duration::from_secs(5)).await;
    ready.plugins.stop().await;
    let record = place.recorded("demo");
    let cleaned = r#"cleanup {"scopes": [{"namespaceId": "made", "scope": {"agentId": "ada""#;
    assert!(record.contains(cleaned) && record.contains("shutdown"), "{record}");
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_settings_and_versions_replace_the_plugin_and_others_are_kept() {
    let place = Place::new().await;
    place.install(&manifest("one", "good"));
    place.install(&manifest("two", "good"));
    let first = place.plugins();
    let none = PluginsConfig::default();
    let (same, removed) = Plugins::load(&place.host, &none, &first).unwrap();
    assert!(same.are_same(&first) && removed.is_empty());
    let config = PluginsConfig::resolve(&json!({"entries": {"one": {"config": {"a": 1}}}})).unwrap();
    let (changed, removed) = Plugins::load(&place.host, &config, &first).unwrap();
    assert_eq!(removed.iter().map(|plugin| plugin.id()).collect::<Vec<_>>(), ["one"]);
    assert!(Arc::ptr_eq(changed.get("two").unwrap(), first.get("two").unwrap()));
    let before = first.get("two").unwrap().identity();
    let mut newer = manifest("two", "good");
    newer["version"] = json!("2.0.0");
    place.install(&newer);
    let (updated, removed) = Plugins::load(&place.host, &none, &first).unwrap();
    assert_eq!(removed.len(), 1);
    assert_ne!(updated.get("two").unwrap().identity(), before, "standing approvals do not hold for other code");
    place.host.folder.rollback("two", None).unwrap();
    let (back, _) = Plugins::load(&place.host, &none, &updated).unwrap();
    assert_eq!(back.get("two").unwrap().identity(), before);
    for excluding in [
        json!({"enabled": false}),
        json!({"allow": ["two"]}),
        json!({"deny": ["one"]}),
        json!({"entries": {"one": {"enabled": false}}}),
    ] {
        assert!(place.configured(&excluding).get("one").is_none(), "{excluding}");
    }
    place.host.folder.disable("one").unwrap();
    assert!(place.configured(&json!({"entries": {"one": {"enabled": true}}})).get("one").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_and_variables_are_checked_before_the_plugin_runs() {
    let place = Place::new().await;
    let mut demo = manifest("demo", "good");
    demo["configSchema"] = json!({"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]});
    demo["env"] = json!(["FAKE_TOKEN"]);
    place.install(&demo);
    let ready = place.ready().await;
    let message = ready.failed("plugin:demo:echo", json!({})).await;
    assert!(message.contains("plugins.entries.demo.config") && place.recorded("demo").is_empty(), "{message}");
    let set = Ready::of(&place, place.configured(&json!({"entries": {"demo": {"config": {"n": 1}}}}))).await;
    set.value("plugin:demo:echo", json!({})).await;
    let mut needy = manifest("needy", "good");
    needy["env"] = json!(["NOT_SET_ANYWHERE"]);
    place.install(&needy);
    let ready = place.ready().await;
    let message = ready.failed("plugin:needy:echo", json!({})).await;
    assert!(message.contains("`NOT_SET_ANYWHERE`"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn configured_variables_may_be_secrets_and_must_be_named_by_the_manifest() {
    let place = Place::new().await;
    let mut demo = manifest("demo", "good");
    demo["env"] = json!(["FAKE_TOKEN", "OTHER_TOKEN"]);
    place.install(&demo);
    let cases = [
        (
            json!({"FAKE_TOKEN": "a"}),
            Err("`OTHER_TOKEN`, which is not set; set it, or `plugins.entries.demo.env.OTHER_TOKEN`"),
        ),
        (
            json!({"OTHER_TOKEN": "${secret:unknown}"}),
            Err("`plugins.entries.demo.env.OTHER_TOKEN`: the secret `unknown`"),
        ),
        (json!({"OTHER_TOKEN": "${secret:known}", "PATH": "/x"}), Err("`plugins.entries.demo.env` sets `PATH`")),
        (json!({"OTHER_TOKEN": "${secret:known}!"}), Ok("t0ken s3cret!")),
        (json!({"OTHER_TOKEN": "${secret:known}", "FAKE_TOKEN": "${secret:known}?"}), Ok("s3cret? s3cret")),
    ];
    for (env, expected) in cases {
        let ready = Ready::of(&place, place.configured(&json!({"entries": {"demo": {"env": env}}}))).await;
        match expected {
            Err(why) => {
                let message = ready.failed("plugin:demo:echo", json!({})).await;
                assert!(message.contains(why), "{env}: {message}");
            }
            Ok(values) => {
                ready.value("plugin:demo:echo", json!({})).await;
                assert!(place.recorded("demo").contains(&format!("tokens {values}\n")), "{env}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_plugin_is_stopped_and_started_again_by_the_next_call() {
    let mut place = Place::new().await;
    place.host.options.idle_stop = Some(Duration::from_millis(100));
    place.install(&manifest("demo", "good"));
    let ready = place.ready().await;
    ready.value("plugin:demo:echo", json!({})).await;
    eventually("it is stopped", || ready.plugin("demo").status().state == "stopped").await;
    eventually("it was asked to exit", || place.recorded("demo").contains("shutdown")).await;
    ready.value("plugin:demo:echo", json!({})).await;
    assert_eq!(place.recorded("demo").matches("start ").count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trial_reports_start_hooks_and_scopes() {
    let place = Place::new().await;
    place.install(&with_hooks("good", "good"));
    place.install(&with_hooks("bad", "hook-lie"));
    place.install(&manifest("dead", "start-exit"));
    // Its hook would fail if it were asked.
    let mut narrow = with_hooks("narrow", "hook-lie");
    narrow["hooks"]["before_tool_call"]["tools"] = json!(["mcp:files:*"]);
    place.install(&narrow);
    let plugins = place.plugins();
    let good = try_plugin(plugins.get("good").unwrap()).await;
    assert!(good.is_ok() && good.hooks.len() == 2 && good.hooks[0].result == Ok("allows".to_owned()), "{good:?}");
    let bad = try_plugin(plugins.get("bad").unwrap()).await;
    assert!(!bad.is_ok() && bad.start.is_ok(), "{bad:?}");
    let unasked = try_start(plugins.get("bad").unwrap()).await;
    assert!(unasked.is_ok() && unasked.hooks.is_empty(), "{unasked:?}");
    let narrow = try_plugin(plugins.get("narrow").unwrap()).await;
    let results: Vec<&str> = narrow.hooks.iter().map(|trial| trial.result.as_deref().unwrap()).collect();
    assert_eq!(results, ["does not see it: its `tools` do not match", "answered"]);
    let dead = try_plugin(plugins.get("dead").unwrap()).await;
    assert!(dead.start.unwrap_err().contains("exited"));
    let good = plugins.get("good").unwrap();
    assert_eq!(good.try_tool("echo", json!({"a": 1})).await.unwrap().into_cell_value()["input"], json!({"a": 1}));
    assert!(good.try_tool("nothing", json!({})).await.unwrap_err().contains("no tool `nothing`"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trial_of_a_call_reports_what_each_hook_decides_and_calls_only_the_plugins_own_tool() {
    let place = Place::new().await;
    let mut narrow = with_hooks("good", "good");
    narrow["hooks"]["after_tool_call"]["tools"] = json!(["plugin:good:change"]);
    place.install(&narrow);
    place.install(&with_hooks("bad", "hook-lie"));
    let plugins = place.plugins();
    let (good, bad) = (plugins.get("good").unwrap(), plugins.get("bad").unwrap());
    let before = |result: &str| HookTrial { hook: "before_tool_call", result: Ok(result.to_owned()) };
    let after = |result: &str| HookTrial { hook: "after_tool_call", result: Ok(result.to_owned()) };
    let unseen = "does not see it: its `tools` do not match";
    for (tool, input, expected) in [
        ("mcp:files:write", json!({"text": "a secret"}), "blocks: it contains a secret"),
        ("mcp:files:write", json!({"old": "x"}), r#"changes the input: {"old":"new"}"#),
        ("openclaw:core:exec", json!({"plain": 1}), "allows"),
    ] {
        let trial = try_call(good, tool, input.clone()).await;
        assert_eq!(trial.hooks, [before(expected), after(unseen)], "{tool} {input}");
        assert!(trial.is_ok() && trial.result.is_none(), "{tool} {input}");
    }
    let asked = try_call(good, "mcp:files:write", json!({"text": "dangerous"})).await;
    assert!(asked.hooks[0].result.as_ref().unwrap().starts_with("requires approval: "), "{asked:?}");
    let long = try_call(good, "mcp:files:write", json!({"old": "x", "long": "y".repeat(3_000)})).await;
    assert!(long.hooks[0].result.as_ref().unwrap().chars().count() < 2_100, "{long:?}");
    // The plugin's own tool is called with the input as the hook changes it, unless the hook blocks the call.
    for name in ["echo", "plugin:good:echo"] {
        let called = try_call(good, name, json!({"old": "x"})).await;
        assert_eq!(called.result.unwrap().unwrap()["input"], json!({"old": "new"}), "{name}");
    }
    let blocked = try_call(good, "echo", json!({"text": "a secret"})).await;
    assert!(!blocked.is_ok() && blocked.result.unwrap().unwrap_err().contains("was not called"));
    assert_eq!(try_call(good, "plugin:good:change", json!({"plain": 1})).await.hooks[1], after("sees it"));
    for wrong in ["nothing", "plugin:good", "\u{202e}"] {
        let wrong = try_call(good, wrong, json!({})).await;
        assert!(wrong.result.unwrap().unwrap_err().contains("the plugin has no tool"));
    }
    let failed = try_call(bad, "mcp:files:write", json!({})).await;
    assert!(!failed.is_ok() && failed.hooks[0].result.is_err(), "{failed:?}");
}
