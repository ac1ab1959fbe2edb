//! The scopes that a plugin created for its namespaces, one for each namespace, agent and session.
//!
//! A scope is data, so it outlives the plugin's process. It is created before a run is prepared and kept until the plugin
//! is disabled or replaced, or until more recent scopes need its place; then the plugin is notified.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use catalog::{RunContext, ScopeFailure, ScopeMaker, ScopeValue};
use contract::limits::MAX_PLUGIN_SCOPES;
use contract::scope::Scope;
use executor::ProgressSink;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::connection::Connection;
use super::manifest::{Effects, Manifest, ScopeManifest, read_scope};
use super::messages::{explain, scope_json};
use super::supervisor::Supervisor;

/// How long a plugin may take to create a scope, its start included.
const CREATE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a scope that could not be created is not requested again.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// Identifies a scope: the namespace, and the parts of a run's scope that the plugin receives.
type Key = (String, [String; 4]);

fn key(namespace: &str, scope: &Scope) -> Key {
    let session_key = scope.session_key.clone().unwrap_or_default();
    (namespace.to_owned(), [scope.agent_id.clone(), scope.session_id.clone(), session_key, scope.agent_run_id.clone()])
}

#[derive(Clone, Debug)]
enum Entry {
    /// The scope is being created; the value changes when that is over.
    Pending(watch::Receiver<()>),
    Ready(ScopeValue),
    Failed {
        why: String,
        at: Instant,
    },
}

#[derive(Debug, Default)]
struct Entries {
    by_key: HashMap<Key, (Entry, Value)>,
    /// The keys, the oldest one first.
    order: VecDeque<Key>,
}

impl Entries {
    /// Adds an entry, and returns those that had to make room: each with its namespace and run scope.
    fn insert(&mut self, key: Key, entry: Entry, scope: Value) -> Vec<(String, Value)> {
        if self.by_key.insert(key.clone(), (entry, scope)).is_none() {
            self.order.push_back(key);
        }
        let mut evicted = Vec::new();
        while self.order.len() > MAX_PLUGIN_SCOPES {
            let Some(oldest) = self.order.pop_front() else { break };
            if let Some((Entry::Ready(_), scope)) = self.by_key.remove(&oldest) {
                evicted.push((oldest.0, scope));
            }
        }
        evicted
    }
}

/// The scopes of one plugin.
#[derive(Clone, Debug)]
pub(super) struct Scopes {
    entries: Arc<Mutex<Entries>>,
    /// The namespaces whose scopes the plugin creates, with the tools that they may call.
    created: Arc<Vec<(String, Vec<String>)>>,
    /// Counts scopes that became available.
    changes: Arc<watch::Sender<u64>>,
}

impl Scopes {
    pub(super) fn new(manifest: &Manifest) -> Self {
        let created = manifest.namespaces.iter().filter(|namespace| matches!(namespace.scope, ScopeManifest::Created));
        let created = created.map(|namespace| (namespace.id.clone(), namespace.required_tool_names.clone())).collect();
        Self { entries: Arc::default(), created: Arc::new(created), changes: Arc::new(watch::Sender::new(0)) }
    }

    /// Whether the plugin creates any scope.
    pub(super) fn are_created(&self) -> bool {
        !self.created.is_empty()
    }

    /// Returns a counter that increases whenever a scope became available.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Returns what looks up the scope of a namespace when a run is prepared.
    pub(super) fn maker(&self, namespace: &str) -> ScopeMaker {
        let (entries, namespace) = (Arc::clone(&self.entries), namespace.to_owned());
        ScopeMaker::new(move |context: &RunContext<'_>| {
            match entries.lock().by_key.get(&key(&namespace, context.scope)) {
                Some((Entry::Ready(scope), _)) => Ok(scope.clone()),
                Some((Entry::Failed { why, .. }, _)) => Err(ScopeFailure(why.clone())),
                Some((Entry::Pending(_), _)) | None => {
                    Err(ScopeFailure("the plugin has not created it yet".to_owned()))
                }
            }
        })
    }

    /// Returns whether the scope of a namespace was created, or why not.
    pub(super) fn outcome(&self, namespace: &str, scope: &Scope) -> Result<(), String> {
        match self.entries.lock().by_key.get(&key(namespace, scope)) {
            Some((Entry::Ready(_), _)) => Ok(()),
            Some((Entry::Failed { why, .. }, _)) => Err(why.clone()),
            Some((Entry::Pending(_), _)) | None => Err("the plugin has not created it".to_owned()),
        }
    }

    /// Creates the missing scopes for runs of this scope, and waits for them. The creation continues if the caller stops
    /// waiting.
    pub(super) async fn make_ready(&self, plugin: &Arc<Supervisor>, scope: &Scope) {
        for (namespace, tools) in self.created.iter() {
            let mut pending = match self.begin(plugin, scope, namespace, tools) {
                Some(pending) => pending,
                None => continue,
            };
            // An error means that the sender was dropped, which also ends the creation.
            pending.changed().await.ok();
        }
    }

    /// Starts to create a scope, unless it is there or failed a moment ago.
    fn begin(
        &self,
        plugin: &Arc<Supervisor>,
        scope: &Scope,
        namespace: &str,
        tools: &[String],
    ) -> Option<watch::Receiver<()>> {
        let key = key(namespace, scope);
        let mut entries = self.entries.lock();
        match entries.by_key.get(&key) {
            Some((Entry::Ready(_), _)) => return None,
            Some((Entry::Pending(pending), _)) => return Some(pending.clone()),
            Some((Entry::Failed { at, .. }, _)) if at.elapsed() < RETRY_AFTER => return None,
            Some((Entry::Failed { .. }, _)) | None => {}
        }
        let (sender, pending) = watch::channel(());
        let evicted = entries.insert(key.clone(), Entry::Pending(pending.clone()), scope_json(scope));
        drop(entries);
        notify_cleanup(plugin.connection().as_deref(), evicted);
        let (me, plugin, scope) = (self.clone(), Arc::clone(plugin), scope.clone());
        let (namespace, tools) = (namespace.to_owned(), tools.to_vec());
        tokio::spawn(async move {
            let created = create(&plugin, &scope, &namespace, &tools).await;
            me.finish(&key, created, &plugin);
            drop(sender);
        });
        Some(pending)
    }

    fn finish(&self, key: &Key, created: Result<ScopeValue, String>, plugin: &Supervisor) {
        let mut entries = self.entries.lock();
        // The entry may have been evicted in the meantime.
        let Some((entry, _)) = entries.by_key.get_mut(key) else { return };
        match created {
            Ok(scope) => {
                *entry = Entry::Ready(scope);
                drop(entries);
                self.changes.send_modify(|times| *times += 1);
            }
            Err(why) => {
                tracing::warn!(
                    plugin = plugin.id(),
                    namespace = key.0,
                    why,
                    "the scope of a namespace was not created"
                );
                *entry = Entry::Failed { why, at: Instant::now() };
            }
        }
    }

    /// Forgets all scopes, and notifies the plugin if it runs.
    pub(super) fn clean_up(&self, connection: Option<&Connection>) {
        let entries = std::mem::take(&mut *self.entries.lock());
        let ready = entries.by_key.into_iter().filter(|(_, (entry, _))| matches!(entry, Entry::Ready(_)));
        notify_cleanup(connection, ready.map(|((namespace, _), (_, scope))| (namespace, scope)).collect());
    }
}

/// Notifies the plugin that these scopes are no longer used. There are at most [`MAX_PLUGIN_SCOPES`] of them.
fn notify_cleanup(connection: Option<&Connection>, scopes: Vec<(String, Value)>) {
    let Some(connection) = connection.filter(|_| !scopes.is_empty()) else { return };
    let scopes: Vec<Value> =
        scopes.into_iter().map(|(namespace, scope)| json!({"namespaceId": namespace, "scope": scope})).collect();
    connection.notify("namespaces/cleanup", json!({"scopes": scopes}));
}

async fn create(plugin: &Supervisor, scope: &Scope, namespace: &str, tools: &[String]) -> Result<ScopeValue, String> {
    let mut context = scope_json(scope);
    if let Value::Object(fields) = &mut context {
        fields.insert("runId".to_owned(), json!(scope.agent_run_id));
        fields.insert("config".to_owned(), plugin.config().clone());
        fields.insert("aborted".to_owned(), json!(false));
    }
    let params = json!({"namespaceId": namespace, "context": context});
    match plugin.request("namespaces/createScope", params, CREATE_TIMEOUT, ProgressSink::default()).await {
        Ok(Ok(answer)) => {
            let scope = answer.result.get("scope").ok_or("the answer has no `scope`")?;
            read_scope(scope, tools)
        }
        Ok(Err(error)) => Err(explain(&error, CREATE_TIMEOUT, Effects::Reads)),
        Err(why) => Err(why.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use contract::limits::MAX_PLUGIN_SCOPES;
    use contract::scope::Scope;
    use serde_json::{Value, json};

    use super::{Entries, Entry, ScopeValue, key};

    #[test]
    fn the_oldest_scope_makes_room_for_a_new_one() {
        let mut entries = Entries::default();
        let scope = |number: usize| Scope { session_id: number.to_string(), ..Scope::default() };
        let ready = || Entry::Ready(ScopeValue::Json(Value::Null));
        for number in 0..MAX_PLUGIN_SCOPES {
            assert_eq!(entries.insert(key("n", &scope(number)), ready(), json!(number)), []);
        }
        assert_eq!(entries.insert(key("n", &scope(1)), ready(), json!(1)), [], "it replaces the one that is there");
        let evicted = entries.insert(key("n", &scope(9_999)), ready(), json!(9_999));
        assert_eq!(evicted, [("n".to_owned(), json!(0))]);
        assert_eq!((entries.by_key.len(), entries.order.len()), (MAX_PLUGIN_SCOPES, MAX_PLUGIN_SCOPES));
    }

    #[test]
    fn agents_and_sessions_do_not_share_a_scope() {
        let base = Scope { agent_id: "a".to_owned(), session_id: "s".to_owned(), ..Scope::default() };
        let others = [
            Scope { agent_id: "b".to_owned(), ..base.clone() },
            Scope { session_id: "t".to_owned(), ..base.clone() },
            Scope { session_key: Some("k".to_owned()), ..base.clone() },
            Scope { agent_run_id: "r".to_owned(), ..base.clone() },
        ];
        for other in others {
            assert_ne!(key("n", &base), key("n", &other), "{other:?}");
        }
        assert_ne!(key("n", &base), key("m", &base));
    }
}
