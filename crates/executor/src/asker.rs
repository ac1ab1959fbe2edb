//! The line between a tool that has questions while it is at work and whoever puts them to people.

use tokio::sync::{mpsc, oneshot};

use crate::ask::{Answered, Ask};
use crate::listener::States;

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
