//! A configured server that follows a script and is started on demand, with the real code between a call and it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use catalog::Catalog;
use contract::config::pattern::Pattern;
use contract::scope::Scope;
use executor::{CallEnd, DirectCall, Executor, Outcome, ProgressSink, Routes, ToolSource};
use mcp::{Limits, Restart, ServerSpec, Upstream, UpstreamOptions};
use serde_json::{Value, json};
use store::{Keys, Location, Store};

use crate::fake::{Folder, limits, spec};

pub(crate) struct ScriptedUpstream {
    pub upstream: Arc<Upstream>,
    pub store: Store,
    pub folder: Folder,
}

/// Options with short waits and an early give-up.
pub(crate) fn options() -> UpstreamOptions {
    let restart = Restart {
        first_wait: Duration::from_millis(20),
        max_wait: Duration::from_millis(100),
        give_up_after: 3,
        ..Restart::DEFAULT
    };
    UpstreamOptions { restart, ..UpstreamOptions::DEFAULT }
}

/// Returns a server whose script, record and cached list are in the folder.
pub(crate) fn scripted(folder: &Folder, name: &str, script: Value, limits: Limits) -> ServerSpec {
    write(folder, name, script);
    let path = folder.0.join(format!("{name}.json"));
    ServerSpec { name: name.to_owned(), ..spec(env!("CARGO_BIN_EXE_fake-mcp"), &[path.to_str().unwrap()], limits) }
}

fn write(folder: &Folder, name: &str, mut script: Value) {
    script["record"] = json!(folder.0.join(format!("{name}.record")));
    std::fs::write(folder.0.join(format!("{name}.json")), script.to_string()).unwrap();
}

impl ScriptedUpstream {
    pub(crate) async fn with(script: Value, options: UpstreamOptions) -> Self {
        Self::of(script, options, |_| {}).await
    }

    pub(crate) async fn of(script: Value, options: UpstreamOptions, change: impl FnOnce(&mut ServerSpec)) -> Self {
        let folder = Folder::new();
        let mut spec = scripted(&folder, "s", script, limits());
        change(&mut spec);
        let store = Store::open(&Location::Memory, Keys::ephemeral().unwrap()).await.unwrap();
        Self { upstream: Upstream::new(spec, options), store, folder }
    }

    /// Replaces the script for the server's next start.
    pub(crate) fn rewrite(&self, script: Value) {
        write(&self.folder, "s", script);
    }

    /// Returns an executor for the current tools.
    pub(crate) fn executor(&self, ask: &[&str]) -> Executor {
        let source: Arc<dyn ToolSource> = self.upstream.clone();
        let (routes, tools) = Routes::collect(&[source]);
        let scope = Scope { agent_id: "main".to_owned(), session_id: "session".to_owned(), ..Scope::default() };
        let ask = ask.iter().map(|text| Pattern::parse(text).unwrap()).collect();
        Executor::new(Arc::new(Catalog::new(tools).unwrap()), routes, scope).with_approval_patterns(ask)
    }

    pub(crate) async fn call(&self, name: &str) -> Outcome {
        match self.call_by(&self.executor(&[]), name).await.end {
            CallEnd::Settled(outcome) => outcome,
            other => panic!("{name}: {other:?}"),
        }
    }

    pub(crate) async fn call_by(&self, executor: &Executor, name: &str) -> DirectCall {
        let id = format!("mcp:s:{name}");
        executor.call_directly(&self.store, "test", &id, json!({}), ProgressSink::default()).await.unwrap()
    }

    pub(crate) async fn failed(&self, name: &str) -> String {
        match self.call(name).await {
            Outcome::Failed(message) => message,
            other => panic!("{name}: {other:?}"),
        }
    }

    /// Returns how often the server has received this method.
    pub(crate) fn heard(&self, method: &str) -> usize {
        heard(&self.folder, "s", method)
    }

    pub(crate) fn starts(&self) -> usize {
        self.heard("initialize")
    }

    pub(crate) fn cache(&self) -> PathBuf {
        self.folder.0.join("catalogs")
    }
}

pub(crate) fn heard(folder: &Folder, name: &str, method: &str) -> usize {
    let lines = std::fs::read_to_string(folder.0.join(format!("{name}.record"))).unwrap_or_default();
    let messages = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    messages.filter(|message| message["method"] == method).count()
}

pub(crate) async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it never came to be that {what}");
}
