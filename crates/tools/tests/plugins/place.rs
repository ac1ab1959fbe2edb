//! Installed plugins and the real code between a call and them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use contract::config::PluginsConfig;
use contract::config::{AgentsConfig, pattern::Pattern};
use contract::scope::Scope;
use executor::run::{Host, LocalTools, PreparedRun, RunRequest, prepare};
use executor::{CallEnd, DirectCall, Executor, Outcome, ProgressSink};
use process::Restart;
use serde_json::{Value, json};
use store::{Keys, Location, Store};
use tools::plugins::{Plugin, PluginFolder, PluginHost, PluginOptions, Plugins, Variables, inspect};

/// How long something may take before a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Place {
    folder: tempfile::TempDir,
    pub(crate) host: PluginHost,
    pub(crate) store: Store,
}

/// Options with short waits and an early give-up.
pub(crate) fn options() -> PluginOptions {
    let restart = Restart {
        first_wait: Duration::from_millis(20),
        max_wait: Duration::from_millis(100),
        give_up_after: 3,
        ..Restart::DEFAULT
    };
    PluginOptions { restart, ..PluginOptions::DEFAULT }
}

/// Returns the manifest of the scripted plugin in this mode, with the tools that tests call.
pub(crate) fn manifest(id: &str, mode: &str) -> Value {
    let tool = |name: &str, effects: &str| json!({"name": name, "description": "Does it.", "inputSchema": {"type": "object"}, "effects": effects, "timeoutMs": 3_000});
    let mut typed = tool("typed", "changes");
    typed["outputSchema"] = json!({"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]});
    json!({
        "id": id, "name": id, "version": "1.0.0", "description": "A scripted plugin.",
        "command": ["python3", "fake.py", mode],
        "configSchema": {"type": "object"},
        "tools": [
            tool("echo", "reads"), tool("change", "changes"), tool("keyed", "repeatable"), tool("other", "reads"),
            tool("progress", "reads"), typed,
        ],
    })
}

/// Returns the manifest of a plugin that also has hooks.
pub(crate) fn with_hooks(id: &str, mode: &str) -> Value {
    let mut manifest = manifest(id, mode);
    manifest["hooks"] = json!({
        "before_tool_call": {"tools": ["*"], "cells": true, "timeoutMs": 1_500},
        "after_tool_call": {"tools": ["*"], "timeoutMs": 1_500},
    });
    manifest
}

impl Place {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let host = PluginHost {
            folder: PluginFolder::new(folder.path().join("plugins")),
            variables: Variables {
                inherited: Arc::new(|name| (name == "FAKE_TOKEN").then(|| "t0ken".to_owned())),
                expand: Arc::new(|text| match text.replace("${secret:known}", "s3cret") {
                    text if text.contains("${secret:") => Err("the secret `unknown` is not set".to_owned()),
                    text => Ok(text),
                }),
            },
            options: options(),
        };
        let store = Store::open(&Location::Memory, Keys::ephemeral().unwrap()).await.unwrap();
        Self { folder, host, store }
    }

    pub(crate) fn source(&self, id: &str) -> PathBuf {
        self.folder.path().join("source").join(id)
    }

    /// Installs the scripted plugin with this manifest.
    pub(crate) fn install(&self, manifest: &Value) {
        let id = manifest["id"].as_str().unwrap();
        let source = self.source(id);
        std::fs::create_dir_all(&source).unwrap();
        std::fs::write(source.join("cellmate.plugin.json"), manifest.to_string()).unwrap();
        let fake = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plugins/fake.py");
        std::fs::copy(fake, source.join("fake.py")).unwrap();
        self.add(&source);
    }

    pub(crate) fn add(&self, source: &Path) {
        self.host.folder.add(source, &inspect(source).unwrap().hash, 1).unwrap();
    }

    /// Returns what the scripted plugin recorded.
    pub(crate) fn recorded(&self, id: &str) -> String {
        std::fs::read_to_string(self.host.folder.get(id).unwrap().data.join("record")).unwrap_or_default()
    }

    pub(crate) fn plugins(&self) -> Plugins {
        self.configured(&json!({}))
    }

    pub(crate) fn configured(&self, config: &Value) -> Plugins {
        let config = PluginsConfig::resolve(config).unwrap();
        Plugins::load(&self.host, &config, &Plugins::default()).unwrap().0
    }

    /// Loads the plugins and prepares a run with them.
    pub(crate) async fn ready(&self) -> Ready<'_> {
        Ready::of(self, self.plugins()).await
    }
}

/// A prepared run.
pub(crate) struct Ready<'a> {
    place: &'a Place,
    pub(crate) plugins: Plugins,
    pub(crate) run: PreparedRun,
}

pub(crate) fn scope() -> Scope {
    Scope { agent_id: "ada".to_owned(), session_id: "s1".to_owned(), ..Scope::default() }
}

impl<'a> Ready<'a> {
    pub(crate) async fn of(place: &'a Place, plugins: Plugins) -> Self {
        let mut local = LocalTools::default();
        assert_eq!(plugins.add_to(&mut local), Vec::<String>::new());
        local.make_ready(&scope(), PATIENCE).await;
        let config = AgentsConfig::resolve(&Value::Null, &Value::Null).unwrap();
        let host = Host { local, ..Host::new(config, Vec::new()) };
        let run = prepare(&host, &RunRequest { scope: scope(), ..RunRequest::default() }).unwrap();
        Self { place, plugins, run }
    }

    pub(crate) fn plugin(&self, id: &str) -> &Arc<Plugin> {
        self.plugins.get(id).unwrap()
    }

    pub(crate) fn asking(&self, patterns: &[&str]) -> Executor {
        let patterns = patterns.iter().map(|pattern| Pattern::parse(pattern).unwrap()).collect();
        self.run.executor.clone().with_approval_patterns(patterns)
    }

    pub(crate) async fn direct(&self, id: &str, input: Value) -> DirectCall {
        let updates = ProgressSink::default();
        self.run.executor.call_directly(&self.place.store, "t", id, input, updates).await.unwrap()
    }

    pub(crate) async fn call(&self, id: &str, input: Value) -> Outcome {
        match self.direct(id, input).await.end {
            CallEnd::Settled(outcome) => outcome,
            other => panic!("{id}: {other:?}"),
        }
    }

    pub(crate) async fn value(&self, id: &str, input: Value) -> Value {
        match self.call(id, input).await {
            Outcome::Returned(returned) => returned.into_cell_value(),
            other => panic!("{id}: {other:?}"),
        }
    }

    pub(crate) async fn failed(&self, id: &str, input: Value) -> String {
        match self.call(id, input).await {
            Outcome::Failed(message) => message,
            Outcome::Dropped(dropped) => dropped.message,
            other => panic!("{id}: {other:?}"),
        }
    }
}

pub(crate) async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "it never came to be that {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
