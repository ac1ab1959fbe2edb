//! Seeing a task of a server's to its end.

use executor::Updates;
use serde_json::{Value, json};

use crate::client::server::Server;
use crate::client::task::{self, Seen, Task};
use crate::client::{Request, RequestError};

impl Server {
    /// Looks at a task until it is over. Who stops waiting for it has it cancelled.
    pub(super) async fn follow(&self, task: Task, updates: &Updates) -> Result<Value, String> {
        let mut unfinished = Unfinished { server: self, task, over: false };
        let ended = tokio::time::timeout(task::DEADLINE, self.look_until_over(&mut unfinished.task, updates)).await;
        match ended {
            Ok(ended) => {
                unfinished.over = true;
                ended
            }
            Err(_) => {
                let minutes = task::DEADLINE.as_secs() / 60;
                Err(format!("its task was not over within {minutes} minutes, so it was cancelled"))
            }
        }
    }

    async fn look_until_over(&self, task: &mut Task, updates: &Updates) -> Result<Value, String> {
        let (mut failed, mut told) = (0, None);
        loop {
            tokio::time::sleep(task.pause).await;
            let look = match self.ask("tasks/get", task).await {
                Ok(look) => look,
                // The task goes on whatever becomes of one look at it.
                Err(RequestError::Deadline(_) | RequestError::Refused { code: 0 | 429 | 500..=599, .. })
                    if failed < task::MAX_FAILED_LOOKS =>
                {
                    failed += 1;
                    continue;
                }
                Err(error) => return Err(self.explain(error)),
            };
            failed = 0;
            match task.seen(&look) {
                Seen::Working { said } => {
                    if let Some(said) = said.filter(|said| told.as_ref() != Some(said)) {
                        updates.send(json!({"message": said}));
                        told = Some(said);
                    }
                }
                Seen::Done(result) => return Ok(result),
                Seen::Fetch => return self.ask("tasks/result", task).await.map_err(|error| self.explain(error)),
                Seen::Failed(why) => return Err(why),
            }
        }
    }

    async fn ask(&self, method: &'static str, task: &Task) -> Result<Value, RequestError> {
        self.session.request(Request::plain(method, task.named(), self.limits.call)).await
    }
}

/// A task that is not over: dropped, it is cancelled at the server.
struct Unfinished<'a> {
    server: &'a Server,
    task: Task,
    over: bool,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.server.session.send_later("tasks/cancel", self.task.named());
        }
    }
}
