//! A root with the file tools, called through the executor; and ordinary calls of `read`, `ls`, `write`.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use catalog::Catalog;
use contract::config::{CoreTools as Settings, FileTools, RootAccess};
use contract::scope::Scope;
use contract::tool::Repeat;
use executor::{CallEnd, Executor, Outcome, ProgressSink, Routes, ToolResult, ToolSource};
use serde_json::{Value, json};
use store::{Keys, Location, Store};
use tools::core::{CoreTools, Resolver, Root, Roots};

pub(crate) const BOTH: [Resolver; 2] = [Resolver::Kernel, Resolver::Walk];

/// A folder with a root, a read-only root, and a folder that tools must not reach.
pub(crate) struct World {
    folder: tempfile::TempDir,
    pub executor: Executor,
    store: Store,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(Resolver::best()).await
    }

    pub(crate) async fn with(resolver: Resolver) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["root", "docs", "outside"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        std::fs::write(folder.path().join("outside/secret"), "SECRET\n").unwrap();
        let mut roots = Roots::default();
        for (name, access) in [("root", RootAccess::Write), ("docs", RootAccess::Read)] {
            roots.push(Root::open(&folder.path().join(name), access).unwrap().with_resolver(resolver)).unwrap();
        }
        let settings = Settings { files: FileTools { enabled: true, ..FileTools::default() }, ..Settings::default() };
        let source: Arc<dyn ToolSource> = Arc::new(CoreTools::new(&settings, &roots));
        let (routes, tools) = Routes::collect(&[source]);
        let executor = Executor::new(Arc::new(Catalog::new(tools).unwrap()), routes, Scope::default());
        let store = Store::open(&Location::Memory, Keys::ephemeral().unwrap()).await.unwrap();
        Self { folder, executor, store }
    }

    /// Returns a path in the first root.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("root").join(name)
    }

    /// Returns a path beside the roots.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub(crate) fn content(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    pub(crate) async fn call(&self, tool: &str, input: Value) -> Result<ToolResult, String> {
        let id = format!("openclaw:core:{tool}");
        let called = self.executor.call_directly(&self.store, "t", &id, input, ProgressSink::default()).await.unwrap();
        match called.end {
            CallEnd::Settled(Outcome::Returned(returned)) => Ok(returned),
            CallEnd::Settled(Outcome::Failed(message)) => Err(message),
            other => panic!("{other:?}"),
        }
    }

    /// Returns the details of a call that must succeed.
    pub(crate) async fn ok(&self, tool: &str, input: Value) -> Value {
        self.call(tool, input).await.unwrap().details.unwrap()
    }

    /// Returns the message of a call that must fail.
    pub(crate) async fn err(&self, tool: &str, input: Value) -> String {
        let shown = input.to_string();
        match self.call(tool, input).await {
            Err(message) => message,
            Ok(returned) => panic!("{tool} {shown}: {returned:?}"),
        }
    }

    /// Returns every name in the root, for tests that nothing is left behind.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        collect(&self.path(""), &self.path(""), &mut names);
        names.sort();
        names
    }
}

fn collect(root: &Path, folder: &Path, names: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        names.push(entry.path().strip_prefix(root).unwrap().to_string_lossy().into_owned());
        if entry.file_type().unwrap().is_dir() {
            collect(root, &entry.path(), names);
        }
    }
}

/// Returns the text block of a result.
pub(crate) fn text(returned: &ToolResult) -> &str {
    returned.content[0]["text"].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_that_change_files_must_not_be_repeated_and_others_may() {
    let world = World::new().await;
    let repeat: Vec<(&str, Repeat)> =
        world.executor.catalog().tools().iter().map(|tool| (tool.id.name(), tool.repeat)).collect();
    for (name, repeat) in &repeat {
        let expected = match *name {
            "read" | "ls" | "find" | "grep" => Repeat::Always,
            _ => Repeat::Never,
        };
        assert_eq!(*repeat, expected, "{name}");
    }
    assert_eq!(repeat.len(), 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_writable_roots_there_are_only_tools_that_read() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { files: FileTools { enabled: true, ..FileTools::default() }, ..Settings::default() };
    let names = |roots: &Roots, settings: &Settings| {
        let tools = CoreTools::new(settings, roots).tools();
        tools.iter().map(|tool| tool.id.name().to_owned()).collect::<Vec<_>>()
    };
    let mut roots = Roots::default();
    assert!(names(&roots, &settings).is_empty());
    roots.push(Root::open(folder.path(), RootAccess::Read).unwrap()).unwrap();
    assert_eq!(names(&roots, &settings), ["read", "ls", "find", "grep"]);
    assert!(names(&roots, &Settings::default()).is_empty(), "tools are off unless they are enabled");
}

#[tokio::test(flavor = "multi_thread")]
async fn read_returns_lines_and_says_how_to_continue() {
    let world = World::new().await;
    world.put("a.txt", "one\ntwo\nthree\n");
    let all = world.ok("read", json!({"path": "a.txt"})).await;
    let expected = json!({"kind": "text", "path": "a.txt", "text": "one\ntwo\nthree\n", "startLine": 1, "endLine": 3,
        "totalLines": 3, "truncated": false});
    assert_eq!(all, expected);
    let part = world.call("read", json!({"path": "a.txt", "offset": 2, "limit": 1})).await.unwrap();
    let details = part.details.clone().unwrap();
    assert_eq!(
        (&details["text"], &details["nextOffset"], &details["truncated"]),
        (&json!("two\n"), &json!(3), &json!(true))
    );
    assert!(text(&part).contains("lines 2 to 2 of 3; continue with offset 3"), "{}", text(&part));
    assert!(world.err("read", json!({"path": "a.txt", "offset": 9})).await.contains("has 3 lines"));
    world.put("empty", "");
    let empty = world.ok("read", json!({"path": "empty"})).await;
    assert_eq!((&empty["text"], &empty["totalLines"]), (&json!(""), &json!(0)));
    // The path may be absolute, and a root that is not the first is shown with its whole path.
    std::fs::write(world.beside("docs/d.md"), "# D").unwrap();
    let path = std::fs::canonicalize(world.beside("docs/d.md")).unwrap();
    let other = world.ok("read", json!({"path": path})).await;
    assert_eq!((&other["path"], &other["text"]), (&json!(path), &json!("# D")));
    assert_eq!(world.ok("read", json!({"path": "../docs/d.md"})).await["text"], "# D");
}

#[tokio::test(flavor = "multi_thread")]
async fn read_recognizes_binary_files_images_and_other_encodings() {
    let world = World::new().await;
    world.put("program", b"\x7fELF\0\0\0");
    let binary = world.call("read", json!({"path": "program"})).await.unwrap();
    assert_eq!(binary.details.clone().unwrap(), json!({"kind": "binary", "path": "program", "bytes": 7}));
    assert!(text(&binary).contains("binary file, 7 bytes"));
    world.put("wide.txt", b"\xff\xfea\0b\0");
    assert!(text(&world.call("read", json!({"path": "wide.txt"})).await.unwrap()).contains("UTF-16"));
    // The name does not decide.
    world.put("picture.txt", b"\x89PNG\r\n\x1a\nrest");
    let image = world.call("read", json!({"path": "picture.txt"})).await.unwrap();
    assert_eq!(image.details.clone().unwrap()["kind"], "image");
    assert_eq!(
        (&image.content[1]["mimeType"], &image.content[1]["data"]),
        (&json!("image/png"), &json!("iVBORw0KGgpyZXN0"))
    );
    world.put("latin.txt", b"gr\xfc\xdfe\n");
    let lossy = world.call("read", json!({"path": "latin.txt"})).await.unwrap();
    assert_eq!(lossy.details.clone().unwrap()["lossy"], true);
    assert!(text(&lossy).contains("not valid UTF-8"));
    world.put("bom.json", b"\xef\xbb\xbf{}");
    let bom = world.ok("read", json!({"path": "bom.json"})).await;
    assert_eq!((&bom["text"], &bom["bom"]), (&json!("{}"), &json!(true)));
}

#[tokio::test(flavor = "multi_thread")]
async fn ls_lists_names_with_their_kinds() {
    let world = World::new().await;
    world.put("b.txt", "12345");
    world.put("A/x", "");
    world.put(".hidden", "");
    std::os::unix::fs::symlink("b.txt", world.path("link")).unwrap();
    std::fs::write(world.path("evil\nname"), "").unwrap();
    let listed = world.call("ls", json!({})).await.unwrap();
    let entries = listed.details.clone().unwrap()["entries"].clone();
    let names: Vec<&str> = entries.as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect();
    assert_eq!(names, [".hidden", "A", "b.txt", "evil\nname", "link"]);
    assert_eq!(entries[2], json!({"name": "b.txt", "type": "file", "bytes": 5}));
    assert_eq!((&entries[1]["type"], &entries[4]["type"]), (&json!("directory"), &json!("symlink")));
    // A line break in a name does not make two entries for the model.
    assert_eq!(text(&listed), ".hidden\nA/\nb.txt\n\"evil\\nname\"\nlink@");
    let some = world.ok("ls", json!({"limit": 2})).await;
    assert_eq!(
        (some["entries"].as_array().unwrap().len(), &some["total"], &some["truncated"]),
        (2, &json!(5), &json!(true))
    );
    assert!(world.err("ls", json!({"path": "b.txt"})).await.contains("not a folder"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_file_is_answered_with_similar_names_and_the_roots() {
    let world = World::new().await;
    world.put("src/main.rs", "");
    world.put("src/map.rs", "");
    let message = world.err("read", json!({"path": "src/mian.rs"})).await;
    assert!(message.contains("`mian.rs` does not exist in `src`") && message.contains("`main.rs`"), "{message}");
    assert!(message.contains("relative paths begin in the first"), "{message}");
    let folder = world.err("read", json!({"path": "source/main.rs"})).await;
    assert!(folder.contains("`source` does not exist in `.`") && folder.contains("`ls`"), "{folder}");
    let outside = world.err("read", json!({"path": "/etc/passwd"})).await;
    assert!(outside.contains("outside the folders") && outside.contains("(read only)"), "{outside}");
}

#[tokio::test(flavor = "multi_thread")]
async fn write_creates_folders_and_keeps_permissions() {
    let world = World::new().await;
    let made = world.ok("write", json!({"path": "new/deep/file.txt", "content": "hello"})).await;
    assert_eq!(made, json!({"path": "new/deep/file.txt", "bytes": 5, "created": true}));
    assert_eq!(world.content("new/deep/file.txt"), "hello");
    world.put("script", "#!/bin/sh\n");
    std::fs::set_permissions(world.path("script"), PermissionsExt::from_mode(0o4754)).unwrap();
    let replaced = world.ok("write", json!({"path": "script", "content": "#!/bin/sh\ntrue\n"})).await;
    assert_eq!(replaced["created"], false);
    let mode = std::fs::metadata(world.path("script")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o754, "as after any change, without set-user-id");
    assert_eq!(world.names(), ["new", "new/deep", "new/deep/file.txt", "script"], "no temporary file is left");
    assert!(world.err("write", json!({"path": "new", "content": ""})).await.contains("is a folder"));
    assert!(world.err("write", json!({"path": "script/x", "content": ""})).await.contains("not a folder"));
    assert!(world.err("write", json!({"path": "../docs/x", "content": ""})).await.contains("not changed"));
}
