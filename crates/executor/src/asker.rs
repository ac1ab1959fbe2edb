//! The line between a tool that has questions while it is at work and whoever puts them to people.

use std::fmt;
use std::sync::Arc;

use contract::cell::PendingState;
use tokio::sync::{mpsc, oneshot};

use crate::ask::{Answered, Ask};

/// Questions of one call that wait to be asked; they are asked one after the other.
const MAX_WAITING: usize = 8;

/// Where a tool puts its questions.
#[derive(Clone, Debug, Default)]
pub struct Asker(Option<mpsc::Sender<Asked>>);

#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) ask: Ask,
    pub(crate) tell: oneshot::Sender<Option<Answered>>,
}

impl Asker {
    /// One that asks, where anybody is told that its call waits for a person: who is not would wait for nothing.
    pub(crate) fn of(states: &States) -> (Self, mpsc::Receiver<Asked>) {
        let (asker, asked) = mpsc::channel(MAX_WAITING);
        (Self(states.0.is_some().then_some(asker)), asked)
    }

    /// None where nobody answers: they cannot be asked, or had no more time to.
    pub async fn ask(&self, ask: Ask) -> Option<Answered> {
        let (tell, told) = oneshot::channel();
        self.0.as_ref()?.try_send(Asked { ask, tell }).ok()?;
        told.await.ok().flatten()
    }
}

/// Whoever is to know with whom a call is while it is being made.
#[derive(Clone, Default)]
pub struct States(Option<Arc<dyn Fn(PendingState) + Send + Sync>>);

impl fmt::Debug for States {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "States(told)" } else { "States(nobody)" })
    }
}

impl States {
    pub fn to(listener: impl Fn(PendingState) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(listener)))
    }

    pub(crate) fn tell(&self, state: PendingState) {
        if let Some(listener) = &self.0 {
            listener(state);
        }
    }
}
