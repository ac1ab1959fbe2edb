//! Limits of output, files and concurrent commands.

use std::fs;

use contract::limits::{MAX_QUEUED_SHELL_COMMANDS, MAX_SHELL_COMMANDS, MAX_SHELL_OPEN_FILES, MAX_SHELL_OUTPUT_BYTES};
use executor::{Outcome, ProgressSink};
use serde_json::json;

use crate::lab::{Lab, eventually};

pub(crate) fn of_much_output_start_and_end_are_kept() {
    let details = Lab::new().run("echo first; yes | head -c 30000000; echo last");
    assert_eq!(details["totalBytes"]["stdout"], 30_000_011);
    assert_eq!(details["truncated"], true);
    let stdout = details["stdout"].as_str().unwrap();
    assert!(stdout.starts_with("first\n") && stdout.ends_with("last\n"));
    assert!(stdout.len() < MAX_SHELL_OUTPUT_BYTES + 100, "{}", stdout.len());
    let omitted = details["omittedBytes"]["stdout"].as_u64().unwrap();
    assert!(stdout.contains(&format!("[… {omitted} bytes are omitted …]")));
}

pub(crate) fn binary_output_is_escaped() {
    let details = Lab::new().run("head -c 100000 /dev/urandom; printf '\\xff\\x00' >&2");
    assert_eq!(details["stderr"], "\\xff\0");
    assert!(details["escaped"].as_str().unwrap().contains("\\xNN"), "{}", details["escaped"]);
    assert_eq!(details["totalBytes"]["stdout"], 100_000);
    assert!(serde_json::from_str::<serde_json::Value>(&details.to_string()).is_ok());
}

fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * rustix::param::page_size() as u64
}

pub(crate) fn a_flood_of_output_takes_bounded_memory() {
    let lab = Lab::new();
    let before = resident_bytes();
    let details = lab.details(&json!({"command": "yes >&2 & cat /dev/zero", "timeout": 3}));
    assert_eq!(details["timedOut"], true);
    let total = details["totalBytes"]["stdout"].as_u64().unwrap() + details["totalBytes"]["stderr"].as_u64().unwrap();
    assert!(total > 10_000_000, "{total}");
    // Other tests run at the same time.
    assert!(resident_bytes() < before + (100 << 20), "{before} {}", resident_bytes());
}

pub(crate) fn files_and_core_dumps_are_limited() {
    let lab = Lab::new();
    assert_ne!(lab.run("truncate -s 5G big")["exitCode"], 0);
    assert_eq!(lab.succeeds("ulimit -c; ulimit -n"), format!("0\n{MAX_SHELL_OPEN_FILES}"));
    assert_ne!(lab.run("ulimit -n 100000")["exitCode"], 0);
}

pub(crate) fn commands_beyond_the_limit_wait_or_are_refused() {
    let lab = Lab::new();
    let input = json!({"command": "touch started-$$; while ! [ -e go ]; do sleep 0.05; done"});
    let sink = ProgressSink::default();
    lab.runtime.block_on(async {
        let mut calls: Vec<_> = (0..MAX_SHELL_COMMANDS + MAX_QUEUED_SHELL_COMMANDS)
            .map(|_| Box::pin(lab.shell.run(&input, &sink)))
            .collect();
        // Each call is polled until it runs or waits.
        for call in &mut calls {
            let polled = tokio::time::timeout(std::time::Duration::from_millis(5), call).await;
            assert!(polled.is_err(), "{polled:?}");
        }
        let started = || fs::read_dir(lab.path("root")).unwrap().count();
        tokio::task::block_in_place(|| eventually("all started", || started() == MAX_SHELL_COMMANDS));
        let refused = lab.shell.run(&input, &sink).await;
        assert!(matches!(&refused, Outcome::Failed(why) if why.contains("are waiting")), "{refused:?}");
        // Waiting calls are cancelled, and a running one makes room.
        calls.truncate(MAX_SHELL_COMMANDS + 1);
        fs::write(lab.path("root/go"), "").unwrap();
        for call in calls {
            assert!(!call.await.is_error());
        }
    });
}
