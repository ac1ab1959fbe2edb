use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use contract::tool::{Repeat, ToolId, ToolSpec};
use serde_json::{Value, json};

use super::{CacheError, CacheFile, LastFailure, Listing, STDERR_LINES};
use crate::client::{HintTrust, Limits, Offer, ServerSpec, Transport};

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("mcp-cache-{}-{number}", std::process::id())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn spec(args: &[&str], token: &str) -> ServerSpec {
    ServerSpec {
        name: "s".to_owned(),
        transport: Transport::Stdio {
            command: "npx".to_owned(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            env: BTreeMap::from([("TOKEN".to_owned(), token.to_owned())]),
            cwd: None,
        },
        trusted: true,
        limits: Limits::DEFAULT,
    }
}

fn listing() -> Listing {
    let mut offer = Offer::new("s", HintTrust::Trusted, &Limits::DEFAULT);
    offer.resources();
    let mut tools: Vec<ToolSpec> = offer.tools.into_values().collect();
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let reads = ToolSpec {
        label: Some("Reads".to_owned()),
        output: Some(json!({"type": "object"})),
        repeat: Repeat::Always,
        declared_repeat: Repeat::Always,
        ..ToolSpec::new(ToolId::parse("mcp:s:read").unwrap(), "Reads.", schema)
    };
    tools.insert(0, ToolSpec::new(ToolId::parse("mcp:s:do").unwrap(), "Does.", json!({"type": "object"})));
    tools.insert(1, reads);
    tools.iter_mut().take(2).for_each(|tool| tool.about_owner = Some("Keeps notes.".into()));
    Listing { tools, left_out: Vec::new(), listed_at: 7, remembered: true }
}

#[test]
fn a_declaration_that_was_not_believed_counts_once_the_server_is_trusted() {
    let folder = Folder::new();
    let spec = |trusted: bool| ServerSpec { trusted, ..spec(&[], "") };
    let repeats = |trusted: bool| {
        let read = CacheFile::of(&folder.0, &spec(trusted)).read().unwrap().unwrap();
        read.tools.into_iter().find(|tool| tool.id.name() == "read").map(|tool| (tool.repeat, tool.declared_repeat))
    };
    CacheFile::of(&folder.0, &spec(true)).write(&listing()).unwrap();
    assert_eq!(repeats(false), Some((Repeat::Never, Repeat::Always)));
    let untrusted = CacheFile::of(&folder.0, &spec(false));
    untrusted.write(&untrusted.read().unwrap().unwrap()).unwrap();
    assert_eq!(repeats(true), Some((Repeat::Always, Repeat::Always)));
}

#[test]
fn a_listing_is_read_back_unchanged_and_only_its_owner_can_read_it() {
    let folder = Folder::new();
    let file = CacheFile::of(&folder.0, &spec(&["server"], "hunter2"));
    assert!(file.read().unwrap().is_none());
    file.write(&listing()).unwrap();
    assert_eq!(file.read().unwrap().unwrap(), listing());
    assert_eq!(std::fs::metadata(&file.path).unwrap().permissions().mode() & 0o777, 0o600);
    let second = Listing { tools: Vec::new(), ..listing() };
    file.write(&second).unwrap();
    assert_eq!(file.read().unwrap().unwrap(), second);
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1, "no half file stays");
}

#[test]
fn the_file_name_depends_on_the_server_and_not_on_its_secrets() {
    let folder = Folder::new();
    let path = |spec: &ServerSpec| CacheFile::of(&folder.0, spec).path;
    let one = path(&spec(&["a"], "hunter2"));
    assert_eq!(one, path(&spec(&["a"], "hunter3")));
    assert_ne!(one, path(&spec(&["b"], "hunter2")));
    let http = |url: &str| {
        let transport = Transport::Http { url: url.to_owned(), headers: BTreeMap::new(), login: None };
        path(&ServerSpec { transport, ..spec(&[], "") })
    };
    assert_eq!(http("https://u:hunter2@h/mcp?key=hunter2"), http("https://h/mcp"));
    assert_ne!(http("https://h/mcp"), http("https://h/other"));
}

#[test]
fn hints_in_the_cache_are_ignored_once_the_server_is_not_trusted() {
    let folder = Folder::new();
    let trusted = spec(&[], "");
    CacheFile::of(&folder.0, &trusted).write(&listing()).unwrap();
    let read = CacheFile::of(&folder.0, &ServerSpec { trusted: false, ..trusted }).read().unwrap().unwrap();
    assert!(read.tools.iter().all(|tool| tool.repeat == Repeat::Never), "{read:?}");
}

#[test]
fn an_invalid_or_too_large_file_is_not_used() {
    let folder = Folder::new();
    let file = CacheFile::of(&folder.0, &spec(&[], ""));
    file.write(&listing()).unwrap();
    let good: Value = serde_json::from_str(&std::fs::read_to_string(&file.path).unwrap()).unwrap();
    let changed = |key: &str, value: Value| {
        let mut changed = good.clone();
        changed[key] = value;
        changed.to_string()
    };
    let many = vec![json!({"name": "x", "inputSchema": {}}); Limits::DEFAULT.tools + 1];
    let others = [
        String::new(),
        "{".to_owned(),
        "[]".to_owned(),
        "[".repeat(100_000),
        changed("version", json!("3")),
        changed("identity", json!("00")),
        changed("server", json!("t")),
        changed("tools", json!({})),
        changed("tools", json!(many)),
        changed("listedAt", json!("today")),
    ];
    for other in others {
        std::fs::write(&file.path, &other).unwrap();
        let shown: String = other.chars().take(80).collect();
        assert!(matches!(file.read(), Err(CacheError::Other)), "{shown}");
    }
    for version in [2, 4] {
        std::fs::write(&file.path, changed("version", json!(version))).unwrap();
        assert!(matches!(file.read(), Ok(None)), "{version}");
    }
    let small = ServerSpec { limits: Limits { total_bytes: 1 << 10, ..Limits::DEFAULT }, ..spec(&[], "") };
    std::fs::write(&file.path, "x".repeat(100 << 10)).unwrap();
    assert!(matches!(CacheFile::of(&folder.0, &small).read(), Err(CacheError::TooLong(_))));
    std::fs::remove_file(&file.path).unwrap();
    std::fs::create_dir(&file.path).unwrap();
    assert!(matches!(file.read(), Err(CacheError::Io(_))));
    assert!(file.write(&listing()).is_err());
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1, "no half file stays");
}

#[test]
fn a_status_shows_the_last_lines_without_control_characters() {
    let text: String = (0..100).map(|n| format!("line {n}\u{1b}[0m\n")).collect();
    let lines = LastFailure { stderr: text, ..LastFailure::new(String::new()) }.last_lines();
    assert_eq!((lines.len(), lines[0].as_str()), (STDERR_LINES, "line 80 [0m"));
    assert!(LastFailure::new(String::new()).last_lines().is_empty());
}
