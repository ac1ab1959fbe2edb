//! Output that a turn made and no client was told: it comes with the run's next answer.
//!
//! A result says what is new since the last one. Where we go on with a run ourselves, put a question in place of its
//! result, or find its client gone, what was new would be lost. This is memory of this process alone: an end is
//! recorded whole, whoever asks for it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use contract::cell::{CellResult, OutputItem};

use super::principal::Principal;

/// Runs that output is kept for. The oldest is given up for a new one.
const MAX_RUNS: usize = 256;

#[derive(Clone, Debug, Default)]
pub(crate) struct UndeliveredOutput(Arc<Mutex<VecDeque<Kept>>>);

/// Found by both: whoever guesses a run's id must not hear what it said.
#[derive(Debug)]
struct Kept {
    principal: Principal,
    run_id: String,
    output: Vec<OutputItem>,
}

impl UndeliveredOutput {
    /// Keeps what a result says that is not told after all. Ends need no keeping.
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
        kept.push_back(Kept { principal: principal.clone(), run_id: run_id.clone(), output });
    }

    /// Puts what was kept before what a result says now.
    pub(crate) fn tell(&self, principal: &Principal, run_id: &str, result: &mut CellResult) {
        let mut kept = self.lock();
        let Some(position) = kept.iter().position(|kept| kept.is_of(principal, run_id)) else { return };
        let Some(Kept { output: mut before, .. }) = kept.remove(position) else { return };
        match result {
            CellResult::Completed { output, .. }
            | CellResult::Waiting { output, .. }
            | CellResult::Failed { output, .. } => {
                before.append(output);
                *output = before;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
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
    fn undelivered_output_is_delivered_first_and_once() {
        let unsaid = UndeliveredOutput::default();
        let (me, other) = (Principal::local(), Principal::named("other").unwrap());
        unsaid.keep(&me, &mut waiting("a", &["1"]));
        unsaid.keep(&me, &mut waiting("a", &["2"]));
        unsaid.keep(&me, &mut waiting("b", &["of another run"]));
        let mut guessed = waiting("a", &[]);
        unsaid.tell(&other, "a", &mut guessed);
        assert!(texts(&guessed).is_empty());
        let mut next = waiting("a", &["3"]);
        unsaid.tell(&me, "a", &mut next);
        assert_eq!(texts(&next), ["1", "2", "3"]);
        let mut later = waiting("a", &["4"]);
        unsaid.tell(&me, "a", &mut later);
        assert_eq!(texts(&later), ["4"]);
    }
}
