//! `GET /api/v1/events`: changes of runs, turns, approvals and sessions, as server-sent events without contents.
//!
//! One task reads from the store what has changed, whichever process changed it, and appends it to a bounded ring. A
//! connection reads the ring at its own pace. A client that is too slow, or that resumes too late, receives `reset`, and
//! must read everything again.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use contract::ids::ApprovalId;
use executor::clock::now_ms;
use parking_lot::Mutex;
use serde_json::json;
use store::{ApprovalState, ChangedKind, ChangedRow, Millis, Store, StoreError};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Api;
use super::access::Viewer;
use super::error::ApiError;
use super::limits::{
    CLOCK_SKEW_MS, EVENT_KEEP_ALIVE, EVENT_READ_INTERVAL, EVENTS_PER_WRITE, MAX_CHANGED_ROWS, MAX_EVENTS, MAX_STREAMS,
    MAX_STREAMS_PER_PRINCIPAL,
};

/// An event without its number.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Event {
    kind: &'static str,
    id: String,
    state: String,
    session_id: String,
    owner: Option<String>,
    at: Millis,
}

impl Event {
    fn of(row: &ChangedRow) -> Self {
        let kind = match row.kind {
            ChangedKind::Run => "run",
            ChangedKind::Turn => "turn",
            ChangedKind::Approval => "approval",
        };
        Self {
            kind,
            id: row.id.clone(),
            state: row.state.clone(),
            session_id: row.session_id.clone(),
            owner: row.owner.clone(),
            at: row.at,
        }
    }

    fn session(row: &ChangedRow) -> Self {
        let (id, state) = (row.session_id.clone(), "changed".to_owned());
        Self { kind: "session", id, state, ..Self::of(row) }
    }

    fn frame(&self, event_id: &str) -> String {
        let data = json!({
            "type": self.kind, "id": self.id, "state": self.state, "sessionId": self.session_id, "at": self.at,
        });
        format!("id: {event_id}\nevent: {}\ndata: {data}\n\n", self.kind)
    }
}

/// The last events. They are numbered from 1.
#[derive(Debug)]
struct Ring {
    events: VecDeque<Event>,
    /// The number of the next event.
    next: u64,
    most: usize,
}

impl Ring {
    fn new(most: usize) -> Self {
        Self { events: VecDeque::new(), next: 1, most }
    }

    fn push(&mut self, event: Event) {
        self.events.push_back(event);
        self.next += 1;
        while self.events.len() > self.most {
            self.events.pop_front();
        }
    }

    /// Forgets all events, so that every reader has missed some.
    fn clear(&mut self) {
        self.events.clear();
        self.next += 1;
    }

    /// Returns the number of the oldest event that is kept.
    fn oldest(&self) -> u64 {
        self.next - self.events.len() as u64
    }

    /// Returns the events from a number on, with their numbers; `None` if some of them are not kept any more.
    fn from(&self, number: u64) -> Option<impl Iterator<Item = (u64, &Event)>> {
        let oldest = self.oldest();
        if number < oldest || number > self.next {
            return None;
        }
        let skipped = usize::try_from(number - oldest).unwrap_or(usize::MAX);
        Some((number..).zip(self.events.iter().skip(skipped)))
    }
}

/// The state of runs, turns and approvals as the last reads of the store returned it.
#[derive(Debug)]
struct StoreView {
    since: Millis,
    rows: HashMap<(ChangedKind, String), (String, Millis)>,
    pending: HashMap<String, ChangedRow>,
}

impl StoreView {
    fn new(now: Millis) -> Self {
        Self { since: now.saturating_sub(CLOCK_SKEW_MS), rows: HashMap::new(), pending: HashMap::new() }
    }

    /// Returns the events of runs and turns that changed since the last read.
    fn rows(&mut self, rows: &[ChangedRow]) -> Vec<Event> {
        let mut events = Vec::new();
        let mut sessions = BTreeSet::new();
        for row in rows {
            let key = (row.kind, row.id.clone());
            let former = self.rows.insert(key, (row.state.clone(), row.at));
            // What runs changes often, and its state says that it does.
            let is_news = former.is_none_or(|(state, at)| state != row.state || (at != row.at && state != "running"));
            if !is_news {
                continue;
            }
            events.push(Event::of(row));
            if row.kind == ChangedKind::Turn && sessions.insert(row.session_id.as_str()) {
                events.push(Event::session(row));
            }
        }
        if let Some(last) = rows.iter().map(|row| row.at).max() {
            self.since = self.since.max(last.saturating_sub(CLOCK_SKEW_MS));
        }
        let since = self.since;
        self.rows.retain(|_, (_, at)| *at >= since);
        events
    }

    /// Returns the events of new approvals, and the approvals that are no longer pending.
    fn approvals(&mut self, pending: Vec<ChangedRow>) -> (Vec<Event>, Vec<ChangedRow>) {
        let pending: HashMap<String, ChangedRow> = pending.into_iter().map(|row| (row.id.clone(), row)).collect();
        let mut new: Vec<&ChangedRow> = pending.values().filter(|row| !self.pending.contains_key(&row.id)).collect();
        new.sort_by_key(|row| row.at);
        let events = new.into_iter().map(Event::of).collect();
        let over = self.pending.values().filter(|row| !pending.contains_key(&row.id)).cloned().collect();
        self.pending = pending;
        (events, over)
    }

    /// Reads what has changed. `None` if it is too much.
    async fn read(&mut self, store: &Store) -> Result<Option<Vec<Event>>, StoreError> {
        let rows = store.changed_since(self.since, MAX_CHANGED_ROWS).await?;
        let pending = store.pending_approval_rows(MAX_CHANGED_ROWS).await?;
        let mut events = self.rows(&rows);
        let (asked, over) = self.approvals(pending);
        events.extend(asked);
        for row in over {
            let state = store.approval(&ApprovalId::new(row.id.clone())).await?;
            let state = state.map_or(ApprovalState::Void, |approval| approval.state);
            events.push(Event::of(&ChangedRow { state: state.as_str().to_owned(), at: now_ms(), ..row }));
        }
        let most = usize::try_from(MAX_CHANGED_ROWS).unwrap_or(usize::MAX);
        Ok((rows.len() < most).then_some(events))
    }
}

/// The events of this process and the connections that read them.
#[derive(Debug)]
pub(crate) struct EventHub {
    store: Store,
    stop: CancellationToken,
    /// Tells the events of this process from those of its predecessors.
    epoch: String,
    ring: Mutex<Ring>,
    changed: watch::Sender<u64>,
    is_started: AtomicBool,
    streams: Arc<Mutex<HashMap<String, usize>>>,
}

impl EventHub {
    pub(super) fn new(store: Store, stop: CancellationToken) -> Self {
        // Without randomness, the time still differs from that of the process before.
        let epoch = crate::random::id().unwrap_or_else(|_| now_ms().to_string());
        Self {
            store,
            stop,
            epoch,
            ring: Mutex::new(Ring::new(MAX_EVENTS)),
            changed: watch::Sender::new(0),
            is_started: AtomicBool::new(false),
            streams: Arc::default(),
        }
    }

    /// Starts the task that reads the store, with the first stream.
    fn start(self: &Arc<Self>) {
        if !self.is_started.swap(true, Ordering::AcqRel) {
            tokio::spawn(follow_store(Arc::downgrade(self), StoreView::new(now_ms())));
        }
    }

    fn publish(&self, events: Option<Vec<Event>>) {
        let mut ring = self.ring.lock();
        match events {
            Some(events) if events.is_empty() => return,
            Some(events) => events.into_iter().for_each(|event| ring.push(event)),
            None => ring.clear(),
        }
        drop(ring);
        self.changed.send_modify(|version| *version = version.wrapping_add(1));
    }

    fn event_id(&self, number: u64) -> String {
        format!("{}-{number}", self.epoch)
    }

    /// Returns the number of the event after the one that a client names, if both are of this process.
    fn number_after(&self, last_event_id: &str) -> Option<u64> {
        let number: u64 = last_event_id.strip_prefix(&self.epoch)?.strip_prefix('-')?.parse().ok()?;
        number.checked_add(1)
    }

    fn reset(&self) -> (String, u64) {
        let next = self.ring.lock().next;
        (format!("id: {}\nevent: reset\ndata: {{}}\n\n", self.event_id(next.saturating_sub(1))), next)
    }

    /// Counts a stream of a principal.
    fn open_stream(&self, principal: &str) -> Result<StreamSlot, ApiError> {
        let mut streams = self.streams.lock();
        let all: usize = streams.values().sum();
        let own = streams.entry(principal.to_owned()).or_default();
        if *own >= MAX_STREAMS_PER_PRINCIPAL || all >= MAX_STREAMS {
            let message = format!("too many event streams: one principal may have {MAX_STREAMS_PER_PRINCIPAL}");
            return Err(ApiError::busy(message));
        }
        *own += 1;
        Ok(StreamSlot { streams: Arc::clone(&self.streams), principal: principal.to_owned() })
    }
}

/// A place among the streams that a principal may have open. Dropping it frees the place.
#[derive(Debug)]
struct StreamSlot {
    streams: Arc<Mutex<HashMap<String, usize>>>,
    principal: String,
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let mut streams = self.streams.lock();
        if let Some(own) = streams.get_mut(&self.principal) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                streams.remove(&self.principal);
            }
        }
    }
}

/// Reads the store whenever it has changed, until the hub is dropped.
async fn follow_store(hub: Weak<EventHub>, mut view: StoreView) {
    let Some((mut watch, stop)) = hub.upgrade().map(|hub| (hub.store.watch(), hub.stop.clone())) else { return };
    loop {
        let Some(hub) = hub.upgrade() else { return };
        match view.read(&hub.store).await {
            Ok(events) => hub.publish(events),
            Err(error) => tracing::debug!(error = telemetry::error_chain(&error), "cannot read what has changed"),
        }
        drop(hub);
        let next = async {
            tokio::time::sleep(EVENT_READ_INTERVAL).await;
            watch.next().await
        };
        tokio::select! {
            _ = next => {}
            () = stop.cancelled() => return,
        }
    }
}

/// A connection that reads events.
struct Reader {
    hub: Arc<EventHub>,
    viewer: Viewer,
    changed: watch::Receiver<u64>,
    /// The text that is written before anything else.
    first: Option<String>,
    /// The number of the next event.
    next: u64,
    is_over: bool,
    _slot: StreamSlot,
}

impl Reader {
    /// Returns the next bytes; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(Bytes::from(first));
        }
        loop {
            if self.is_over || self.viewer.caller.revoked.is_cancelled() {
                return None;
            }
            self.changed.mark_unchanged();
            match self.read() {
                Some(frames) if !frames.is_empty() => return Some(Bytes::from(frames)),
                Some(_) => {}
                None => {
                    self.is_over = true;
                    return Some(Bytes::from(self.hub.reset().0));
                }
            }
            tokio::select! {
                changed = self.changed.changed() => changed.ok()?,
                () = tokio::time::sleep(EVENT_KEEP_ALIVE) => return Some(Bytes::from_static(b": keep-alive\n\n")),
                () = self.viewer.caller.revoked.cancelled() => return None,
                () = self.hub.stop.cancelled() => return None,
            }
        }
    }

    /// Returns the next events that the caller may see, as text; `None` if some are not kept any more.
    fn read(&mut self) -> Option<String> {
        let ring = self.hub.ring.lock();
        let mut frames = String::new();
        let mut written = 0;
        let mut next = self.next;
        for (number, event) in ring.from(self.next)? {
            if written == EVENTS_PER_WRITE {
                break;
            }
            next = number + 1;
            if self.viewer.sees(event.owner.as_deref()) {
                frames.push_str(&event.frame(&self.hub.event_id(number)));
                written += 1;
            }
        }
        drop(ring);
        self.next = next;
        Some(frames)
    }
}

pub(super) async fn follow(State(api): State<Api>, viewer: Viewer, headers: HeaderMap) -> Result<Response, ApiError> {
    let hub = Arc::clone(&api.events);
    let slot = hub.open_stream(viewer.principal())?;
    hub.start();
    let named = headers.get("last-event-id").and_then(|value| value.to_str().ok()).filter(|value| !value.is_empty());
    let resumed = named.and_then(|named| hub.number_after(named));
    let resumed = resumed.filter(|number| hub.ring.lock().from(*number).is_some());
    let (first, next) = match (named, resumed) {
        (_, Some(number)) => (String::new(), number),
        (None, None) => (String::new(), hub.ring.lock().next),
        (Some(_), None) => hub.reset(),
    };
    let first = Some(format!(": connected\nretry: 2000\n\n{first}"));
    let changed = hub.changed.subscribe();
    let reader = Reader { hub, viewer, changed, first, next, is_over: false, _slot: slot };
    let stream = futures_util::stream::unfold(reader, |mut reader| async move {
        let bytes = reader.next().await?;
        Some((Ok::<_, std::convert::Infallible>(bytes), reader))
    });
    let mut response = Response::new(Body::from_stream(stream));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use store::{ChangedKind, ChangedRow};

    use super::{CLOCK_SKEW_MS, Event, Ring, StoreView};

    fn row(kind: ChangedKind, id: &str, state: &str, at: i64) -> ChangedRow {
        ChangedRow {
            kind,
            id: id.to_owned(),
            state: state.to_owned(),
            session_id: "s".to_owned(),
            owner: Some("ada".to_owned()),
            at,
        }
    }

    fn names(events: &[Event]) -> Vec<String> {
        events.iter().map(|event| format!("{} {} {}", event.kind, event.id, event.state)).collect()
    }

    #[test]
    fn a_reader_that_is_behind_the_ring_has_lost_events_and_others_get_all_of_theirs() {
        let mut ring = Ring::new(3);
        assert_eq!(ring.from(1).unwrap().count(), 0);
        assert!(ring.from(2).is_none());
        for number in 1..=5 {
            ring.push(Event::of(&row(ChangedKind::Run, &number.to_string(), "running", 0)));
        }
        assert!(ring.from(2).is_none());
        let kept: Vec<(u64, &str)> = ring.from(3).unwrap().map(|(number, event)| (number, event.id.as_str())).collect();
        assert_eq!(kept, [(3, "3"), (4, "4"), (5, "5")]);
        assert_eq!(ring.from(6).unwrap().count(), 0);
        ring.clear();
        assert!(ring.from(6).is_none());
        assert_eq!(ring.from(7).unwrap().count(), 0);
    }

    #[test]
    fn a_change_is_one_event_however_often_it_is_read_and_a_running_run_is_no_news() {
        let mut seen = StoreView::new(10_000);
        let run = |state: &str, at: i64| row(ChangedKind::Run, "r", state, at);
        assert_eq!(names(&seen.rows(&[run("running", 10_001)])), ["run r running"]);
        assert!(seen.rows(&[run("running", 10_001)]).is_empty());
        assert!(seen.rows(&[run("running", 10_002)]).is_empty());
        assert_eq!(names(&seen.rows(&[run("waiting", 10_003)])), ["run r waiting"]);
        assert_eq!(names(&seen.rows(&[run("waiting", 10_004)])), ["run r waiting"]);
        let turns = [row(ChangedKind::Turn, "t", "running", 10_005), row(ChangedKind::Turn, "u", "failed", 10_006)];
        assert_eq!(names(&seen.rows(&turns)), ["turn t running", "session s changed", "turn u failed"]);
        seen.rows(&[run("completed", 90_000)]);
        assert_eq!((seen.since, seen.rows.len()), (90_000 - CLOCK_SKEW_MS, 1));
    }

    #[test]
    fn an_approval_is_reported_when_it_is_asked_for_and_when_it_is_over() {
        let mut seen = StoreView::new(0);
        let asked = |id: &str| row(ChangedKind::Approval, id, "pending", 1);
        let (events, over) = seen.approvals(vec![asked("a"), asked("b")]);
        assert_eq!((events.len(), over.len()), (2, 0));
        let (events, over) = seen.approvals(vec![asked("b")]);
        assert_eq!((names(&events).len(), over[0].id.as_str()), (0, "a"));
    }
}
