//! The line between a tool that has questions while it is at work and whoever puts them to people.

use tokio::sync::{mpsc, oneshot};

use crate::ask::{Answer, Question};
use crate::listener::StateSink;

/// Questions of one call that wait to be asked; they are asked one after the other.
const MAX_WAITING: usize = 8;

/// Where a tool puts its questions.
#[derive(Clone, Debug, Default)]
pub struct QuestionSender(Option<mpsc::Sender<PendingQuestion>>);

#[derive(Debug)]
pub(crate) struct PendingQuestion {
    pub(crate) ask: Question,
    pub(crate) tell: oneshot::Sender<Option<Answer>>,
}

impl QuestionSender {
    /// One that asks, where anybody is told that its call waits for a person: who is not would wait for nothing.
    pub(crate) fn of(states: &StateSink) -> (Self, mpsc::Receiver<PendingQuestion>) {
        let (asker, asked) = mpsc::channel(MAX_WAITING);
        (Self(states.0.is_some().then_some(asker)), asked)
    }

    /// None where nobody answers: they cannot be asked, or had no more time to.
    pub async fn ask(&self, ask: Question) -> Option<Answer> {
        let (tell, told) = oneshot::channel();
        self.0.as_ref()?.try_send(PendingQuestion { ask, tell }).ok()?;
        told.await.ok().flatten()
    }
}
