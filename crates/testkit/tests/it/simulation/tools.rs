//! The world outside the nodes: tools whose effects remain when the calling node crashes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use contract::ids::{CallId, RunId};
use contract::tool::{Repeat, ToolId, ToolSpec};
use executor::{AuthorizedCall, CallFuture, Dispatch, Outcome, ParkedOn, ToolResult, ToolSource};
use serde_json::{Value, json};

use super::programs::Kind;

/// An effect of a tool.
#[derive(Clone, Debug)]
pub(super) struct Effect {
    pub kind: Kind,
    pub key: String,
    pub run: RunId,
    pub call: CallId,
    pub input: Value,
}

/// All effects and log lines of a history, in order; shared by its nodes.
#[derive(Debug, Default)]
pub(super) struct World {
    effects: Mutex<Vec<Effect>>,
    log: Mutex<Vec<String>>,
}

impl World {
    pub(super) fn effects(&self) -> MutexGuard<'_, Vec<Effect>> {
        self.effects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn log(&self, line: String) {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    pub(super) fn log_lines(&self) -> Vec<String> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The tool source of one node.
#[derive(Debug)]
pub(super) struct Tools {
    pub node: String,
    pub world: Arc<World>,
    /// A crashed node makes no more calls.
    pub dead: Arc<AtomicBool>,
}

impl ToolSource for Tools {
    fn tools(&self) -> Vec<ToolSpec> {
        let tool = |kind: Kind| {
            let repeat = match kind {
                Kind::Read => Repeat::Always,
                Kind::Keyed => Repeat::WithKey,
                Kind::Slow | Kind::Fails | Kind::Task | Kind::Pick | Kind::Ask => Repeat::Never,
            };
            let id = ToolId::parse(&kind.tool()).unwrap();
            ToolSpec { repeat, ..ToolSpec::new(id, "Has an effect.", json!({"type": "object"})) }
        };
        Kind::ALL.map(tool).to_vec()
    }

    fn call(&self, call: AuthorizedCall) -> CallFuture<'_> {
        Box::pin(async move {
            if self.dead.load(Ordering::Relaxed) {
                return std::future::pending().await;
            }
            let kind = *Kind::ALL.iter().find(|kind| kind.tool() == call.id().as_str()).unwrap();
            let (run, number) = (call.token().run.clone(), call.token().call);
            self.world.log(format!("{}: {} of {run}, call {number}: {}", self.node, kind.name(), call.input()));
            let (key, input) = (call.key().to_owned(), call.input().clone());
            self.world.effects().push(Effect { kind, key, run, call: number, input });
            let ms = call.input().get("ms").and_then(Value::as_u64).unwrap_or(0);
            tokio::time::sleep(Duration::from_millis(ms)).await;
            match kind {
                Kind::Task => Dispatch::Parked(ParkedOn::Task),
                Kind::Pick => Dispatch::Parked(ParkedOn::Client),
                Kind::Fails => Dispatch::Settled(Outcome::Failed("it does that".to_owned())),
                Kind::Slow | Kind::Read | Kind::Keyed | Kind::Ask => {
                    Dispatch::Settled(Outcome::Returned(ToolResult::json(json!({"did": call.input()}))))
                }
            }
        })
    }
}
