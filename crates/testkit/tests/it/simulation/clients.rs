//! The clients of a history: they start cells, wait for them, settle calls, decide approvals, abort, and read answers.

use contract::ids::{CallId, RunId};
use serde_json::{Value, json};
use store::{ApprovalScope, ApprovalState, Decision};

use super::history::{History, PendingRequest, StartedCell, StepResult};
use super::oracle;
use super::programs::Program;
use super::requests::{Answer, Request};

const MAX_CELLS: usize = 3;

impl History {
    /// Performs one random action of a client.
    pub(super) fn client_action(&mut self) -> StepResult {
        let active = self.nodes.active();
        if active.is_empty() {
            return Ok(());
        }
        let node = active[self.chance.below(active.len())];
        if self.cells.is_empty() || self.cells.len() < MAX_CELLS && self.chance.below(6) == 0 {
            return self.exec(node);
        }
        let cell = self.chance.below(self.cells.len());
        self.find_run(cell);
        let Some(run) = self.cells[cell].run.clone() else { return Ok(()) };
        match self.chance.below(40) {
            0..22 => {
                self.wait(node, cell, &run)?;
                // The request may be sent twice: to the same node or another.
                if self.chance.below(8) == 0 && !self.nodes.active().is_empty() {
                    let active = self.nodes.active();
                    let other = active[self.chance.below(active.len())];
                    self.wait(other, cell, &run)?;
                }
                Ok(())
            }
            22..31 => self.settle_any(node, &run),
            31..39 => self.decide(node, &run),
            _ if self.chance.below(4) == 0 => {
                self.cells[cell].aborted = true;
                let agent_run = self.cells[cell].agent_run.clone();
                let request = self.nodes.ask(node, Request::Abort { agent_run, run })?;
                self.requests.insert(request, PendingRequest::Other);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn exec(&mut self, node: usize) -> StepResult {
        let cell = self.cells.len();
        let agent_run = format!("cell-{cell}");
        let Program { code, calls, tokens } = Program::new(&mut self.chance, &agent_run);
        self.cells.push(StartedCell { agent_run: agent_run.clone(), calls, tokens, ..StartedCell::default() });
        let request = self.nodes.ask(node, Request::Exec { agent_run, code })?;
        self.requests.insert(request, PendingRequest::Cell(cell));
        Ok(())
    }

    pub(super) fn wait(&mut self, node: usize, cell: usize, run: &RunId) -> Result<u64, String> {
        let agent_run = self.cells[cell].agent_run.clone();
        let request = self.nodes.ask(node, Request::Wait { agent_run, run: run.clone() })?;
        self.requests.insert(request, PendingRequest::Cell(cell));
        Ok(request)
    }

    /// Settles a random call that waits for an outcome from outside; it may be settled already.
    fn settle_any(&mut self, node: usize, run: &RunId) -> StepResult {
        let parked = self.parked_calls(run);
        if parked.is_empty() {
            return Ok(());
        }
        let call = parked[self.chance.below(parked.len())];
        self.settle(node, run, call)
    }

    /// Returns the calls of a run that are settled from outside.
    fn parked_calls(&self, run: &RunId) -> Vec<CallId> {
        let effects = self.world.effects();
        effects
            .iter()
            .filter(|effect| effect.run == *run && effect.kind.is_settled_externally())
            .map(|effect| effect.call)
            .collect()
    }

    fn settle(&mut self, node: usize, run: &RunId, call: CallId) -> StepResult {
        self.outcomes_sent += 1;
        let value = json!(format!("settled {call} ({})", self.outcomes_sent));
        let (run, request) = (run.clone(), Request::Settle { run: run.clone(), call, value: value.clone() });
        let request = self.nodes.ask(node, request)?;
        self.requests.insert(request, PendingRequest::Settle { run, call, value });
        Ok(())
    }

    pub(super) fn decide(&mut self, node: usize, run: &RunId) -> StepResult {
        let open = self.inspector.approvals(run).into_iter().filter(|one| one.state == ApprovalState::Pending);
        let open: Vec<_> = open.collect();
        if open.is_empty() {
            return Ok(());
        }
        let approval = &open[self.chance.below(open.len())];
        let decision = match self.chance.below(5) {
            0 => Decision::Deny { note: "no".to_owned() },
            1 => {
                let mut input = approval.input.clone();
                input["edited"] = json!(true);
                Decision::Approve { edited_input: Some(input), reach: ApprovalScope::Once }
            }
            _ => Decision::Approve { edited_input: None, reach: ApprovalScope::Once },
        };
        self.decisions.entry(approval.approval_id.clone()).or_default().push(decision.clone());
        let request = Request::Decide { approval: approval.approval_id.clone(), decision };
        let request = self.nodes.ask(node, request)?;
        self.requests.insert(request, PendingRequest::Other);
        Ok(())
    }

    /// Finds the run of a cell by its session, in case the answer with its id was lost.
    pub(super) fn find_run(&mut self, cell: usize) {
        let cell = &mut self.cells[cell];
        if cell.run.is_none() {
            cell.run = self.inspector.run_of(&cell.agent_run).map(|run| run.run_id);
        }
    }

    /// Processes the answers of all nodes.
    pub(super) fn process_answers(&mut self) {
        for (request, answer) in std::mem::take(&mut self.nodes.answers) {
            match (self.requests.remove(&request), answer) {
                (Some(PendingRequest::Cell(cell)), Answer::Cell(result)) => {
                    if oracle::is_end(&result) {
                        self.cells[cell].ends.push(result.clone());
                    }
                    self.cells[cell].last_result = Some(result);
                }
                (Some(PendingRequest::Settle { run, call, value }), Answer::Settled(true)) => {
                    // Only the first outcome of a call may be acknowledged.
                    self.acknowledged.entry((run, call)).or_insert(value);
                }
                _ => {}
            }
        }
    }

    /// Settles all parked calls of a run that have no outcome yet.
    pub(super) fn settle_open_calls(&mut self, node: usize, run: &RunId) -> StepResult {
        let calls = self.inspector.calls(run);
        let open = |call: CallId| calls.iter().any(|row| row.call == call && row.outcome.is_none());
        let parked: Vec<CallId> = self.parked_calls(run).into_iter().filter(|call| open(*call)).collect();
        parked.into_iter().try_for_each(|call| self.settle(node, run, call))
    }

    /// Waits once more for a run that has ended and returns the result.
    pub(super) fn final_result(&mut self, node: usize, cell: usize, run: &RunId) -> Result<Value, String> {
        self.cells[cell].last_result = None;
        self.wait(node, cell, run)?;
        self.nodes.run_until_idle(node, &mut self.chance)?;
        self.process_answers();
        self.cells[cell].last_result.clone().ok_or_else(|| format!("no answer to a wait for {run}, which has ended"))
    }
}
