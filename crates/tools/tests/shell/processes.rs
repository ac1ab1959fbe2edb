//! No process of a command outlives it.

use std::fs;
use std::time::{Duration, Instant};

use contract::limits::MAX_SHELL_PROCESSES;
use executor::{Outcome, ProgressSink};
use serde_json::json;

use crate::lab::{Lab, eventually, processes_with};

pub(crate) fn a_command_that_ignores_signals_ends_at_its_timeout() {
    let lab = Lab::new();
    let began = Instant::now();
    let stubborn =
        "trap '' TERM HUP INT QUIT; echo on; (trap '' TERM; exec sleep 7101.25) & while :; do sleep 7101.25; done";
    let details = lab.details(&json!({"command": stubborn, "timeout": 1}));
    assert_eq!((&details["timedOut"], &details["exitCode"]), (&json!(true), &json!(null)), "{details}");
    assert_eq!(details["stdout"], "on\n");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(processes_with("7101.25"), [""; 0]);
}

pub(crate) fn background_processes_end_with_the_command() {
    let lab = Lab::new();
    let began = Instant::now();
    let details = lab.run(
        "sleep 7102.25 & \
         nohup sleep 7102.25 > /dev/null 2>&1 & \
         setsid sleep 7102.25 & \
         (setsid sh -c 'trap \"\" TERM; sleep 7102.25 & sleep 7102.25' > /dev/null 2>&1 &) ; \
         perl -MPOSIX -e 'fork and exit; setsid(); fork and exit; exec \"sleep\", \"7102.25\"'; \
         disown -a; sleep 0.3; echo done",
    );
    assert_eq!((&details["exitCode"], &details["stdout"]), (&json!(0), &json!("done\n")), "{details}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(processes_with("7102.25"), [""; 0]);
}

pub(crate) fn too_many_processes_end_the_command() {
    let lab = Lab::new();
    // Four thousand processes, each in its own group.
    let bomb = "perl -e '$0 = \"bomb-7103.25\"; for (1..12) { fork; setpgrp } sleep 60'";
    let outcome = lab.call(&json!({"command": bomb, "timeout": 60}));
    let most = format!("more than {MAX_SHELL_PROCESSES} processes");
    assert!(matches!(&outcome, Outcome::Failed(why) if why.contains(&most)), "{outcome:?}");
    assert_eq!(processes_with("7103.25"), [""; 0]);
}

pub(crate) fn processes_that_multiply_in_their_own_sessions_are_ended() {
    let lab = Lab::new();
    // A chain: each process starts the next one in a new session, ignores signals and ends. It never has many processes.
    let chain = "exec perl -MPOSIX -e '$SIG{TERM} = $SIG{HUP} = \"IGNORE\"; $0 = \"chain-7104.25\"; \
                 while (time < $^T + 60) { select undef, undef, undef, 0.002; fork and exit; setsid() }' > /dev/null 2>&1 &";
    let details = lab.details(&json!({"command": format!("{chain} sleep 1; echo done"), "timeout": 30}));
    assert_eq!(details["stdout"], "done\n", "{details}");
    assert_eq!(processes_with("7104.25"), [""; 0]);
}

pub(crate) fn dropping_the_call_ends_the_command_and_removes_its_files() {
    let lab = Lab::new();
    let input = json!({"command": "touch $TMPDIR/x started; setsid sleep 7105.25 & sleep 7105.25"});
    let sink = ProgressSink::default();
    lab.runtime.block_on(async {
        let call = lab.shell.run(&input, &sink);
        assert!(tokio::time::timeout(Duration::from_secs(2), call).await.is_err());
    });
    assert!(lab.path("root/started").exists());
    eventually("the processes end", || processes_with("7105.25").is_empty());
    eventually("the folder is removed", || fs::read_dir(lab.path("temporary")).unwrap().count() == 0);
}
