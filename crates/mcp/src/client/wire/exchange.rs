//! An HTTP request and everything that is received for it.

use std::time::Duration;

use process::{Envelope, LargeMessages};
use telemetry::LogIgnored;
use tokio::sync::mpsc;

use crate::client::disconnect::DisconnectReason;
use crate::client::http::{Answer, Body, Caller, Content, Event, Events, Failure, PostRequest};

/// What the tasks of a connection have received.
#[derive(Debug)]
pub(super) enum Arrival {
    Message(Body),
    /// The request with this id failed; without an id, the connection itself.
    Failed(Option<i64>, Failure),
}

/// How often in a row a stream is resumed without receiving a message.
const MAX_RESUMES: u32 = 5;

/// How often in a row opening the stream of server-initiated messages may fail before the client stops trying.
const MAX_LISTENS: u32 = 8;

/// The default pause between attempts, doubled each time. A server may ask for another one.
const PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Sends a message and forwards its response. `id` is `None` if no response is expected.
pub(super) async fn exchange(caller: &Caller, id: Option<i64>, posted: &PostRequest, sender: &mpsc::Sender<Arrival>) {
    let ended = match caller.post(posted).await {
        Ok(Answer::Accepted) => Err(Failure::Lost),
        Ok(Answer::Message(message)) => {
            forward(sender, Arrival::Message(message)).await;
            Ok(())
        }
        Ok(Answer::Stream(events)) => follow(caller, (id, posted.large), *events, sender).await,
        Err(failure) => Err(failure),
    };
    match (ended, id) {
        (Err(failure @ Failure::Closed(_)), id) => forward(sender, Arrival::Failed(id, failure)).await,
        (Err(failure), Some(id)) => forward(sender, Arrival::Failed(Some(id), failure)).await,
        // A failed notification is not reported.
        (Ok(()) | Err(_), _) => {}
    }
}

/// Passes something on to the transport. If the transport has been dropped, nothing waits for it.
async fn forward(sender: &mpsc::Sender<Arrival>, arrived: Arrival) {
    sender.send(arrived).await.log_expected("pass on a message of a closed connection");
}

/// Forwards the messages of a stream until the response is among them. A stream that breaks off after an event with an
/// id is resumed if the server keeps sessions.
async fn follow(
    caller: &Caller,
    (id, large): (Option<i64>, LargeMessages),
    mut events: Events,
    sender: &mpsc::Sender<Arrival>,
) -> Result<(), Failure> {
    let mut stream = Stream::default();
    let mut resumes = 0;
    loop {
        match stream.drain(&mut events, id, sender).await {
            Ok(DrainEnd::Answer) => return Ok(()),
            Ok(DrainEnd::Ended { had_messages: true }) => resumes = 0,
            Ok(DrainEnd::Ended { .. }) | Err(Failure::Lost) => {}
            Err(failure) => return Err(failure),
        }
        events = loop {
            let (Some(after), true, true) = (&stream.last, caller.has_session(), resumes < MAX_RESUMES) else {
                return Err(Failure::Lost);
            };
            tokio::time::sleep(stream.pause(resumes)).await;
            resumes += 1;
            match caller.listen(Some(after), large).await {
                Ok(events) => break events,
                Err(failure @ (Failure::Closed(_) | Failure::TooLong)) => return Err(failure),
                Err(_) => {}
            }
        };
    }
}

/// Forwards the server-initiated messages of the older revisions until the stream fails permanently.
pub(super) async fn listen(caller: &Caller, sender: &mpsc::Sender<Arrival>) {
    let mut stream = Stream::default();
    let mut failures = 0;
    while failures < MAX_LISTENS {
        let drained = match caller.listen(stream.last.as_deref(), LargeMessages::Refused).await {
            Ok(mut events) => stream.drain(&mut events, None, sender).await,
            Err(failure) => Err(failure),
        };
        match drained {
            Ok(DrainEnd::Answer | DrainEnd::Ended { had_messages: true }) => failures = 0,
            Ok(DrainEnd::Ended { had_messages: false }) | Err(Failure::Lost) => failures += 1,
            // The server may be reachable again in a moment; if not, the next call reports it.
            Err(Failure::Closed(DisconnectReason::Unreachable(_))) if failures < 2 => failures += 1,
            Err(failure @ (Failure::Closed(_) | Failure::TooLong)) => {
                forward(sender, Arrival::Failed(None, failure)).await;
                return;
            }
            // Most servers have no such stream.
            Err(Failure::Status { .. } | Failure::Refused(_) | Failure::InvalidMessage) => return,
        }
        tokio::time::sleep(stream.pause(failures)).await;
    }
}

/// The position in a stream, across all connections that carry it.
#[derive(Debug, Default)]
struct Stream {
    last: Option<String>,
    retry: Option<Duration>,
}

enum DrainEnd {
    Answer,
    Ended { had_messages: bool },
}

impl Stream {
    async fn drain(
        &mut self,
        events: &mut Events,
        id: Option<i64>,
        sender: &mpsc::Sender<Arrival>,
    ) -> Result<DrainEnd, Failure> {
        let mut had_messages = false;
        while let Some(event) = events.next().await? {
            let Event { data, id: at, retry_ms, large } = event;
            let content = match large {
                Some(large) => Content::Large(large.into_message()),
                None => Content::Whole(data),
            };
            let envelope = Envelope::scan(content.text());
            let answers = id.is_some() && envelope.and_then(|envelope| envelope.response_id()) == id;
            self.last = at.or(self.last.take());
            self.retry = retry_ms.map(Duration::from_millis).or(self.retry);
            if content.text().trim_ascii().is_empty() {
                continue;
            }
            had_messages = true;
            // The message counts towards the limit until it is parsed, because it is in memory.
            forward(sender, Arrival::Message(events.body(content)?)).await;
            if answers {
                return Ok(DrainEnd::Answer);
            }
        }
        Ok(DrainEnd::Ended { had_messages })
    }

    fn pause(&self, times: u32) -> Duration {
        let ours = PAUSE.saturating_mul(1 << times.min(16));
        self.retry.unwrap_or(ours).clamp(Duration::from_millis(10), MAX_PAUSE)
    }
}
