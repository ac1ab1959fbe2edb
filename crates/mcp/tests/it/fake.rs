//! Starts the scripted server and calls its tools through the executor.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use catalog::Catalog;
use contract::scope::Scope;
use executor::{CallEnd, Executor, Outcome, ProgressSink, Routes, ToolResult, ToolSource};
use mcp::{ConnectError, Limits, Server, ServerSpec, Transport};
use serde_json::{Value, json};
use store::{Keys, Location, Store};
use tokio::sync::OnceCell;

/// A temporary folder of one test, deleted on drop.
pub(crate) struct Folder(pub PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mcp-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The cache is written concurrently, so deleting the folder may fail at first.
        let mut tries = 0..100;
        while let Err(error) = std::fs::remove_dir_all(&self.0) {
            assert!(tries.next().is_some(), "{error}");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

pub(crate) fn limits() -> Limits {
    Limits { connect: Duration::from_secs(20), call: Duration::from_secs(10), ..Limits::DEFAULT }
}

/// Returns the specification of a server. Servers of tests have keepers, as in the real program.
pub(crate) fn spec(command: &str, args: &[&str], limits: Limits) -> ServerSpec {
    process::set_keeper_program(PathBuf::from(env!("CARGO_BIN_EXE_mcp-host")));
    ServerSpec {
        name: "s".to_owned(),
        transport: Transport::Stdio {
            command: command.to_owned(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            env: BTreeMap::new(),
            cwd: None,
        },
        trusted: false,
        limits,
    }
}

/// Returns a tool that performs these steps.
pub(crate) fn tool(name: &str, does: Value) -> Value {
    json!({"name": name, "description": "Does it.", "inputSchema": {"type": "object"}, "does": does})
}

pub(crate) async fn connect(folder: &Folder, script: Value, limits: Limits) -> Result<Arc<Server>, ConnectError> {
    let path = folder.0.join("script.json");
    std::fs::write(&path, script.to_string()).unwrap();
    Server::connect(spec(env!("CARGO_BIN_EXE_fake-mcp"), &[path.to_str().unwrap()], limits)).await
}

/// The scripted server over HTTP on this machine. It ends on drop.
pub(crate) struct AtAddress {
    pub(crate) url: String,
    child: std::process::Child,
}

impl AtAddress {
    pub(crate) fn start(folder: &Folder, script: Value) -> Self {
        let (path, port) = (folder.0.join("script.json"), folder.0.join("port"));
        std::fs::write(&path, script.to_string()).unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_fake-mcp"));
        let child = command
            .arg(&path)
            .arg("http")
            .arg(&port)
            .stdin(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let began = std::time::Instant::now();
        let port = loop {
            match std::fs::read_to_string(&port) {
                Ok(port) => break port,
                Err(_) if began.elapsed() < Duration::from_secs(20) => std::thread::sleep(Duration::from_millis(5)),
                Err(error) => panic!("the server does not start: {error}"),
            }
        };
        Self { url: format!("http://127.0.0.1:{port}/mcp"), child }
    }

    pub(crate) fn spec(&self, limits: Limits) -> ServerSpec {
        let transport = Transport::Http { url: self.url.clone(), headers: BTreeMap::new(), login: None };
        ServerSpec { name: "s".to_owned(), transport, trusted: false, limits }
    }

    pub(crate) fn end(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for AtAddress {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns the messages that the server has recorded.
pub(crate) fn heard(record: &Path) -> Vec<Value> {
    let lines = std::fs::read_to_string(record).unwrap_or_default();
    lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Waits until the server has recorded a matching message.
pub(crate) async fn wait_until_recorded(record: &Path, wanted: impl Fn(&Value) -> bool) -> Value {
    let hearing = async {
        loop {
            if let Some(found) = heard(record).into_iter().find(&wanted) {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), hearing).await.unwrap_or_else(|_| panic!("{:?}", heard(record)))
}

/// A connected server with the real code between a cell's call and it.
pub(crate) struct Connected {
    pub server: Arc<Server>,
    executor: Executor,
    store: OnceCell<Store>,
    pub at: Option<AtAddress>,
    folder: Folder,
    location: Location,
}

impl Connected {
    pub(crate) async fn with(script: Value, limits: Limits) -> Self {
        let folder = Folder::new();
        let server = connect(&folder, script, limits).await.unwrap_or_else(|error| panic!("{error}\n{}", error.stderr));
        Self::over(server, folder)
    }

    /// Connects to the scripted server over HTTP.
    pub(crate) async fn at_address(script: Value, limits: Limits) -> Self {
        let folder = Folder::new();
        let at = AtAddress::start(&folder, script);
        let server = Server::connect(at.spec(limits)).await.unwrap_or_else(|error| panic!("{error}"));
        Self { at: Some(at), ..Self::over(server, folder) }
    }

    pub(crate) fn over(server: Arc<Server>, folder: Folder) -> Self {
        let source: Arc<dyn ToolSource> = server.clone();
        let (routes, tools) = Routes::collect(&[source]);
        let catalog = Arc::new(Catalog::new(tools).unwrap());
        let executor = Executor::new(catalog, routes, Scope::default());
        Self { executor, server, store: OnceCell::new(), at: None, folder, location: Location::Memory }
    }

    /// Uses a store in a file, for tests that measure memory.
    pub(crate) fn with_store_file(self) -> Self {
        Self { location: Location::File(self.folder.0.join("store")), ..self }
    }

    pub(crate) async fn store(&self) -> &Store {
        let open = || async { Store::open(&self.location, Keys::ephemeral().unwrap()).await.unwrap() };
        self.store.get_or_init(open).await
    }

    /// Returns the executor of a run with this server.
    pub(crate) fn executor(&self) -> &Executor {
        &self.executor
    }

    pub(crate) async fn call(&self, name: &str, input: Value) -> Outcome {
        self.call_heard(name, input, ProgressSink::default()).await
    }

    pub(crate) async fn call_heard(&self, name: &str, input: Value, updates: ProgressSink) -> Outcome {
        let store = self.store().await;
        let id = format!("mcp:s:{name}");
        match self.executor.call_directly(store, "test", &id, input, updates).await.unwrap().end {
            CallEnd::Settled(outcome) => outcome,
            other => panic!("{name}: {other:?}"),
        }
    }

    pub(crate) async fn returned(&self, name: &str, input: Value) -> ToolResult {
        match self.call(name, input).await {
            Outcome::Returned(returned) => returned,
            other => panic!("{name}: {other:?}"),
        }
    }

    pub(crate) async fn failed(&self, name: &str) -> String {
        match self.call(name, json!({})).await {
            Outcome::Failed(message) => message,
            Outcome::Dropped(dropped) => dropped.message,
            other => panic!("{name}: {other:?}"),
        }
    }
}
