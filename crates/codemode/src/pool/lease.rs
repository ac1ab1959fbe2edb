//! A cell's slot in a worker. Dropping it drops the cell.

use std::sync::Arc;
use std::time::Duration;

use contract::cell::OutputItem;
use contract::frame::{Budget, Deliver, Failure, FromWorker, HostCall, Leg, LegEnd, Reply, ToWorker};
use contract::ids::{CallId, CellId};
use contract::json;
use contract::limits::{
    MAX_BRIDGE_VALUE_BYTES, MAX_BRIDGE_VALUE_DEPTH, MAX_JSON_VALUES, MAX_OUTSTANDING_BYTES, MAX_OUTSTANDING_CALLS,
    MAX_TARGET_BYTES,
};
use contract::tables::CatalogTables;
use serde_json::value::RawValue;

use super::admission::{AdmissionRequest, Principal};
use super::gate::{Gate, TurnError, WorkerTurn};
use super::worker::Worker;
use super::{PoolError, ROOM_WAIT};

/// How much longer than its budget a leg may take before its worker is terminated. A worker stops a cell at its
/// deadline; this is for a worker that does not. On a busy machine a worker may get the processor seconds too late, and
/// all cells in it would be lost.
const GRACE: Duration = Duration::from_secs(5);

/// How long a freeze may take. Memory is read, compared and compressed, which takes seconds for the largest cells.
const FREEZE_WAIT: Duration = Duration::from_secs(30);

/// A cell's slot in a worker.
#[derive(Debug)]
pub struct Lease {
    worker: Arc<Worker>,
    cell: CellId,
    principal: Principal,
    gate: Arc<Gate<Worker>>,
    /// Whether the worker has, or may have, the cell.
    occupied: bool,
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum FreezeError {
    #[error("{}", .0.message)]
    Refused(Failure),
    #[error(transparent)]
    Pool(#[from] PoolError),
}

impl Lease {
    pub(super) fn new(worker: Arc<Worker>, cell: CellId, principal: Principal, gate: Arc<Gate<Worker>>) -> Self {
        Self { worker, cell, principal, gate, occupied: false }
    }

    /// Runs the first leg of a cell that was started or thawed.
    pub(super) async fn first_leg(
        &mut self,
        turn: WorkerTurn<Worker>,
        tables: &CatalogTables,
        frame: &ToWorker,
        budget: Budget,
    ) -> Result<Leg, PoolError> {
        self.leg(turn, budget, Some(tables), frame).await
    }

    /// Runs the cell's next leg.
    pub async fn deliver(&mut self, budget: Budget, replies: Vec<Reply>) -> Result<Leg, PoolError> {
        let frame = ToWorker::Deliver(self.cell, Deliver { budget, replies });
        let turn = self.turn(AdmissionRequest::Resume { worker: self.worker.id() }).await?;
        self.leg(turn, budget, None, &frame).await
    }

    /// Freezes the resting cell into a snapshot, and frees its slot.
    pub async fn freeze(mut self, max_bytes: u64) -> Result<Vec<u8>, FreezeError> {
        let frame = ToWorker::Freeze { cell: self.cell, max_bytes };
        let turn = self.turn(AdmissionRequest::Freeze { worker: self.worker.id() }).await?;
        let answer = self.ask(turn, None, &frame, FREEZE_WAIT).await?;
        self.occupied = false;
        match answer {
            FromWorker::Frozen { snapshot, .. } if snapshot.len() as u64 <= max_bytes => Ok(snapshot),
            FromWorker::NotFrozen { failure, .. } => Err(FreezeError::Refused(failure)),
            _ => Err(self.broke_protocol("a freeze answered with another frame").into()),
        }
    }

    async fn leg(
        &mut self,
        turn: WorkerTurn<Worker>,
        budget: Budget,
        tables: Option<&CatalogTables>,
        frame: &ToWorker,
    ) -> Result<Leg, PoolError> {
        let wait = Duration::from_millis(budget.run_ms) + GRACE;
        match self.ask(turn, tables, frame, wait).await? {
            FromWorker::Leg(_, leg) => {
                if let Err(what) = within_bounds(&leg, budget) {
                    return Err(self.broke_protocol(what));
                }
                self.occupied = matches!(leg.end, LegEnd::Suspended { .. });
                Ok(leg)
            }
            _ => Err(self.broke_protocol("a leg answered with another frame")),
        }
    }

    /// Waits until the cell may use its worker. That time is not part of the cell's budget.
    async fn turn(&mut self, request: AdmissionRequest) -> Result<WorkerTurn<Worker>, PoolError> {
        fault::wait_for_turn().await;
        match self.gate.enter(&self.principal, self.cell, request, 0, ROOM_WAIT).await {
            Ok((turn, _)) => Ok(turn),
            Err(TurnError::WorkerEnded | TurnError::QueueFull | TurnError::NoRoom) => Err(self.died()),
        }
    }

    async fn ask(
        &mut self,
        turn: WorkerTurn<Worker>,
        tables: Option<&CatalogTables>,
        frame: &ToWorker,
        wait: Duration,
    ) -> Result<FromWorker, PoolError> {
        let worker = Arc::clone(&self.worker);
        self.occupied = true;
        let answer = worker.ask(self.cell, turn, tables, frame).await;
        match tokio::time::timeout(wait, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(self.died()),
            Err(_) => {
                worker.terminate(format!("the worker did not answer within {} ms", wait.as_millis()));
                Err(self.died())
            }
        }
    }

    fn died(&mut self) -> PoolError {
        self.occupied = false;
        PoolError::WorkerDied(self.worker.why_it_ended())
    }

    /// Terminates the worker, because it broke the protocol.
    pub(crate) fn broke_protocol(&mut self, what: &str) -> PoolError {
        self.worker.terminate(format!("the worker broke the protocol: {what}"));
        self.died()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let (gate, worker, cell) = (Arc::clone(&self.gate), Arc::clone(&self.worker), self.cell);
        let runtime = tokio::runtime::Handle::try_current().ok().filter(|_| self.occupied);
        let Some(runtime) = runtime else { return gate.drop_cell(worker.id(), cell) };
        runtime.spawn(async move {
            worker.send(&ToWorker::Drop(cell)).await;
            // The slot is free once this frame is sent: frames for the next cell come after it.
            gate.drop_cell(worker.id(), cell);
        });
    }
}

/// Checks again the limits that the worker must have checked: it may be broken or hostile.
///
/// Checks that depend on the run's earlier legs are in [`crate::cell::Cell::vet`].
fn within_bounds(leg: &Leg, budget: Budget) -> Result<(), &'static str> {
    let shown: usize = leg.output.iter().map(OutputItem::bytes).sum();
    if shown as u64 > budget.output_bytes {
        return Err("more output than was allowed");
    }
    let data = leg.output.iter().map(|item| match item {
        OutputItem::Image(media) | OutputItem::Audio(media) => media.data.len(),
        OutputItem::Text { .. } | OutputItem::Json { .. } | OutputItem::Stored(_) => 0,
    });
    if data.sum::<usize>() as u64 > budget.output_bytes {
        return Err("more data of images and sounds than was allowed");
    }
    let mut values = 0_usize;
    for item in &leg.output {
        if let OutputItem::Json { value } = item {
            values = values.saturating_add(readable_values(value)?);
        }
    }
    if values > MAX_JSON_VALUES {
        return Err("more JSON values of output than are allowed");
    }
    match &leg.end {
        // A value with more JSON values than may be parsed is only stored.
        LegEnd::Completed { value } => readable_values(value).map(drop),
        LegEnd::Failed(_) => Ok(()),
        LegEnd::Suspended { calls, cleared } => calls_within_bounds(calls, cleared),
    }
}

/// Returns how many values a JSON text has. Fails if it nests too deep, or has a number that cannot be read.
fn readable_values(value: &RawValue) -> Result<usize, &'static str> {
    let text = value.get().as_bytes();
    let measure = json::measure(text);
    if measure.depth > MAX_BRIDGE_VALUE_DEPTH || !json::numbers_are_readable(text) {
        return Err("a value that cannot be read");
    }
    Ok(measure.values)
}

fn calls_within_bounds(calls: &[HostCall], cleared: &[CallId]) -> Result<(), &'static str> {
    if calls.len() > MAX_OUTSTANDING_CALLS || cleared.len() > MAX_OUTSTANDING_CALLS {
        return Err("more calls than a cell may have");
    }
    if !calls.is_sorted_by(|one, next| one.id < next.id) {
        return Err("calls out of order, or an id used twice");
    }
    let bytes = calls.iter().map(|call| call.target.len().saturating_add(call.payload.len()));
    if bytes.fold(0, usize::saturating_add) > MAX_OUTSTANDING_BYTES {
        return Err("more bytes of calls than a cell may have");
    }
    for call in calls {
        let measure = json::measure(&call.payload);
        let too_large = call.target.len() > MAX_TARGET_BYTES
            || call.payload.len() > MAX_BRIDGE_VALUE_BYTES
            || measure.depth > MAX_BRIDGE_VALUE_DEPTH
            || measure.values > MAX_JSON_VALUES;
        if too_large {
            return Err("a call larger than allowed");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use contract::cell::{Media, OutputItem};
    use contract::frame::{Budget, HostCall, Leg, LegEnd, Method};
    use contract::ids::CallId;
    use contract::limits::{MAX_BRIDGE_VALUE_BYTES, MAX_JSON_VALUES, MAX_OUTSTANDING_CALLS, MAX_TARGET_BYTES};
    use serde_json::value::RawValue;

    use super::within_bounds;

    fn judged(end: LegEnd, shown: &[&str]) -> Result<(), &'static str> {
        let budget = Budget { run_ms: 1, memory_bytes: 1, output_bytes: 4 << 20, clock_us: 0 };
        let output = shown.iter().map(|text| OutputItem::Json { value: raw(text) }).collect();
        within_bounds(&Leg { end, output, run_us: 0, memory_bytes: 0 }, budget)
    }

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    fn called(calls: &[(u32, usize, &[u8])]) -> Result<(), &'static str> {
        let calls = calls.iter().map(|(id, target, payload)| HostCall {
            id: CallId(*id),
            method: Method::Call,
            target: "a".repeat(*target),
            payload: payload.to_vec(),
        });
        judged(LegEnd::Suspended { calls: calls.collect(), cleared: Vec::new() }, &[])
    }

    #[test]
    fn a_leg_whose_calls_break_a_limit_is_refused() {
        let largest = vec![b' '; MAX_BRIDGE_VALUE_BYTES - 1];
        let too_large = vec![b' '; MAX_BRIDGE_VALUE_BYTES + 1];
        let values = format!("[{}0]", "0,".repeat(MAX_JSON_VALUES - 1));
        let many: Vec<(u32, usize, &[u8])> =
            (1..).map(|id| (id, 1, &b"0"[..])).take(MAX_OUTSTANDING_CALLS + 1).collect();
        assert_eq!(called(&[(1, 1, &largest), (2, 1, &largest)]), Ok(()));
        assert_eq!(called(&many[1..]), Ok(()));
        /// The id, the length of the target and the payload of a call.
        type Call<'a> = (u32, usize, &'a [u8]);
        let cases: [(&[Call<'_>], &str); 8] = [
            (&[(1, 1, b"0"), (1, 1, b"0")], "calls out of order, or an id used twice"),
            (&[(2, 1, b"0"), (1, 1, b"0")], "calls out of order, or an id used twice"),
            (&[(1, MAX_TARGET_BYTES + 1, b"0")], "a call larger than allowed"),
            (&[(1, 1, &too_large)], "a call larger than allowed"),
            (&[(1, 1, values.as_bytes())], "a call larger than allowed"),
            (&[(1, 1, &b"[".repeat(1001))], "a call larger than allowed"),
            (&[(1, 1, &largest), (2, 2, &largest)], "more bytes of calls than a cell may have"),
            (&many, "more calls than a cell may have"),
        ];
        for (calls, expected) in cases {
            assert_eq!(called(calls), Err(expected));
        }
    }

    #[test]
    fn a_leg_with_more_media_than_its_budget_is_refused() {
        let budget = Budget { run_ms: 1, memory_bytes: 1, output_bytes: 1000, clock_us: 0 };
        let media = |bytes: usize| {
            let media = Media { mime_type: "image/png".to_owned(), data: vec![0; bytes].into(), handle: None };
            OutputItem::Image(media)
        };
        let judged = |output: Vec<OutputItem>| {
            let end = LegEnd::Completed { value: raw("1") };
            within_bounds(&Leg { end, output, run_us: 0, memory_bytes: 0 }, budget)
        };
        assert_eq!(judged(vec![media(600), media(400)]), Ok(()));
        let refused = Err("more data of images and sounds than was allowed");
        assert_eq!(judged(vec![media(600), media(401)]), refused);
    }

    #[test]
    fn a_leg_with_unreadable_values_or_too_many_in_its_output_is_refused() {
        let completed = |text: &str| LegEnd::Completed { value: raw(text) };
        let half = format!("[{}0]", "0,".repeat(MAX_JSON_VALUES / 2));
        let values = format!("[{}0]", "0,".repeat(MAX_JSON_VALUES));
        assert_eq!(judged(completed("1"), &[&half]), Ok(()));
        assert_eq!(judged(completed("1e999"), &[]), Err("a value that cannot be read"));
        assert_eq!(judged(completed("1"), &["[1,-1e999]"]), Err("a value that cannot be read"));
        assert_eq!(judged(completed(&values), &[]), Ok(()));
        assert_eq!(judged(completed("1"), &[&half, &half]), Err("more JSON values of output than are allowed"));
    }
}
