//! The file tools: `read`, `write`, `edit`, `apply_patch`, `ls`, `find` and `grep`.
//!
//! They work only below the declared roots (`core::roots`, `core::beneath`). All of them block, so each call runs on a
//! thread for blocking work; dropping the call makes it stop soon.

mod edit;
mod failure;
mod find;
mod grep;
mod ignore_rules;
mod input;
mod lines;
mod list;
mod open;
mod patch;
mod read;
mod replace;
mod spec;
mod text;
mod walk;
mod write;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use contract::limits::MAX_FILE_CALLS;
use contract::tool::ToolSpec;
use executor::{AuthorizedCall, Outcome, ToolResult};
use telemetry::IncidentId;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::CoreTool;
use super::roots::Roots;
use failure::Failure;
use input::Input;

/// Executes one call on the current thread.
type Work = fn(&Roots, &Input<'_>, &CancelFlag) -> Result<ToolResult, Failure>;

/// A file tool, which executes its calls on threads for blocking work.
struct FileTool {
    spec: ToolSpec,
    work: Work,
    roots: Roots,
    slots: Arc<Semaphore>,
}

/// Returns the file tools for these roots: none without roots, and only those that read if no root may be changed.
pub(super) fn tools(roots: &Roots) -> Vec<Box<dyn CoreTool>> {
    if roots.is_empty() {
        return Vec::new();
    }
    let slots = Arc::new(Semaphore::new(MAX_FILE_CALLS));
    let readers: [(ToolSpecMaker, Work); 4] =
        [(spec::read, read::read), (spec::ls, list::list), (spec::find, find::find), (spec::grep, grep::grep)];
    let writers: [(ToolSpecMaker, Work); 3] =
        [(spec::write, write::write), (spec::edit, edit::edit), (spec::apply_patch, patch::apply_patch)];
    let writers = if roots.is_writable() { writers.as_slice() } else { &[] };
    let make = |(spec, work): &(ToolSpecMaker, Work)| -> Option<Box<dyn CoreTool>> {
        Some(Box::new(FileTool { spec: spec(roots)?, work: *work, roots: roots.clone(), slots: Arc::clone(&slots) }))
    };
    readers.iter().chain(writers).filter_map(make).collect()
}

/// Returns the definition of a tool that works in these roots; `None` only if the name of the tool is not valid.
type ToolSpecMaker = fn(&Roots) -> Option<ToolSpec>;

impl std::fmt::Debug for FileTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileTool").field("id", &self.spec.id).field("roots", &self.roots).finish_non_exhaustive()
    }
}

impl CoreTool for FileTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, call: &'a AuthorizedCall) -> Pin<Box<dyn Future<Output = Outcome> + Send + 'a>> {
        Box::pin(async move {
            let Ok(slot) = Arc::clone(&self.slots).acquire_owned().await else {
                return Outcome::Failed("the process is ending; call the tool again later".to_owned());
            };
            let cancel = CancelFlag::default();
            let _cancelled_on_drop = CancelOnDrop(cancel.clone());
            let (work, roots, input) = (self.work, self.roots.clone(), call.input().clone());
            let done = spawn_blocking(move || {
                // Hold the slot until the work ends, even if the call is dropped.
                let _slot = slot;
                cancel.check().and_then(|()| work(&roots, &Input::of(&input), &cancel))
            });
            match done.await {
                Ok(Ok(returned)) => Outcome::Returned(returned),
                Ok(Err(failure)) => Outcome::Failed(failure.into_message()),
                Err(error) => {
                    let incident = IncidentId::log("execute a file tool", &error);
                    Outcome::Failed(format!("the tool failed because of an internal error (incident {incident})"))
                }
            }
        })
    }
}

/// Whether the call was dropped, so that its work should end.
#[derive(Clone, Debug, Default)]
struct CancelFlag(Arc<AtomicBool>);

impl CancelFlag {
    fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Fails if the call was dropped. No caller receives the message then.
    fn check(&self) -> Result<(), Failure> {
        if self.is_requested() { Err(Failure::new("the call was cancelled")) } else { Ok(()) }
    }
}

struct CancelOnDrop(CancelFlag);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}
