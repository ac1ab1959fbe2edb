//! Attacks on the confinement of the file tools. Each has a safe outcome, with both ways of opening files.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};
use serde_json::{Value, json};

use crate::files::{BOTH, World};

/// Calls every tool with a path. None may succeed, reveal the secret, or create anything outside.
async fn refused_everywhere(world: &World, path: &str) {
    let patch = |section: &str| json!({"input": format!("*** Begin Patch\n{section}\n*** End Patch")});
    let calls: Vec<(&str, Value)> = vec![
        ("read", json!({"path": path})),
        ("ls", json!({"path": path})),
        ("find", json!({"pattern": "*", "path": path})),
        ("grep", json!({"pattern": ".", "path": path})),
        ("write", json!({"path": path, "content": "x"})),
        ("edit", json!({"path": path, "oldText": "SECRET", "newText": "x"})),
        ("apply_patch", patch(&format!("*** Add File: {path}\n+x"))),
        ("apply_patch", patch(&format!("*** Delete File: {path}"))),
        ("apply_patch", patch(&format!("*** Update File: {path}\n@@\n-SECRET\n+x"))),
        ("apply_patch", patch(&format!("*** Update File: own\n*** Move to: {path}\n@@\n-own\n+moved"))),
    ];
    for (tool, input) in calls {
        match world.call(tool, input).await {
            Err(message) => assert!(!message.contains("SECRET\n"), "{tool} {path}: {message}"),
            Ok(returned) => panic!("{tool} {path:?}: {returned:?}"),
        }
    }
    assert_eq!(std::fs::read_to_string(world.beside("outside/secret")).unwrap(), "SECRET\n", "{path}");
    assert_eq!(std::fs::read_dir(world.beside("outside")).unwrap().count(), 1, "{path}");
    assert_eq!(world.content("own"), "own\n", "{path}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_path_leads_outside_the_roots() {
    for resolver in BOTH {
        let world = World::with(resolver).await;
        world.put("own", "own\n");
        world.put("deep/folder/x", "");
        let outside = world.beside("outside");
        let outside = outside.to_str().unwrap();
        for (link, target) in [
            ("relative", "../outside"),
            ("absolute", outside),
            ("system", "/"),
            ("process", "/proc/self/root"),
            ("current", "/proc/self/cwd"),
            ("deep/up", "../../outside"),
            ("deep/folder/twice", "../up"),
            ("descriptor", "/proc/self/fd/0"),
        ] {
            symlink(target, world.path(link)).unwrap();
        }
        symlink(format!("{outside}/secret"), world.path("file-link")).unwrap();
        symlink("../outside/secret", world.path("relative-file-link")).unwrap();
        symlink("../outside/not-yet", world.path("dangling")).unwrap();
        let magic = format!("process{outside}/secret");
        let absolute = format!("{outside}/secret");
        let dots = format!("deep/../../outside/{}", "secret");
        let paths = [
            "../outside/secret",
            "./../outside/secret",
            "deep/folder/../../../outside/secret",
            dots.as_str(),
            absolute.as_str(),
            "/etc/passwd",
            "/proc/self/root/etc/passwd",
            "/proc/self/environ",
            "/dev/zero",
            "//etc/passwd",
            "relative/secret",
            "absolute/secret",
            "system/etc/passwd",
            magic.as_str(),
            "current/Cargo.toml",
            "deep/up/secret",
            "deep/folder/twice/secret",
            "descriptor",
            "file-link",
            "relative-file-link",
            "dangling",
            // Characters that look like separators or dots are plain characters of a name that does not exist.
            "\u{2025}/outside/secret",
            "..\u{2215}outside\u{2215}secret",
            "..%2foutside%2fsecret",
            "..\\outside\\secret",
            "~/secret",
            "~root/secret",
            "file:///etc/passwd",
        ];
        for path in paths {
            // New names inside the root may be created; that is not an attack.
            let is_new_name = ["\u{2025}", "..\u{2215}", "..%2f", "..\\", "~root", "file:"]
                .iter()
                .any(|start| path.starts_with(start));
            if is_new_name {
                assert!(world.err("read", json!({"path": path})).await.contains("does not exist"), "{path}");
            } else {
                refused_everywhere(&world, path).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_that_no_file_can_have_is_refused() {
    let world = World::new().await;
    let long_name = "n".repeat(256);
    let long_path = "d/".repeat(3_000);
    let deep_path = "d/".repeat(300);
    for path in ["", "a\0b", long_name.as_str(), long_path.as_str(), deep_path.as_str()] {
        for (tool, input) in [("read", json!({"path": path})), ("write", json!({"path": path, "content": "x"}))] {
            assert!(world.call(tool, input).await.is_err(), "{tool} {} bytes", path.len());
        }
    }
    assert!(world.names().is_empty(), "{:?}", world.names());
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_pipes_and_sockets_are_never_opened() {
    for resolver in BOTH {
        let world = World::with(resolver).await;
        world.put("own", "own\n");
        mknodat(CWD, world.path("pipe"), FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
        let _listener = UnixListener::bind(world.path("socket")).unwrap();
        let mut special = vec!["pipe", "socket"];
        // Only the superuser can create a device.
        let zero = rustix::fs::makedev(1, 5);
        if mknodat(CWD, world.path("device"), FileType::CharacterDevice, Mode::from_raw_mode(0o666), zero).is_ok() {
            special.push("device");
        }
        let began = Instant::now();
        for path in &special {
            refused_everywhere(&world, path).await;
        }
        // A search goes past them.
        let found = world.ok("grep", json!({"pattern": "own"})).await;
        assert_eq!(found["matches"].as_array().unwrap().len(), 1);
        assert!(began.elapsed() < Duration::from_secs(20), "nothing waits for a writer: {:?}", began.elapsed());
        for path in special {
            assert!(!std::fs::symlink_metadata(world.path(path)).unwrap().is_file(), "{path} was replaced");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writing_through_a_hard_link_leaves_the_other_file_alone() {
    let world = World::new().await;
    std::fs::hard_link(world.beside("outside/secret"), world.path("linked")).unwrap();
    world.ok("write", json!({"path": "linked", "content": "mine"})).await;
    std::fs::remove_file(world.path("linked")).unwrap();
    std::fs::hard_link(world.beside("outside/secret"), world.path("linked")).unwrap();
    world.ok("edit", json!({"path": "linked", "oldText": "SECRET", "newText": "mine"})).await;
    assert_eq!(world.content("linked"), "mine\n");
    assert_eq!(std::fs::read_to_string(world.beside("outside/secret")).unwrap(), "SECRET\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn links_are_not_written_through_and_name_their_target() {
    let world = World::new().await;
    world.put("AGENTS.md", "rules\n");
    symlink("AGENTS.md", world.path("CLAUDE.md")).unwrap();
    assert_eq!(world.ok("read", json!({"path": "CLAUDE.md"})).await["text"], "rules\n");
    for (tool, input) in [
        ("write", json!({"path": "CLAUDE.md", "content": "x"})),
        ("edit", json!({"path": "CLAUDE.md", "oldText": "rules", "newText": "x"})),
    ] {
        let message = world.err(tool, input).await;
        assert!(message.contains("is a symbolic link to `AGENTS.md`"), "{message}");
    }
    assert_eq!(world.content("AGENTS.md"), "rules\n");
    assert!(std::fs::symlink_metadata(world.path("CLAUDE.md")).unwrap().is_symlink());
}

/// Exchanges a folder and a link to the outside as fast as possible, until it is dropped.
struct Swapper {
    done: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<usize>>,
}

impl Swapper {
    fn start(world: &World, folder: &str, link: &str) -> Self {
        let (one, other) = (world.path(folder), world.path(link));
        let done = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&done);
        let thread = std::thread::spawn(move || {
            let mut swaps = 0;
            while !ended.load(Ordering::Relaxed) {
                if renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).is_ok() {
                    swaps += 1;
                }
            }
            swaps
        });
        Self { done, thread: Some(thread) }
    }

    fn stop(mut self) -> usize {
        self.done.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_folder_that_is_swapped_with_a_link_under_load_never_leads_outside() {
    for resolver in BOTH {
        let world = World::with(resolver).await;
        world.put("a/swap/secret", "inside\n");
        symlink("../../outside", world.path("a/link")).unwrap();
        let swapper = Swapper::start(&world, "a/swap", "a/link");
        let (mut reached, mut refused) = (0, 0);
        for round in 0..100 {
            let name = format!("a/swap/new{}", round % 5);
            let patch = "*** Begin Patch\n*** Update File: a/swap/secret\n@@\n-SECRET\n+patched\n*** End Patch";
            let calls = [
                ("read", json!({"path": "a/swap/secret"})),
                ("ls", json!({"path": "a/swap"})),
                ("grep", json!({"pattern": "SECRET", "path": "a"})),
                ("find", json!({"pattern": "secret", "path": "a"})),
                ("write", json!({"path": name, "content": "x"})),
                ("edit", json!({"path": "a/swap/secret", "oldText": "SECRET", "newText": "edited"})),
                ("apply_patch", json!({"input": patch})),
            ];
            for (tool, input) in calls {
                match world.call(tool, input).await {
                    Ok(returned) => {
                        let shown = format!("{:?}", returned);
                        assert!(
                            !shown.contains("SECRET") || tool == "grep" && shown.contains("matches\": Array []"),
                            "{tool}: {shown}"
                        );
                        reached += 1;
                    }
                    Err(message) => {
                        assert!(!message.contains("SECRET\n"), "{tool}: {message}");
                        refused += 1;
                    }
                }
            }
            assert_eq!(std::fs::read_to_string(world.beside("outside/secret")).unwrap(), "SECRET\n");
            assert_eq!(
                std::fs::read_dir(world.beside("outside")).unwrap().count(),
                1,
                "{resolver:?}: nothing was created outside"
            );
        }
        let swaps = swapper.stop();
        assert!(
            swaps > 1_000 && reached > 0 && refused > 0,
            "{resolver:?}: {swaps} swaps, {reached} calls, {refused} refused"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_file_that_is_swapped_with_a_link_under_load_is_never_the_one_outside() {
    for resolver in BOTH {
        let world = World::with(resolver).await;
        world.put("file", "inside\n");
        symlink("../outside/secret", world.path("link")).unwrap();
        let swapper = Swapper::start(&world, "file", "link");
        for _ in 0..150 {
            if let Ok(read) = world.call("read", json!({"path": "file"})).await {
                assert_ne!(read.details.unwrap()["text"], "SECRET\n", "{resolver:?}");
            }
            drop(world.call("edit", json!({"path": "file", "oldText": "SECRET", "newText": "x"})).await);
            drop(world.call("write", json!({"path": "link", "content": "inside\n"})).await);
            assert_eq!(std::fs::read_to_string(world.beside("outside/secret")).unwrap(), "SECRET\n");
            if std::fs::symlink_metadata(world.path("link")).is_ok_and(|found| !found.is_symlink())
                && std::fs::symlink_metadata(world.path("file")).is_ok_and(|found| !found.is_symlink())
            {
                // A write has replaced the link; put it back.
                std::fs::remove_file(world.path("link")).ok();
                symlink("../outside/secret", world.path("link")).ok();
            }
        }
        assert!(swapper.stop() > 100);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_root_that_is_replaced_stays_the_same_folder() {
    for resolver in BOTH {
        let world = World::with(resolver).await;
        world.put("file", "inside\n");
        std::fs::rename(world.path(""), world.beside("moved")).unwrap();
        symlink("outside", world.beside("root")).unwrap();
        assert_eq!(world.ok("read", json!({"path": "file"})).await["text"], "inside\n");
        world.ok("write", json!({"path": "new", "content": "x"})).await;
        assert!(world.beside("moved/new").exists() && !world.beside("outside/new").exists());
        assert!(world.call("read", json!({"path": "secret"})).await.is_err());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sparse_file_of_a_terabyte_and_a_growing_file_are_read_in_bounded_time() {
    let world = World::new().await;
    let sparse = File::create(world.path("sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    let mut text = File::create(world.path("text")).unwrap();
    text.write_all(b"beginning\n").unwrap();
    text.set_len(1 << 40).unwrap();
    let began = Instant::now();
    assert_eq!(world.ok("read", json!({"path": "sparse"})).await["kind"], "binary");
    assert!(world.err("edit", json!({"path": "sparse", "oldText": "a", "newText": "b"})).await.contains("bytes"));
    let found = world.ok("grep", json!({"pattern": "beginning"})).await;
    assert_eq!((&found["matches"], &found["filesSkipped"]), (&json!([]), &json!(2)), "both are too large");
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    // Text at the beginning, then nothing for longer than is scanned.
    let mut long = File::create(world.path("long")).unwrap();
    long.write_all(&b"line\n".repeat(2_000)).unwrap();
    long.set_len(300 << 20).unwrap();
    let read = world.ok("read", json!({"path": "long", "limit": 1})).await;
    assert_eq!(
        (&read["text"], &read["totalLines"], &read["truncated"]),
        (&json!("line\n"), &Value::Null, &json!(true))
    );
    // A file that grows while it is read. It begins with as many lines as are asked for, because the
    // writer may append its first ones only after both calls.
    world.put("log", "line\nline\nline\n");
    let done = Arc::new(AtomicBool::new(false));
    let (path, ended) = (world.path("log"), Arc::clone(&done));
    let writer = std::thread::spawn(move || {
        let mut log = File::options().append(true).open(path).unwrap();
        while !ended.load(Ordering::Relaxed) && log.metadata().unwrap().size() < 64 << 20 {
            log.write_all(&b"line\n".repeat(10_000)).unwrap();
        }
    });
    let began = Instant::now();
    let read = world.ok("read", json!({"path": "log", "limit": 2})).await;
    assert_eq!(read["text"], "line\nline\n");
    let found = world.ok("grep", json!({"pattern": "line", "path": "log", "limit": 3})).await;
    assert_eq!(found["matches"].as_array().unwrap().len(), 3);
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    done.store(true, Ordering::Relaxed);
    writer.join().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn deep_trees_and_loops_of_links_end() {
    for resolver in BOTH {
        let world = World::with(resolver).await;
        let deep = "d/".repeat(200);
        std::fs::create_dir_all(world.path(&deep)).unwrap();
        std::fs::write(world.path(&format!("{deep}bottom")), "needle").unwrap();
        world.put("d/top", "needle");
        symlink(".", world.path("d/again")).unwrap();
        symlink("..", world.path("d/d/up")).unwrap();
        let found = world.ok("grep", json!({"pattern": "needle"})).await;
        assert_eq!(found["matches"].as_array().unwrap().len(), 1, "{resolver:?}: {found}");
        let found = world.ok("find", json!({"pattern": "bottom"})).await;
        assert_eq!((&found["paths"], &found["unreadFolders"]), (&json!([]), &json!(1)), "{resolver:?}");
        assert_eq!(world.ok("read", json!({"path": format!("{deep}bottom")})).await["text"], "needle");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_write_protected_is_not_replaced() {
    let world = World::new().await;
    world.put("locked", "keep");
    std::fs::set_permissions(world.path("locked"), PermissionsExt::from_mode(0o444)).unwrap();
    // The superuser may write to every file.
    if rustix::process::geteuid().is_root() {
        return;
    }
    assert!(world.err("write", json!({"path": "locked", "content": "x"})).await.contains("write-protected"));
    assert_eq!(world.content("locked"), "keep");
}
