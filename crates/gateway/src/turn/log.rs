//! What a client receives of a turn, as a log that several connections can read from its beginning.
//!
//! A turn does not wait for its clients: it appends to the log, and each connection reads at its own pace. A log ends when
//! the turn has no more to send until the client sends another request.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use wire::conversation::{StopReason, Usage};
use wire::downstream::ClientCall;
use wire::upstream::{ModelEvent, PARAGRAPH};

/// The bytes of text that one log keeps. A model's response has at most half of them.
pub const MAX_LOG_BYTES: usize = 64 << 20;

/// An event of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnEvent {
    /// A part of the visible text.
    Text(String),
    /// A part of the model's reasoning that may be shown.
    Reasoning(String),
    /// The end of the log; always the last event.
    End(LogEnd),
}

/// How a log ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogEnd {
    /// The model is done.
    Done { stop: StopReason, usage: Usage },
    /// The client is asked to make these calls and to send their results.
    Calls { calls: Vec<ClientCall>, usage: Usage },
    Failed {
        status: u16,
        message: String,
        /// Whether the turn has made calls, which a repeated request would make again.
        has_effects: bool,
        /// The seconds after which a repeated request may succeed, if that is known.
        retry_after: Option<u64>,
    },
}

/// A log that a turn appends to.
#[derive(Clone, Debug)]
pub struct TurnLog {
    shared: Arc<SharedLog>,
}

#[derive(Debug)]
struct SharedLog {
    state: Mutex<State>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    events: Vec<TurnEvent>,
    bytes: usize,
    is_over: bool,
}

impl Default for TurnLog {
    fn default() -> Self {
        Self { shared: Arc::new(SharedLog { state: Mutex::default(), changed: watch::Sender::new(0) }) }
    }
}

impl TurnLog {
    /// Appends visible text. Text above the limit is dropped: the end of the log then reports a failure.
    pub fn text(&self, text: &str) {
        self.append(TurnEvent::Text(text.to_owned()), text.len());
    }

    pub fn reasoning(&self, text: &str) {
        self.append(TurnEvent::Reasoning(text.to_owned()), text.len());
    }

    /// Appends what was said in an earlier process.
    pub fn append_all(&self, said: &[ModelEvent]) {
        for event in said {
            match event {
                ModelEvent::Text(text) => self.text(text),
                ModelEvent::Reasoning(text) => self.reasoning(text),
            }
        }
    }

    /// Ends the log. Later events are ignored.
    pub fn end(&self, end: LogEnd) {
        let mut state = self.shared.state.lock();
        if !state.is_over {
            state.is_over = true;
            let end = if state.bytes > MAX_LOG_BYTES {
                let message = format!("the response has more than {MAX_LOG_BYTES} bytes of text");
                LogEnd::Failed { status: 500, message, has_effects: true, retry_after: None }
            } else {
                end
            };
            state.events.push(TurnEvent::End(end));
        }
        drop(state);
        self.notify();
    }

    fn append(&self, event: TurnEvent, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let mut state = self.shared.state.lock();
        state.bytes = state.bytes.saturating_add(bytes);
        if !state.is_over && state.bytes <= MAX_LOG_BYTES {
            state.events.push(event);
        }
        drop(state);
        self.notify();
    }

    fn notify(&self) {
        self.shared.changed.send_modify(|version| *version = version.wrapping_add(1));
    }

    /// Returns the text that was appended so far.
    pub fn visible_text(&self) -> String {
        let state = self.shared.state.lock();
        let text = |event: &TurnEvent| match event {
            TurnEvent::Text(text) => Some(text.clone()),
            TurnEvent::Reasoning(_) | TurnEvent::End(_) => None,
        };
        state.events.iter().filter_map(text).collect()
    }

    /// Returns what was appended so far, without the end.
    pub fn said(&self) -> Vec<ModelEvent> {
        let state = self.shared.state.lock();
        let said = |event: &TurnEvent| match event {
            TurnEvent::Text(text) => Some(ModelEvent::Text(text.clone())),
            TurnEvent::Reasoning(text) => Some(ModelEvent::Reasoning(text.clone())),
            TurnEvent::End(_) => None,
        };
        state.events.iter().filter_map(said).collect()
    }

    /// Appends what a model says in one response. The first piece of each kind begins a paragraph of its own.
    pub fn speaker(&self) -> Speaker {
        Speaker { log: self.clone(), has_text: false, has_reasoning: false }
    }

    fn separator(&self, kind: &ModelEvent) -> &'static str {
        let state = self.shared.state.lock();
        let follows = match kind {
            ModelEvent::Text(_) => state.events.iter().any(|event| matches!(event, TurnEvent::Text(_))),
            ModelEvent::Reasoning(_) => matches!(state.events.last(), Some(TurnEvent::Reasoning(_))),
        };
        if follows { PARAGRAPH } else { "" }
    }

    /// Returns a reader that starts at the beginning.
    pub fn read(&self) -> LogReader {
        LogReader { shared: Arc::clone(&self.shared), changed: self.shared.changed.subscribe(), next: 0 }
    }

    /// Returns the number of readers.
    pub fn readers(&self) -> usize {
        self.shared.changed.receiver_count()
    }

    /// Completes when the log has had no reader for as long as `changed` is polled and none is left.
    pub async fn without_readers(&self) {
        self.shared.changed.closed().await;
    }
}

/// Appends one response of a model to a log.
#[derive(Debug)]
pub struct Speaker {
    log: TurnLog,
    has_text: bool,
    has_reasoning: bool,
}

impl Speaker {
    pub fn say(&mut self, event: &ModelEvent) {
        let is_first = match event {
            ModelEvent::Text(_) => !std::mem::replace(&mut self.has_text, true),
            ModelEvent::Reasoning(_) => !std::mem::replace(&mut self.has_reasoning, true),
        };
        let separator = if is_first { self.log.separator(event) } else { "" };
        match event {
            ModelEvent::Text(text) => {
                self.log.text(separator);
                self.log.text(text);
            }
            ModelEvent::Reasoning(text) => {
                self.log.reasoning(separator);
                self.log.reasoning(text);
            }
        }
    }

    /// Returns whether the response has visible text, which cannot be taken back.
    pub fn has_text(&self) -> bool {
        self.has_text
    }
}

/// A reader of a log, at its own position.
#[derive(Debug)]
pub struct LogReader {
    shared: Arc<SharedLog>,
    changed: watch::Receiver<u64>,
    next: usize,
}

impl LogReader {
    /// Returns the events since the last call; waits if there are none. Returns nothing after the end.
    pub async fn next(&mut self) -> Vec<TurnEvent> {
        loop {
            self.changed.mark_unchanged();
            {
                let state = self.shared.state.lock();
                let new: Vec<TurnEvent> = state.events.iter().skip(self.next).cloned().collect();
                self.next += new.len();
                if !new.is_empty() || state.is_over {
                    return new;
                }
            }
            // The sender lives as long as this reader.
            if self.changed.changed().await.is_err() {
                return Vec::new();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::conversation::{StopReason, Usage};

    use wire::upstream::ModelEvent;

    use super::{LogEnd, TurnEvent, TurnLog};

    fn done() -> LogEnd {
        LogEnd::Done { stop: StopReason::EndTurn, usage: Usage::default() }
    }

    #[tokio::test]
    async fn every_reader_gets_all_events_from_the_beginning() {
        let log = TurnLog::default();
        log.text("a");
        let mut first = log.read();
        assert_eq!(first.next().await, [TurnEvent::Text("a".into())]);
        log.reasoning("r");
        log.text("b");
        log.end(done());
        log.text("ignored");
        let all = [
            TurnEvent::Text("a".into()),
            TurnEvent::Reasoning("r".into()),
            TurnEvent::Text("b".into()),
            TurnEvent::End(done()),
        ];
        assert_eq!(first.next().await, all[1..]);
        assert_eq!(first.next().await, []);
        assert_eq!(log.read().next().await, all);
        assert_eq!(log.visible_text(), "ab");
    }

    #[test]
    fn each_response_of_a_model_begins_a_paragraph() {
        let (text, reasoning) =
            (|text: &str| ModelEvent::Text(text.into()), |text: &str| ModelEvent::Reasoning(text.into()));
        let log = TurnLog::default();
        let mut first = log.speaker();
        first.say(&reasoning("a"));
        first.say(&reasoning("b"));
        log.speaker().say(&reasoning("c"));
        let mut third = log.speaker();
        third.say(&text("d"));
        third.say(&text("e"));
        assert!(third.has_text() && !first.has_text());
        let mut fourth = log.speaker();
        fourth.say(&reasoning("f"));
        fourth.say(&text("g"));
        let said: String = log
            .said()
            .into_iter()
            .map(|event| match event {
                ModelEvent::Text(text) => text,
                ModelEvent::Reasoning(text) => format!("({text})"),
            })
            .collect();
        assert_eq!(said, "(a)(b)(\n\n)(c)de(f)\n\ng");
        assert_eq!(log.visible_text(), "de\n\ng");
    }

    #[tokio::test]
    async fn a_log_whose_last_reader_is_dropped_has_none() {
        let log = TurnLog::default();
        let (one, two) = (log.read(), log.read());
        drop(one);
        assert_eq!(log.readers(), 1);
        drop(two);
        log.without_readers().await;
        assert_eq!(log.readers(), 0);
    }

    #[tokio::test]
    async fn a_log_that_exceeds_its_limit_ends_with_a_failure() {
        let log = TurnLog::default();
        let large = "x".repeat(super::MAX_LOG_BYTES);
        log.text(&large);
        log.text("y");
        log.end(done());
        let events = log.read().next().await;
        assert!(matches!(events.last(), Some(TurnEvent::End(LogEnd::Failed { status: 500, .. }))));
    }
}
