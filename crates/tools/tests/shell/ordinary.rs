//! What ordinary commands can do.

use std::fs;
use std::sync::{Arc, Mutex};

use contract::config::{RootAccess, ShellTool};
use executor::{Outcome, ProgressSink};
use serde_json::{Value, json};
use tools::core::{Root, Roots, Shell, ShellSettings};

use crate::lab::{Lab, SECRET};

pub(crate) fn exit_code_and_both_streams_are_returned() {
    let lab = Lab::new();
    let details = lab.run("echo out; echo err >&2; exit 3");
    assert_eq!((&details["exitCode"], &details["timedOut"]), (&json!(3), &json!(false)), "{details}");
    assert_eq!((&details["stdout"], &details["stderr"]), (&json!("out\n"), &json!("err\n")));
    assert_eq!((&details["truncated"], &details["totalBytes"]), (&json!(false), &json!({"stdout": 4, "stderr": 4})));
    assert_eq!(details["cwd"], lab.path("root").to_str().unwrap());
    assert_eq!(details["confined"], Value::Null);
    assert_eq!(lab.run("no-such-program-here")["exitCode"], 127);
}

pub(crate) fn a_command_can_change_its_folders() {
    let lab = Lab::new();
    let script = "set -e; mkdir -p a/b c; echo one > a/b/file; mv a/b/file c/moved; ln c/moved a/hard; ln -s hard a/soft; \
                  chmod +x c/moved; cat a/soft; printf '#!/bin/sh\\necho ran' > run; chmod +x run; ./run; rm -r a; \
                  cat <(echo substituted); mkfifo pipe; ls | wc -l; truncate -s 0 c/moved";
    assert_eq!(lab.succeeds(script), "one\nran\nsubstituted\n3");
    assert!(lab.path("root/c/moved").exists() && !lab.path("root/a").exists());
    let inner = lab.details(&json!({"command": "pwd", "workdir": "c"}));
    assert_eq!(inner["stdout"], format!("{}\n", lab.path("root/c").display()));
}

pub(crate) fn home_and_temporary_files_are_private_and_removed() {
    let lab = Lab::new();
    let printed = lab.succeeds("set -e; cd; pwd; echo x > \"$TMPDIR/file\"; mktemp; ls -A ~; echo $TMPDIR");
    let lines: Vec<&str> = printed.lines().collect();
    let temporary = lab.path("temporary");
    assert!(lines.len() == 3 && lines.iter().all(|line| line.starts_with(temporary.to_str().unwrap())), "{printed}");
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
    lab.succeeds("mkdir -p $TMPDIR/a/b; chmod 0 $TMPDIR/a");
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
}

pub(crate) fn variables_are_set_and_standard_input_is_empty() {
    let lab = Lab::new();
    let details = lab.details(&json!({"command": "echo $A-$TERM; cat; echo end", "env": {"A": "b c"}, "timeout": 20}));
    assert_eq!(details["stdout"], "b c-dumb\nend\n", "{details}");
    let refused = lab.call(&json!({"command": "ls", "env": {"LD_PRELOAD": "/x.so"}}));
    assert!(matches!(&refused, Outcome::Failed(why) if why.contains("LD_PRELOAD")), "{refused:?}");
}

pub(crate) fn a_command_that_ends_by_a_signal_names_it() {
    let details = Lab::new().run("kill -SEGV $$");
    assert_eq!((&details["exitCode"], &details["signal"]), (&Value::Null, &json!("SIGSEGV")), "{details}");
}

pub(crate) fn progress_is_sent_at_a_limited_rate() {
    let lab = Lab::new();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = {
        let seen = Arc::clone(&seen);
        ProgressSink::to(move |update: Value| seen.lock().unwrap().push(update))
    };
    let input = json!({"command": "for i in $(seq 300); do echo line $i; sleep 0.01; done"});
    let began = std::time::Instant::now();
    let outcome = lab.runtime.block_on(lab.shell.run(&input, &sink));
    assert!(!outcome.is_error(), "{outcome:?}");
    let seen = seen.lock().unwrap();
    let most = began.elapsed().as_millis() as usize / 500 + 2;
    assert!((2..=most).contains(&seen.len()), "{} of {most}: {seen:?}", seen.len());
    assert!(seen.iter().all(|update| update["message"].as_str().unwrap().starts_with("line ")), "{seen:?}");
    let bytes: Vec<u64> = seen.iter().map(|update| update["stdoutBytes"].as_u64().unwrap()).collect();
    assert!(bytes.is_sorted(), "{bytes:?}");
}

pub(crate) fn a_read_only_root_can_be_read_but_not_changed() {
    let lab = Lab::with(|settings, roots| {
        let outside = settings.temporary.parent().unwrap().join("outside");
        roots.push(Root::open(&outside, RootAccess::Read).unwrap()).unwrap();
    });
    assert_eq!(lab.succeeds("cat $LAB/outside/secret"), SECRET);
    for change in ["echo x > $LAB/outside/secret", "touch $LAB/outside/new", "rm $LAB/outside/secret"] {
        assert_ne!(lab.run(change)["exitCode"], 0, "{change}");
    }
    assert_eq!(fs::read_to_string(lab.path("outside/secret")).unwrap(), SECRET);
    let inside = lab.details(&json!({"command": "pwd", "workdir": lab.path("outside")}));
    assert_eq!(inside["exitCode"], 0, "{inside}");
}

pub(crate) fn a_folder_that_the_user_names_can_be_read() {
    let lab = Lab::with(|settings, _| {
        let outside = settings.temporary.parent().unwrap().join("outside");
        settings.allow_reading(&outside).unwrap();
        assert!(settings.allow_reading(&outside.join("missing")).is_err());
    });
    assert_eq!(lab.succeeds("cat $LAB/outside/secret"), SECRET);
    assert_ne!(lab.run("echo x >> $LAB/outside/secret")["exitCode"], 0);
}

pub(crate) fn an_unusable_folder_is_refused_with_the_reason() {
    let lab = Lab::new();
    for workdir in ["missing", "..", "/etc", "../outside"] {
        let refused = lab.call(&json!({"command": "ls", "workdir": workdir}));
        assert!(matches!(&refused, Outcome::Failed(why) if why.contains("folder")), "{workdir}: {refused:?}");
    }
    let settings = ShellSettings::new(&ShellTool::default(), std::env::temp_dir());
    let refused = Shell::new(settings, &Roots::default()).unwrap_err();
    assert!(refused.contains("tools.fs.roots"), "{refused}");
}
