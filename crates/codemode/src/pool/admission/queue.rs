//! The queue of waiting requests, with one line per principal. The principal at the front is served next.

use std::collections::VecDeque;

use contract::ids::CellId;
use contract::limits::{MAX_QUEUED_CELLS, MAX_QUEUED_SOURCE_BYTES};

use super::{AdmissionRequest, Principal, WorkerId};

/// The error when a principal has too many new cells waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct QueueFull;

#[derive(Clone, Copy, Debug)]
pub(super) struct WaitingRequest {
    pub(super) cell: CellId,
    pub(super) request: AdmissionRequest,
    pub(super) source_bytes: usize,
}

impl WaitingRequest {
    fn is_pinned_to(&self, to: WorkerId) -> bool {
        match self.request {
            AdmissionRequest::Start { .. } | AdmissionRequest::Thaw { .. } => false,
            AdmissionRequest::Resume { worker } | AdmissionRequest::Freeze { worker } => worker == to,
        }
    }
}

#[derive(Debug)]
struct PrincipalQueue {
    principal: Principal,
    /// Requests of cells that have started. Their number is bounded by that of live runs.
    begun: VecDeque<WaitingRequest>,
    new: VecDeque<WaitingRequest>,
    source_bytes: usize,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    lines: VecDeque<PrincipalQueue>,
}

impl Queue {
    /// Queues a request behind the others of its principal.
    pub(super) fn push(&mut self, principal: &Principal, waiting: WaitingRequest) -> Result<(), QueueFull> {
        let known = self.lines.iter().position(|line| line.principal == *principal);
        let position = known.unwrap_or(self.lines.len());
        if known.is_none() {
            let (begun, new) = (VecDeque::new(), VecDeque::new());
            self.lines.push_back(PrincipalQueue { principal: principal.clone(), begun, new, source_bytes: 0 });
        }
        let Some(line) = self.lines.get_mut(position) else { return Err(QueueFull) };
        if !matches!(waiting.request, AdmissionRequest::Start { .. }) {
            line.begun.push_back(waiting);
            return Ok(());
        }
        let source_bytes = line.source_bytes.saturating_add(waiting.source_bytes);
        if line.new.len() >= MAX_QUEUED_CELLS || source_bytes > MAX_QUEUED_SOURCE_BYTES {
            return Err(QueueFull);
        }
        line.source_bytes = source_bytes;
        line.new.push_back(waiting);
        Ok(())
    }

    pub(super) fn contains(&self, cell: CellId) -> bool {
        self.lines.iter().any(|line| line.begun.iter().chain(&line.new).any(|waiting| waiting.cell == cell))
    }

    pub(super) fn remove(&mut self, cell: CellId) {
        self.retain(|waiting| waiting.cell != cell);
    }

    pub(super) fn forget_worker(&mut self, worker: WorkerId) {
        self.retain(|waiting| !waiting.is_pinned_to(worker));
    }

    /// Returns how many principals have waiting requests.
    pub(super) fn principals(&self) -> usize {
        self.lines.len()
    }

    /// Returns the principal at the front and its requests: those of started cells, then those of new ones.
    pub(super) fn front(&self) -> Option<(&Principal, impl Iterator<Item = &WaitingRequest>)> {
        self.lines.front().map(|line| (&line.principal, line.begun.iter().chain(&line.new)))
    }

    /// Takes a request of the principal at the front, by its position in what [`Self::front`] returns.
    pub(super) fn take_from_front(&mut self, position: usize) -> Option<(Principal, WaitingRequest)> {
        let line = self.lines.front_mut()?;
        let waiting = match position.checked_sub(line.begun.len()) {
            None => line.begun.remove(position)?,
            Some(position) => line.new.remove(position)?,
        };
        line.source_bytes = line.source_bytes.saturating_sub(waiting.source_bytes);
        Some((line.principal.clone(), waiting))
    }

    /// Moves the principal at the front to the back, or removes it if it has no waiting requests.
    pub(super) fn rotate(&mut self) {
        let Some(line) = self.lines.pop_front() else { return };
        if !line.begun.is_empty() || !line.new.is_empty() {
            self.lines.push_back(line);
        }
    }

    fn retain(&mut self, mut keep: impl FnMut(&WaitingRequest) -> bool) {
        for line in &mut self.lines {
            line.begun.retain(&mut keep);
            line.new.retain(&mut keep);
            line.source_bytes = line.new.iter().map(|waiting| waiting.source_bytes).sum();
        }
        self.lines.retain(|line| !line.begun.is_empty() || !line.new.is_empty());
    }
}
