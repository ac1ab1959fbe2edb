//! Plugins that crash, hang, lie and flood: each harms only its own calls.

use std::time::{Duration, Instant};

use executor::{CallEnd, DropCause, Outcome};
use serde_json::{Value, json};

use crate::place::{PATIENCE, Place, Ready, eventually, manifest, with_hooks};

/// The longest that a call of another plugin may take meanwhile, on a busy machine.
const NEIGHBOUR_LIMIT: Duration = Duration::from_secs(2);

/// What is expected of a call to a misbehaving plugin.
enum Expected {
    Fails(&'static str),
    /// The result exceeds a limit.
    Drops(&'static str),
    Returns(Value),
    Unknown,
}

use Expected::{Drops, Fails, Returns, Unknown};

#[tokio::test(flavor = "multi_thread")]
async fn each_attack_has_a_safe_outcome_and_neighbours_are_not_affected() {
    let table = [
        ("garbage", "echo", Fails("10 lines in a row that are not JSON-RPC")),
        ("garbage", "change", Unknown),
        ("exit", "echo", Fails("failed: the plugin exited with code 3")),
        ("exit", "change", Unknown),
        ("exit-once", "echo", Returns(json!("second time"))),
        ("exit-once", "keyed", Returns(json!("second time"))),
        ("exit-once", "change", Unknown),
        ("exit-for-good", "keyed", Fails("failed: the plugin ended during the call and could not be called again")),
        ("hang", "echo", Fails("no answer within 3000 ms")),
        ("hang", "change", Fails("it may have taken effect")),
        ("long", "echo", Drops("longer than 8388608 bytes; ask it for less")),
        ("long", "change", Drops("longer than 8388608 bytes; ask it for less")),
        ("deep", "echo", Drops("levels deep")),
        ("many", "echo", Drops("JSON values")),
        ("lie", "echo", Returns(json!("true"))),
        ("wrong-output", "typed", Fails("violates the output schema")),
        ("no-result", "echo", Fails("not a JSON-RPC response")),
        ("asks", "echo", Fails("requests; a plugin only answers")),
        ("flood", "echo", Returns(json!("after the flood"))),
        ("flood-stderr", "echo", Returns(json!("after the flood"))),
        ("endless-line", "echo", Drops("longer than 167772160 bytes")),
        ("start-exit", "echo", Fails("could not be started")),
        ("start-other", "echo", Fails("protocol version 99")),
        ("never-reads", "echo", Fails("no answer within")),
    ];
    for (mode, tool, expected) in table {
        let place = Place::new().await;
        place.install(&manifest("bad", mode));
        place.install(&manifest("good", "good"));
        let ready = place.ready().await;
        // The neighbour runs before the attack begins.
        ready.value("plugin:good:echo", json!({})).await;
        let attack = async {
            match (ready.call(&format!("plugin:bad:{tool}"), json!({})).await, &expected) {
                (Outcome::Failed(message), Fails(part)) => assert!(message.contains(part), "{mode}: {message}"),
                (Outcome::Dropped(dropped), Drops(part)) => {
                    assert!(
                        dropped.message.contains(part) && dropped.cause == DropCause::TooLarge,
                        "{mode}: {dropped:?}"
                    );
                }
                (Outcome::Returned(returned), Returns(value)) => {
                    assert_eq!(returned.into_cell_value(), *value, "{mode}")
                }
                (Outcome::Unknown, Unknown) => {}
                (other, _) => panic!("{mode} {tool}: {other:?}"),
            }
        };
        let neighbour = async {
            for _ in 0..10 {
                let began = Instant::now();
                assert_eq!(ready.value("plugin:good:echo", json!({"a": 1})).await["input"], json!({"a": 1}), "{mode}");
                assert!(began.elapsed() < NEIGHBOUR_LIMIT, "{mode}: {:?}", began.elapsed());
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, async { tokio::join!(attack, neighbour) }).await.unwrap();
    }
}

/// Returns the resident memory of this process in MiB.
fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() / 1024
}

#[tokio::test(flavor = "multi_thread")]
async fn floods_of_several_plugins_do_not_grow_the_hosts_memory() {
    let place = Place::new().await;
    let modes = ["flood", "flood-stderr", "endless-line", "long", "many", "deep"];
    for mode in modes {
        place.install(&manifest(mode, mode));
    }
    let ready = place.ready().await;
    let before = resident_mib();
    let calls = modes.iter().flat_map(|mode| (0..4).map(move |_| format!("plugin:{mode}:echo")));
    let calls = calls.map(|id| {
        let ready = &ready;
        async move { drop(ready.call(&id, json!({})).await) }
    });
    let (done, stop) = (futures_util::future::join_all(calls), std::sync::atomic::AtomicBool::new(false));
    let done = async {
        done.await;
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    };
    let watch = async {
        let mut most = before;
        while !stop.load(std::sync::atomic::Ordering::Relaxed) {
            most = most.max(resident_mib());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        most
    };
    let ((), most) = tokio::join!(done, watch);
    assert!(most.saturating_sub(before) < 256, "from {before} to {most} MiB");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_that_fails_denies_the_call_and_names_its_plugin() {
    let table = [
        ("hook-slow", "no answer within 1500 ms"),
        ("hook-exit", "the plugin exited with code 4"),
        ("hook-lie", "unknown key"),
        ("hook-error", "cannot decide"),
        ("hook-garbage", "no answer within"),
        ("start-exit", "could not be started"),
        ("start-hang", "not ready in time"),
        ("never-reads", "no answer within"),
    ];
    for (mode, expected) in table {
        let place = Place::new().await;
        place.install(&with_hooks("guard", mode));
        place.install(&manifest("good", "good"));
        let ready = place.ready().await;
        let began = Instant::now();
        let message = ready.failed("plugin:good:echo", json!({})).await;
        let says = message.contains("`guard`") && message.contains("denied") && message.contains(expected);
        assert!(says, "{mode}: {message}");
        assert!(began.elapsed() < Duration::from_secs(5), "{mode}: {:?}", began.elapsed());
        assert!(!place.recorded("good").contains("call"), "{mode}: the tool was called");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_after_hook_cannot_change_a_result_or_hold_it_up_for_long() {
    for mode in ["hook-after-lie", "hook-after-slow"] {
        let place = Place::new().await;
        place.install(&with_hooks("guard", mode));
        let ready = place.ready().await;
        let began = Instant::now();
        assert_eq!(ready.value("plugin:guard:echo", json!({"a": 1})).await["input"], json!({"a": 1}));
        assert!(began.elapsed() < Duration::from_secs(5), "{mode}: {:?}", began.elapsed());
        assert!(
            place.recorded("guard").contains(r#"after {"result": {"input": {"a": 1}"#),
            "{}",
            place.recorded("guard")
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_words_of_a_plugin_that_exits_are_known_when_its_call_ends() {
    for _ in 0..5 {
        let place = Place::new().await;
        place.install(&manifest("loud", "exit-loudly"));
        let ready = place.ready().await;
        assert_eq!(ready.call("plugin:loud:change", json!({})).await, Outcome::Unknown);
        let status = ready.plugin("loud").status();
        assert_eq!(status.last_failure.as_deref(), Some("the plugin exited with code 3"));
        assert_eq!(status.stderr.as_deref(), Some("boom"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_keeps_failing_is_given_up_and_its_hook_still_denies() {
    let place = Place::new().await;
    place.install(&with_hooks("guard", "start-exit"));
    let ready = place.ready().await;
    for _ in 0..3 {
        ready.failed("plugin:guard:echo", json!({})).await;
    }
    let began = Instant::now();
    let message = ready.failed("plugin:guard:echo", json!({})).await;
    assert!(message.contains("failed 3 times in a row"), "{message}");
    assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
    assert_eq!(place.recorded("guard").matches("start").count(), 3);
    assert!(ready.plugin("guard").status().stderr.unwrap().contains("no licence found"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_whose_files_changed_is_not_started_and_its_hook_denies() {
    let place = Place::new().await;
    place.install(&with_hooks("guard", "good"));
    place.install(&manifest("good", "good"));
    let before = place.ready().await;
    // Changed after it was loaded and before it was started.
    let installed = place.host.folder.get("guard").unwrap();
    std::fs::write(installed.folder.join("fake.py"), "import os; os.system('touch /tmp/never')").unwrap();
    let message = before.failed("plugin:good:echo", json!({})).await;
    assert!(message.contains("have changed since it was added"), "{message}");
    // Loaded after the change: even the manifest is not trusted, so all calls are denied.
    let after = place.ready().await;
    assert!(after.plugins.get("guard").is_none() && after.plugins.unusable()[0].denies_calls);
    let message = after.failed("plugin:good:echo", json!({})).await;
    assert!(message.contains("all calls are denied") && message.contains("`guard`"), "{message}");
    // A plugin without a deciding hook is left out, and denies nothing.
    let installed = place.host.folder.get("good").unwrap();
    std::fs::write(installed.folder.join("extra"), "").unwrap();
    place.host.folder.remove("guard").unwrap();
    let left = place.plugins();
    assert!(left.iter().next().is_none() && !left.unusable()[0].denies_calls);
}

#[tokio::test(flavor = "multi_thread")]
async fn disabling_a_plugin_cancels_its_calls_and_ends_its_processes() {
    let place = Place::new().await;
    place.install(&manifest("slow", "hang"));
    let ready = place.ready().await;
    let calling = ready.call("plugin:slow:change", json!({}));
    let retiring = async {
        eventually("the call arrives", || place.recorded("slow").contains("call change")).await;
        let began = Instant::now();
        ready.plugin("slow").retire().await;
        began.elapsed()
    };
    let (outcome, took) = tokio::join!(calling, retiring);
    assert_eq!(outcome, Outcome::Unknown);
    assert!(took < Duration::from_secs(5), "{took:?}");
    let message = ready.failed("plugin:slow:echo", json!({})).await;
    assert!(message.contains("disabled, removed or replaced"), "{message}");
    let pid = place.recorded("slow").lines().next().unwrap().split(' ').nth(1).unwrap().to_owned();
    eventually("the process has ended", || !std::path::Path::new(&format!("/proc/{pid}")).exists()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scope_that_steals_a_tool_or_never_comes_hides_only_its_namespace() {
    for mode in ["scope-bad", "scope-slow"] {
        let place = Place::new().await;
        let mut bad = manifest("bad", mode);
        bad["namespaces"] = json!([{
            "id": "bad", "globalName": "Bad", "description": "Bad.", "requiredToolNames": ["echo"], "createScope": true,
        }]);
        place.install(&bad);
        let mut good = manifest("good", "good");
        good["namespaces"] = json!([{
            "id": "good", "globalName": "Good", "description": "Good.", "requiredToolNames": ["echo"],
            "scope": {"echo": {"$tool": "echo"}},
        }]);
        place.install(&good);
        let began = Instant::now();
        let ready = place.ready().await;
        assert!(began.elapsed() < Duration::from_secs(8), "{mode}: {:?}", began.elapsed());
        let globals: Vec<&str> = ready.run.executor.catalog().namespaces().globals().collect();
        assert_eq!(globals, ["Good"], "{mode}");
        assert_eq!(ready.run.refused_namespaces.len(), 1, "{mode}");
        assert!(ready.run.executor.catalog().get("plugin:bad:echo").is_some());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_cannot_claim_the_ids_globals_or_names_of_others() {
    let place = Place::new().await;
    let source = place.source("x");
    std::fs::create_dir_all(&source).unwrap();
    for (id, tool) in [("core", "echo"), ("mcp", "echo"), ("x", "exec"), ("x", "web-fetch")] {
        let mut claiming = manifest(id, "good");
        claiming["tools"][0]["name"] = json!(tool);
        std::fs::write(source.join("cellmate.plugin.json"), claiming.to_string()).unwrap();
        assert!(tools::plugins::inspect(&source).is_err(), "{id} {tool}");
    }
    // Two plugins with the same global: the first one in the order of ids keeps it.
    for id in ["one", "two"] {
        let mut claiming = manifest(id, "good");
        claiming["namespaces"] = json!([{
            "id": "n", "globalName": "Same", "description": "d", "requiredToolNames": ["echo"], "scope": {"who": id},
        }]);
        place.install(&claiming);
    }
    let mut local = executor::run::LocalTools::default();
    let problems = place.plugins().add_to(&mut local);
    assert!(problems.len() == 1 && problems[0].contains("plugin `two`"), "{problems:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_calls_at_once_are_answered_and_none_is_lost() {
    let place = Place::new().await;
    place.install(&manifest("good", "good"));
    let ready = place.ready().await;
    let calls = (0..200).map(|number| ready.value("plugin:good:echo", json!({"number": number})));
    let values = futures_util::future::join_all(calls).await;
    for (number, value) in values.iter().enumerate() {
        assert_eq!(value["input"]["number"], number);
    }
    assert_eq!(place.recorded("good").matches("start").count(), 1);
    let parked = ready.asking(&["plugin:good:change"]);
    let asked = parked
        .call_directly(&place.store, "t", "plugin:good:change", json!({}), executor::ProgressSink::default())
        .await
        .unwrap();
    assert!(matches!(asked.end, CallEnd::Parked(_)));
    drop(Ready::of(&place, place.plugins()).await);
}
