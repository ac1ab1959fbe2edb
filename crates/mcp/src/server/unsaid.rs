//! Output of a turn that reached no client. It is added to the run's next answer.
//!
//! A result contains only the output since the previous result. Output would be lost if the server resumes the run
//! itself, sends a question instead of the result, or finds the client disconnected. It is kept in this process only:
//! the final result of a run is stored complete.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use contract::cell::{CellResult, OutputItem};

use super::principal::Principal;

/// The maximum number of runs that output is kept for. A new run replaces the oldest.
const MAX_RUNS: usize = 256;

#[derive(Clone, Debug, Default)]
pub(crate) struct UndeliveredOutput(Arc<Mutex<VecDeque<RunOutput>>>);

/// The output of one run. It is looked up by principal and run id: a client that guesses a run's id must not get its
/// output.
#[derive(Debug)]
struct RunOutput {
    principal: Principal,
    run_id: String,
    output: Vec<OutputItem>,
}

impl UndeliveredOutput {
    /// Takes the output out of a result that is not sent. Final results are stored and need no copy here.
    pub(crate) fn keep(&self, principal: &Principal, result: &mut CellResult) {
        let CellResult::Waiting { run_id, output, .. } = result else { return };
        let output = std::mem::take(output);
        if output.is_empty() {
            return;
        }
        let mut kept = self.lock();
        if let Some(more) = kept.iter_mut().find(|kept| kept.is_of(principal, run_id)) {
            more.output.extend(output);
            return;
        }
        if kept.len() == MAX_RUNS {
            kept.pop_front();
        }
        kept.push_back(RunOutput { principal: principal.clone(), run_id: run_id.clone(), output });
    }

    /// Prepends the kept output of a run to the output of its current result.
    pub(crate) fn prepend_to(&self, principal: &Principal, run_id: &str, result: &mut CellResult) {
        let mut kept = self.lock();
        let Some(position) = kept.iter().position(|kept| kept.is_of(principal, run_id)) else { return };
        let Some(RunOutput { output: mut before, .. }) = kept.remove(position) else { return };
        match result {
            CellResult::Completed { output, .. }
            | CellResult::Waiting { output, .. }
            | CellResult::Failed { output, .. } => {
                before.append(output);
                *output = before;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<RunOutput>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunOutput {
    fn is_of(&self, principal: &Principal, run_id: &str) -> bool {
        self.principal == *principal && self.run_id == run_id
    }
}

#[cfg(test)]
mod tests {
    use contract::cell::{CellResult, OutputItem, Telemetry, WaitingReason};

    use super::UndeliveredOutput;
    use crate::server::Principal;

    fn waiting(run_id: &str, texts: &[&str]) -> CellResult {
        CellResult::Waiting {
            run_id: run_id.to_owned(),
            reason: WaitingReason::Yield,
            pending_tool_calls: Vec::new(),
            output: texts.iter().map(|text| OutputItem::Text { text: (*text).to_owned() }).collect(),
            telemetry: Telemetry::default(),
        }
    }

    fn texts(result: &CellResult) -> Vec<&str> {
        let items = result.output().iter();
        items.map(|item| if let OutputItem::Text { text } = item { text.as_str() } else { "" }).collect()
    }

    #[test]
    fn undelivered_output_precedes_the_next_output_once() {
        let undelivered = UndeliveredOutput::default();
        let (me, other) = (Principal::local(), Principal::named("other").unwrap());
        undelivered.keep(&me, &mut waiting("a", &["1"]));
        undelivered.keep(&me, &mut waiting("a", &["2"]));
        undelivered.keep(&me, &mut waiting("b", &["of another run"]));
        let mut guessed = waiting("a", &[]);
        undelivered.prepend_to(&other, "a", &mut guessed);
        assert!(texts(&guessed).is_empty());
        let mut next = waiting("a", &["3"]);
        undelivered.prepend_to(&me, "a", &mut next);
        assert_eq!(texts(&next), ["1", "2", "3"]);
        let mut later = waiting("a", &["4"]);
        undelivered.prepend_to(&me, "a", &mut later);
        assert_eq!(texts(&later), ["4"]);
    }
}
