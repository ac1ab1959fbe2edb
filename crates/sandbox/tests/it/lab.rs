//! A sandbox without its own process, driven by frames, with a ticker.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use contract::cell::{Language, OutputItem};
use contract::config::Languages;
use contract::frame::{
    Budget, Deliver, Failure, FromWorker, HostCall, Leg, LegEnd, Method, Reply, ReplyValue, Start, Thaw, ToWorker,
};
use contract::ids::{CallId, CatalogHash, CellId};
use contract::tables::CatalogTables;
use sandbox::Sandbox;
use serde_json::Value;

pub(crate) const CLOCK_US: u64 = 1_700_000_000_000_000;

pub(crate) struct Lab {
    pub sandbox: Arc<Sandbox>,
    pub catalog: CatalogHash,
    next: AtomicU64,
    stop: Arc<AtomicBool>,
}

/// How a cell ended, in a form that tests can compare.
#[derive(Debug, PartialEq)]
pub(crate) enum End {
    Value(Value),
    Failed(Option<&'static str>, String),
    Suspended(Vec<(String, String, Value)>),
}

impl Lab {
    pub(crate) fn new(slots: u32) -> Self {
        Self::with(slots, &tables())
    }

    pub(crate) fn with_tables(slots: u32, entries: &[(&str, &str)]) -> Self {
        Self::with(slots, &entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    }

    fn with(slots: u32, entries: &BTreeMap<String, String>) -> Self {
        let sandbox = Arc::new(Sandbox::new(slots).unwrap());
        let stop = Arc::new(AtomicBool::new(false));
        let (ticking, stopped) = (Arc::clone(&sandbox), Arc::clone(&stop));
        std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(2));
                ticking.tick();
            }
        });
        let spare = Arc::clone(&sandbox);
        std::thread::spawn(move || spare.help());
        let tables = CatalogTables::new(entries);
        sandbox.handle(ToWorker::Catalog { hash: tables.hash(), tables: tables.bytes().to_vec() }).unwrap();
        Self { sandbox, catalog: tables.hash(), next: AtomicU64::new(1), stop }
    }

    /// Returns the sandbox that tests share unless they need their own.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Lab> = OnceLock::new();
        SHARED.get_or_init(|| Self::new(64))
    }

    pub(crate) fn new_cell(&self) -> CellId {
        CellId(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Handles a frame on a thread with the stack of a worker's threads.
    pub(crate) fn handle(&self, frame: ToWorker) -> Option<FromWorker> {
        std::thread::scope(|scope| {
            std::thread::Builder::new()
                .stack_size(160 << 20)
                .spawn_scoped(scope, || self.sandbox.handle(frame).unwrap().reply)
                .unwrap()
                .join()
                .unwrap()
        })
    }

    fn leg(&self, frame: ToWorker) -> Leg {
        match self.handle(frame) {
            Some(FromWorker::Leg(_, leg)) => leg,
            other => panic!("expected a leg, got {other:?}"),
        }
    }

    pub(crate) fn start_with(&self, cell: CellId, source: &str, language: Language, budget: Budget) -> Leg {
        let start = Start {
            budget,
            catalog: self.catalog,
            seed: 7,
            language,
            languages: Languages::ALL,
            source: source.to_owned(),
        };
        self.leg(ToWorker::Start(cell, start))
    }

    pub(crate) fn start(&self, cell: CellId, source: &str) -> Leg {
        self.start_with(cell, source, Language::JavaScript, budget())
    }

    pub(crate) fn deliver(&self, cell: CellId, replies: Vec<Reply>) -> Leg {
        self.leg(ToWorker::Deliver(cell, Deliver { budget: budget(), replies }))
    }

    pub(crate) fn freeze(&self, cell: CellId) -> Vec<u8> {
        match self.handle(ToWorker::Freeze { cell, max_bytes: u64::MAX }) {
            Some(FromWorker::Frozen { snapshot, .. }) => snapshot,
            other => panic!("expected a snapshot, got {other:?}"),
        }
    }

    pub(crate) fn thaw(&self, cell: CellId, snapshot: &[u8], replies: Vec<Reply>) -> Leg {
        self.thaw_with(cell, snapshot, replies, budget())
    }

    pub(crate) fn thaw_with(&self, cell: CellId, snapshot: &[u8], replies: Vec<Reply>, budget: Budget) -> Leg {
        self.leg(ToWorker::Thaw(
            cell,
            Thaw { catalog: self.catalog, snapshot: snapshot.to_vec(), deliver: Deliver { budget, replies } },
        ))
    }

    /// Starts a cell and echoes every call's payload until it ends.
    pub(crate) fn run(&self, source: &str) -> (End, Vec<OutputItem>) {
        self.run_with(source, Language::JavaScript, budget())
    }

    pub(crate) fn run_with(&self, source: &str, language: Language, budget: Budget) -> (End, Vec<OutputItem>) {
        let cell = self.new_cell();
        let mut leg = self.start_with(cell, source, language, budget);
        let mut output = std::mem::take(&mut leg.output);
        while let LegEnd::Suspended { calls, .. } = &leg.end {
            if calls.is_empty() {
                break;
            }
            leg = self.deliver(cell, calls.iter().map(echo).collect());
            output.append(&mut leg.output);
        }
        (end(leg), output)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The time is long enough for every test that does not exceed it on purpose, on a slow and busy machine, too.
pub(crate) fn budget() -> Budget {
    Budget { run_ms: 30_000, memory_bytes: 64 << 20, output_bytes: 64 << 10, clock_us: CLOCK_US }
}

pub(crate) fn resolve(call: CallId, value: &Value) -> Reply {
    Reply { call, value: ReplyValue::Resolved(value.to_string().into_bytes()) }
}

/// Answers a tool call with its input, and a call of the failing tool with an error.
pub(crate) fn echo(call: &HostCall) -> Reply {
    let value = match (call.method, call.target.as_str()) {
        (Method::Call, "openclaw:test:fail") => ReplyValue::Rejected(br#"{"message":"fixture failure"}"#.to_vec()),
        (Method::Yield | Method::Timer, _) => ReplyValue::Resolved(b"null".to_vec()),
        _ => ReplyValue::Resolved(call.payload.clone()),
    };
    Reply { call: call.id, value }
}

pub(crate) fn end(leg: Leg) -> End {
    match leg.end {
        LegEnd::Completed { value } => End::Value(serde_json::from_str(value.get()).unwrap()),
        LegEnd::Failed(Failure { code, message, position }) => {
            let position = position.map_or(String::new(), |at| format!(" (at {}:{})", at.line, at.column));
            End::Failed(code.map(|code| code.as_str()), message + &position)
        }
        LegEnd::Suspended { calls, .. } => End::Suspended(
            calls
                .into_iter()
                .map(|call| {
                    let payload = serde_json::from_slice(&call.payload).unwrap();
                    (call.method.as_str().to_owned(), call.target, payload)
                })
                .collect(),
        ),
    }
}

/// Hand-written tables in the form of a catalog's.
fn tables() -> BTreeMap<String, String> {
    let entries = [
        ("all", r#"[{"id":"openclaw:test:echo","name":"echo","description":"Echo.","source":"openclaw"}]"#),
        ("tools", r#"["echo"]"#),
        ("tool/echo", "openclaw:test:echo"),
        ("mcp", r#"["fixture"]"#),
        (
            "mcp/fixture",
            r#"{"kind":"object","entries":[["$serverName",{"kind":"value","value":"fixture"}],["echo",{"kind":"function"}],["resources",{"kind":"object","entries":[["read",{"kind":"function"}]]}]]}"#,
        ),
        ("namespaces", r#"["Issues"]"#),
        (
            "namespace/Issues",
            r#"{"kind":"object","entries":[["list",{"kind":"function"}],["limits",{"kind":"array","items":[{"kind":"value","value":3}]}]]}"#,
        ),
        (
            "api",
            r#"[{"path":"mcp/index.d.ts","description":"All servers.","bytes":5},{"path":"mcp/fixture.d.ts","description":"Fixture.","bytes":7}]"#,
        ),
        ("api/mcp/index.d.ts", "index"),
        ("api/mcp/fixture.d.ts", "fixture"),
    ];
    entries.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}
