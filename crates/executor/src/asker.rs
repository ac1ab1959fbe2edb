//! The channel by which a running tool sends questions to the executor, which asks people.

use tokio::sync::{mpsc, oneshot};

use crate::ask::{Answer, Question};
use crate::listener::StateSink;

/// The number of questions of one call that may wait; they are asked one at a time.
const MAX_WAITING: usize = 8;

/// Sends a running tool's questions to the executor.
#[derive(Clone, Debug, Default)]
pub struct QuestionSender(Option<mpsc::Sender<PendingQuestion>>);

#[derive(Debug)]
pub(crate) struct PendingQuestion {
    pub(crate) ask: Question,
    pub(crate) reply: oneshot::Sender<Option<Answer>>,
}

impl QuestionSender {
    /// Creates a sender and its receiver. The sender is disabled when nothing observes the call's state: the question
    /// would never be answered.
    pub(crate) fn of(states: &StateSink) -> (Self, mpsc::Receiver<PendingQuestion>) {
        let (asker, asked) = mpsc::channel(MAX_WAITING);
        (Self(states.0.is_some().then_some(asker)), asked)
    }

    /// Asks a question and waits for the answer. `None` if it could not be asked or was not answered in time.
    pub async fn ask(&self, ask: Question) -> Option<Answer> {
        let (reply, answered) = oneshot::channel();
        self.0.as_ref()?.try_send(PendingQuestion { ask, reply }).ok()?;
        answered.await.ok().flatten()
    }
}
