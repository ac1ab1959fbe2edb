//! One request to an address and all that comes back for it.

use std::time::Duration;

use tokio::sync::mpsc;

use crate::client::closed::Closed;
use crate::client::envelope::Envelope;
use crate::client::http::{Answer, Body, Caller, Event, Events, Failure, Posted};

/// What the tasks of a connection bring.
#[derive(Debug)]
pub(super) enum Arrived {
    Message(Body),
    /// Nothing more comes for this request; for the connection itself where it names none.
    Failed(Option<i64>, Failure),
}

/// Times in a row that a stream is taken up again without bringing anything.
const MAX_RESUMES: u32 = 5;

/// Times in a row that the stream of unasked messages cannot be had before nobody tries any more.
const MAX_LISTENS: u32 = 8;

/// Between attempts, where the server does not say; doubled each time.
const PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Sends a message and brings its answer. `id` is none where no answer is due.
pub(super) async fn make(caller: &Caller, id: Option<i64>, posted: &Posted, tell: &mpsc::Sender<Arrived>) {
    let ended = match caller.post(posted).await {
        Ok(Answer::Accepted) => Err(Failure::Lost),
        Ok(Answer::Message(message)) => {
            drop(tell.send(Arrived::Message(message)).await);
            Ok(())
        }
        Ok(Answer::Stream(events)) => follow(caller, id, *events, tell).await,
        Err(failure) => Err(failure),
    };
    match (ended, id) {
        (Err(failure @ Failure::Closed(_)), id) => drop(tell.send(Arrived::Failed(id, failure)).await),
        (Err(failure), Some(id)) => drop(tell.send(Arrived::Failed(Some(id), failure)).await),
        // Of a notification nobody hears whether it was liked.
        (Ok(()) | Err(_), _) => {}
    }
}

/// Brings the messages of a stream until the answer is among them. A stream that breaks off after an event with an id
/// is taken up again where the server keeps sessions.
async fn follow(
    caller: &Caller,
    id: Option<i64>,
    mut events: Events,
    tell: &mpsc::Sender<Arrived>,
) -> Result<(), Failure> {
    let mut stream = Stream::default();
    let mut resumes = 0;
    loop {
        match stream.drain(&mut events, id, tell).await {
            Ok(Drained::Answer) => return Ok(()),
            Ok(Drained::Ended { brought }) if brought => resumes = 0,
            Ok(Drained::Ended { .. }) | Err(Failure::Lost) => {}
            Err(failure) => return Err(failure),
        }
        events = loop {
            let (Some(after), true, true) = (&stream.last, caller.has_session(), resumes < MAX_RESUMES) else {
                return Err(Failure::Lost);
            };
            tokio::time::sleep(stream.pause(resumes)).await;
            resumes += 1;
            match caller.listen(Some(after)).await {
                Ok(events) => break events,
                Err(failure @ Failure::Closed(_)) => return Err(failure),
                Err(_) => {}
            }
        };
    }
}

/// Brings what a server of the older revisions says unasked, for as long as it does.
pub(super) async fn listen(caller: &Caller, tell: &mpsc::Sender<Arrived>) {
    let mut stream = Stream::default();
    let mut failures = 0;
    while failures < MAX_LISTENS {
        let drained = match caller.listen(stream.last.as_deref()).await {
            Ok(mut events) => stream.drain(&mut events, None, tell).await,
            Err(failure) => Err(failure),
        };
        match drained {
            Ok(Drained::Answer | Drained::Ended { brought: true }) => failures = 0,
            Ok(Drained::Ended { brought: false }) | Err(Failure::Lost) => failures += 1,
            // It may be back in a moment; a call would find out the same.
            Err(Failure::Closed(Closed::Unreachable)) if failures < 2 => failures += 1,
            Err(failure @ Failure::Closed(_)) => {
                drop(tell.send(Arrived::Failed(None, failure)).await);
                return;
            }
            // Most have no such stream.
            Err(Failure::Status { .. } | Failure::Refused(_) | Failure::Confused) => return,
        }
        tokio::time::sleep(stream.pause(failures)).await;
    }
}

/// Where a stream stands, over all connections that carry it.
#[derive(Debug, Default)]
struct Stream {
    last: Option<String>,
    retry: Option<Duration>,
}

enum Drained {
    Answer,
    Ended { brought: bool },
}

impl Stream {
    async fn drain(
        &mut self,
        events: &mut Events,
        id: Option<i64>,
        tell: &mpsc::Sender<Arrived>,
    ) -> Result<Drained, Failure> {
        let mut brought = false;
        while let Some(event) = events.next().await? {
            let Event { data, id: at, retry_ms } = event;
            let answers = id.is_some() && Envelope::scan(&data).and_then(|envelope| envelope.response_id()) == id;
            self.last = at.or(self.last.take());
            self.retry = retry_ms.map(Duration::from_millis).or(self.retry);
            if data.trim_ascii().is_empty() {
                continue;
            }
            brought = true;
            // Counted until it is read: what waits here is in memory.
            drop(tell.send(Arrived::Message(events.body(data)?)).await);
            if answers {
                return Ok(Drained::Answer);
            }
        }
        Ok(Drained::Ended { brought })
    }

    fn pause(&self, times: u32) -> Duration {
        let ours = PAUSE.saturating_mul(1 << times.min(16));
        self.retry.unwrap_or(ours).clamp(Duration::from_millis(10), MAX_PAUSE)
    }
}
