//! What people do in a history: start cells, wait for them, bring outcomes, decide, give up; and what they are told.

use serde_json::{Value, json};
use store::{ApprovalScope, ApprovalState, Decision};

use super::history::{Asked, History, So, Started};
use super::oracle;
use super::programs::Program;
use super::requests::{Answer, Request};

const MOST_CELLS: usize = 3;

impl History {
    /// Somebody does something.
    pub fn act(&mut self) -> So {
        let movable = self.nodes.movable();
        if movable.is_empty() {
            return Ok(());
        }
        let node = movable[self.chance.below(movable.len())];
        if self.cells.is_empty() || self.cells.len() < MOST_CELLS && self.chance.below(6) == 0 {
            return self.exec(node);
        }
        let cell = self.chance.below(self.cells.len());
        self.look_for_run(cell);
        let Some(run) = self.cells[cell].run.clone() else { return Ok(()) };
        match self.chance.below(40) {
            0..22 => {
                self.wait(node, cell, &run)?;
                // It may be sent twice: to the same node or another.
                if self.chance.below(8) == 0 && !self.nodes.movable().is_empty() {
                    let movable = self.nodes.movable();
                    let other = movable[self.chance.below(movable.len())];
                    self.wait(other, cell, &run)?;
                }
                Ok(())
            }
            22..31 => self.bring(node, &run),
            31..39 => self.decide(node, &run),
            _ if self.chance.below(4) == 0 => {
                self.cells[cell].aborted = true;
                let request = self.nodes.ask(node, Request::Abort { run })?;
                self.asked.insert(request, Asked::Other);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn exec(&mut self, node: usize) -> So {
        let program = Program::new(&mut self.chance);
        let cell = self.cells.len();
        let session = format!("session-{cell}");
        self.cells.push(Started { session: session.clone(), calls: program.calls, ..Started::default() });
        let request = self.nodes.ask(node, Request::Exec { session, code: program.code })?;
        self.asked.insert(request, Asked::OfCell(cell));
        Ok(())
    }

    pub fn wait(&mut self, node: usize, cell: usize, run: &str) -> Result<u64, String> {
        let session = self.cells[cell].session.clone();
        let request = self.nodes.ask(node, Request::Wait { session, run: run.to_owned() })?;
        self.asked.insert(request, Asked::OfCell(cell));
        Ok(request)
    }

    /// Whoever was handed a call answers it, sooner or later, and perhaps again.
    fn bring(&mut self, node: usize, run: &str) -> So {
        let handed = self.handed(run);
        if handed.is_empty() {
            return Ok(());
        }
        let call = handed[self.chance.below(handed.len())];
        self.bring_one(node, run, call)
    }

    /// The calls of a run that somebody outside has.
    fn handed(&self, run: &str) -> Vec<u32> {
        let effects = self.world.effects();
        effects.iter().filter(|one| one.run == run && one.kind.is_brought()).map(|one| one.call).collect()
    }

    fn bring_one(&mut self, node: usize, run: &str, call: u32) -> So {
        self.brought += 1;
        let value = json!(format!("brought {call} ({})", self.brought));
        let (run, request) = (run.to_owned(), Request::Settle { run: run.to_owned(), call, value: value.clone() });
        let request = self.nodes.ask(node, request)?;
        self.asked.insert(request, Asked::Brings { run, call, value });
        Ok(())
    }

    pub fn decide(&mut self, node: usize, run: &str) -> So {
        let open = self.eye.approvals(run).into_iter().filter(|one| one.state == ApprovalState::Pending);
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
        self.said.entry(approval.approval_id.clone()).or_default().push(decision.clone());
        let request = Request::Decide { approval: approval.approval_id.clone(), decision };
        let request = self.nodes.ask(node, request)?;
        self.asked.insert(request, Asked::Other);
        Ok(())
    }

    /// Whoever lost the answer that had its name finds a run by its session.
    pub fn look_for_run(&mut self, cell: usize) {
        let cell = &mut self.cells[cell];
        if cell.run.is_none() {
            cell.run = self.eye.run_of(&cell.session).map(|run| run.run_id);
        }
    }

    /// What was answered.
    pub fn hear(&mut self) {
        for (request, answer) in std::mem::take(&mut self.nodes.answers) {
            match (self.asked.remove(&request), answer) {
                (Some(Asked::OfCell(cell)), Answer::Cell(result)) => {
                    if oracle::is_end(&result) {
                        self.cells[cell].ends.push(result.clone());
                    }
                    self.cells[cell].last_told = Some(result);
                }
                (Some(Asked::Brings { run, call, value }), Answer::Counts(true)) => {
                    // The first counts: of a second one nobody may be told so.
                    self.acknowledged.entry((run, call)).or_insert(value);
                }
                _ => {}
            }
        }
    }

    /// Everything that whoever was handed it has not brought yet.
    pub fn bring_what_is_open(&mut self, node: usize, run: &str) -> So {
        let calls = self.eye.calls(run);
        let open = |call: u32| calls.iter().any(|row| row.call == call && row.outcome.is_none());
        let handed: Vec<u32> = self.handed(run).into_iter().filter(|call| open(*call)).collect();
        handed.into_iter().try_for_each(|call| self.bring_one(node, run, call))
    }

    /// Asks for a run once more, when it is over, and has the answer.
    pub fn told_of(&mut self, node: usize, cell: usize, run: &str) -> Result<Value, String> {
        self.cells[cell].last_told = None;
        self.wait(node, cell, run)?;
        self.settle_down(node)?;
        self.hear();
        self.cells[cell].last_told.clone().ok_or_else(|| format!("nothing is told of {run}, which is over"))
    }
}
