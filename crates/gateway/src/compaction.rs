//! Compaction: the older part of a session's conversation is summarized by the agent's model.
//!
//! A compaction is a turn of its own. Its parent is the last turn that it summarizes, so the model sees the conversation as
//! before, followed by the request for a summary. Afterwards, conversations that contain the parent begin with the summary.
//! All turns and the transcript stay as they are.
//!
//! A conversation that exceeds the model's context is summarized in stages, from its oldest turns on: each stage sees the
//! summary of the one before. Of a turn that alone exceeds the context, the model sees an excerpt.

use contract::ids::{RunId, TurnId};
use store::{COMPACTION, RunPageFilter, RunState, StoreError, TurnRow, TurnState};
use wire::conversation::{Item, Part};
use wire::upstream::ToolChoice;

use crate::compactions::Compactions;
use crate::excerpt;
use crate::gateway::{Abandonment, Gateway, MAX_ANCESTORS, NewTurnRequest, TurnError, owner_of};
use crate::provider::ModelTarget;
use crate::turn::log::{LogEnd, LogReader, TurnEvent};
use crate::turn::prepared::PreparedTurn;
use crate::turn::record::{Compaction, TurnRequest};
use crate::turn::{EndRecord, Owner};

/// The tokens of a summary.
pub(crate) const MAX_SUMMARY_TOKENS: u64 = 4_096;

/// The suspended cells that a summary names.
const MAX_NAMED_RUNS: u32 = 20;

/// What the model is asked for.
const INSTRUCTION: &str = "Summarize the conversation so far, so that the work can continue from your summary alone. \
    Keep: what the user wants and has decided; facts, names, ids, paths and values that are still needed; what was done \
    with which result; what is open. Leave out what no longer matters. Call no tools. Write only the summary.";

/// A request to compact a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompactionRequest {
    /// A repeated request with this key gets the result of the first.
    pub key: Option<String>,
    /// How many of the newest turns are not summarized.
    pub keep_turns: usize,
}

/// A compaction of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSummary {
    pub turn_id: TurnId,
    /// The last turn that is summarized.
    pub up_to: TurnId,
    /// The text that the model receives instead of the summarized turns.
    pub summary: String,
}

/// Why a session cannot be compacted.
#[derive(Debug, thiserror::Error)]
pub enum CompactionError {
    #[error(transparent)]
    Turn(#[from] TurnError),
    #[error("the summary cannot be made: {message}")]
    Failed { status: u16, message: String },
}

impl From<StoreError> for CompactionError {
    fn from(error: StoreError) -> Self {
        Self::Turn(error.into())
    }
}

impl Gateway {
    /// Summarizes all but the newest turns of a session's conversation. Returns `None` if there are none.
    ///
    /// A conversation that is summarized already up to the same turn is not summarized again.
    pub async fn compact(
        &self,
        session_id: &str,
        request: &CompactionRequest,
    ) -> Result<Option<SessionSummary>, CompactionError> {
        let turns = self.store().turns_of_session(session_id).await?;
        let Some(latest) = turns.into_iter().rev().find(|row| row.wire != COMPACTION) else { return Ok(None) };
        // Compactions of one session are made one after another, so that equal requests lead to one.
        let _alone = self.lock_request(&format!("{COMPACTION}:{session_id}")).await;
        let keyed = request.key.as_ref().map(|key| format!("{COMPACTION}:{session_id}:{key}"));
        if let Some(digest) = &keyed
            && let Some(made) = self.requested(&latest.principal, digest).await?
        {
            return Ok(Some(made));
        }
        let last = match self.last_summarized(latest, request.keep_turns).await? {
            SummaryEnd::Nothing => return Ok(None),
            SummaryEnd::Summarized(compaction) => return self.compacted(&compaction).await,
            SummaryEnd::Turn(last) => *last,
        };
        let digest = keyed.unwrap_or_else(|| format!("{COMPACTION}:{}", last.turn_id));
        if let Some(made) = self.requested(&last.principal, &digest).await? {
            return Ok(Some(made));
        }
        let mut before = None;
        loop {
            let stage = self.next_stage(&last).await?;
            let is_last = stage.turn_id == last.turn_id;
            let digest = if is_last { digest.clone() } else { format!("{COMPACTION}:{}", stage.turn_id) };
            let made = match self.requested(&stage.principal, &digest).await? {
                Some(made) => Some(made),
                None => self.summarize(&stage, digest).await?,
            };
            // A stage that leads to itself makes no progress.
            if is_last || made.is_none() || before.as_ref() == Some(&stage.turn_id) {
                return Ok(made);
            }
            before = Some(stage.turn_id);
        }
    }

    /// Returns the turn up to which the next request for a summary goes: the newest one whose conversation fits the
    /// model's context, and at least the oldest one that can be summarized.
    async fn next_stage(&self, last: &TurnRow) -> Result<TurnRow, CompactionError> {
        let record = self.read_record(&last.turn_id).await?;
        let request = summary_request(last, record.request(), Vec::new());
        let room = self.summary_room(&owner_of(last, record.request()), &request)?;
        let (mut turns, mut compactions) = (Vec::new(), Compactions::default());
        let (mut next, mut bytes) = (Some(last.clone()), 0_usize);
        while let Some(row) = next.take().filter(|_| turns.len() < MAX_ANCESTORS) {
            if let Some(compaction) = compactions.of(self.store(), &row).await?
                && let Some(summary) = self.read_record(&compaction).await?.summary()
            {
                bytes += excerpt::size(&[summary]);
                break;
            }
            let record = self.read_record(&row.turn_id).await?;
            let can_end = row.state.is_over() && record.open_calls().is_empty();
            next = match &row.parent {
                Some(parent) => self.store().turn(parent).await?.filter(|parent| parent.principal == row.principal),
                None => None,
            };
            turns.push((row, excerpt::size(&record.items()), can_end));
        }
        let mut stage = None;
        for (row, size, can_end) in turns.into_iter().rev() {
            bytes = bytes.saturating_add(size);
            if bytes > room && stage.is_some() {
                break;
            }
            if can_end {
                stage = Some(row);
            }
        }
        Ok(stage.unwrap_or_else(|| last.clone()))
    }

    /// Returns the conversation before a turn. A turn that summarizes a conversation gets an excerpt, if the whole exceeds
    /// the model's context.
    pub(crate) async fn history(
        &self,
        parent: &TurnId,
        principal: &str,
        request: &TurnRequest,
        prepared: &PreparedTurn,
        targets: &[ModelTarget],
    ) -> Result<Vec<Item>, TurnError> {
        let items = self.conversation(parent, principal).await?;
        Ok(match request.compaction {
            Some(_) => excerpt::fit(items, self.room(request, prepared, targets)),
            None => items,
        })
    }

    /// Returns the bytes of a conversation that fit the context of every model of a turn.
    fn room(&self, request: &TurnRequest, prepared: &PreparedTurn, targets: &[ModelTarget]) -> usize {
        let tool = |tool: &wire::conversation::ModelTool| {
            tool.name.len() + tool.description.len() + tool.parameters.get().len()
        };
        let instructions = self.policy().config.instructions(&request.agent).len() + request.instructions.len();
        let fixed = prepared.tools.iter().map(tool).sum::<usize>() + instructions + excerpt::size(&request.items);
        let context = targets.iter().filter_map(|target| target.context_window).min();
        excerpt::room(context, fixed, request.max_output_tokens.unwrap_or_default())
    }

    /// Returns the bytes of a conversation that fit a request for its summary.
    fn summary_room(&self, owner: &Owner, request: &TurnRequest) -> Result<usize, TurnError> {
        let targets = self.targets_of(request)?;
        let prepared = self.prepare(owner, &TurnId::new("estimate"), request, &targets)?;
        Ok(self.room(request, &prepared, &targets))
    }

    /// Lets the model summarize the conversation up to a turn.
    async fn summarize(&self, last: &TurnRow, digest: String) -> Result<Option<SessionSummary>, CompactionError> {
        let record = self.read_record(&last.turn_id).await?;
        let filter = RunPageFilter {
            session: Some(last.session_id.clone()),
            state: Some(RunState::Waiting),
            ..RunPageFilter::default()
        };
        let waiting = self.store().run_page(&filter, None, MAX_NAMED_RUNS).await?;
        let waiting_runs: Vec<RunId> = waiting.into_iter().map(|run| run.run_id).collect();
        let new = NewTurnRequest {
            owner: owner_of(last, record.request()),
            request: summary_request(last, record.request(), waiting_runs),
            digest,
            abandonment: Abandonment::Continue,
            on_end: Box::new(|_| EndRecord::default()),
        };
        let handle = self.begin(new).await?;
        wait_for_end(handle.reader).await?;
        self.compacted(&handle.turn_id).await
    }

    /// Returns the compaction that an equal request has led to. If it is in progress, waits for its end: the client of the
    /// first request may have disconnected.
    async fn requested(&self, principal: &str, digest: &str) -> Result<Option<SessionSummary>, CompactionError> {
        let Some(row) = self.store().turn_by_request(principal, digest, 0).await? else { return Ok(None) };
        match (row.state, self.live(&row.turn_id, principal)) {
            (TurnState::Completed, _) => self.compacted(&row.turn_id).await,
            (TurnState::Running, Some(handle)) => {
                wait_for_end(handle.reader).await?;
                self.compacted(&row.turn_id).await
            }
            (TurnState::Running, None) => Err(TurnError::HeldElsewhere.into()),
            (TurnState::Waiting | TurnState::Failed | TurnState::Aborted, _) => Ok(None),
        }
    }

    /// Returns a finished compaction.
    async fn compacted(&self, turn_id: &TurnId) -> Result<Option<SessionSummary>, CompactionError> {
        let record = self.read_record(turn_id).await?;
        let text = record.summary().and_then(|item| match item {
            Item::User(parts) => parts.into_iter().find_map(|part| match part {
                Part::Text(text) => Some(text),
                Part::Image(_) | Part::Other(..) => None,
            }),
            Item::System(_) | Item::Assistant(_) | Item::Results(_) => None,
        });
        let up_to = record.request().parent.clone();
        Ok(text.zip(up_to).map(|(summary, up_to)| SessionSummary { turn_id: turn_id.clone(), up_to, summary }))
    }

    /// Finds the newest turn up to which the conversation can be summarized, if this many turns are kept.
    ///
    /// The calls of the turn must have their results: the results of later turns could not be sent without them.
    async fn last_summarized(&self, latest: TurnRow, keep: usize) -> Result<SummaryEnd, CompactionError> {
        let (mut next, mut compactions) = (Some(latest), Compactions::default());
        for depth in 0..MAX_ANCESTORS {
            let Some(row) = next.take() else { break };
            if let Some(compaction) = compactions.of(self.store(), &row).await? {
                return Ok(if depth >= keep { SummaryEnd::Summarized(compaction) } else { SummaryEnd::Nothing });
            }
            if depth >= keep && row.state.is_over() && self.read_record(&row.turn_id).await?.open_calls().is_empty() {
                return Ok(SummaryEnd::Turn(Box::new(row)));
            }
            next = match &row.parent {
                Some(parent) => self.store().turn(parent).await?.filter(|parent| parent.principal == row.principal),
                None => None,
            };
        }
        Ok(SummaryEnd::Nothing)
    }
}

/// Returns the request for a summary of the conversation up to a turn. `earlier` is the turn's own request.
fn summary_request(last: &TurnRow, earlier: &TurnRequest, waiting_runs: Vec<RunId>) -> TurnRequest {
    let items = vec![Item::User(vec![Part::Text(INSTRUCTION.to_owned())])];
    TurnRequest {
        parent: Some(last.turn_id.clone()),
        // As before, so that the provider's cache has the beginning of the request.
        instructions: earlier.instructions.clone(),
        tools: earlier.tools.clone(),
        model: earlier.model.clone(),
        tool_choice: ToolChoice::None,
        max_output_tokens: Some(MAX_SUMMARY_TOKENS),
        compaction: Some(Compaction { waiting_runs }),
        ..TurnRequest::new(&earlier.agent, earlier.wire, items)
    }
}

/// The end of the part of a conversation that is to be summarized.
enum SummaryEnd {
    Nothing,
    /// The conversation is summarized already, by this compaction.
    Summarized(TurnId),
    Turn(Box<TurnRow>),
}

/// Waits for the end of a compaction.
async fn wait_for_end(mut reader: LogReader) -> Result<(), CompactionError> {
    loop {
        let events = reader.next().await;
        let end = events.iter().find_map(|event| match event {
            TurnEvent::End(end) => Some(end),
            TurnEvent::Text(_) | TurnEvent::Reasoning(_) => None,
        });
        match end {
            Some(LogEnd::Done { .. }) => return Ok(()),
            Some(LogEnd::Failed { status, message, .. }) => {
                return Err(CompactionError::Failed { status: *status, message: message.clone() });
            }
            Some(LogEnd::Calls { .. }) => {
                let message = "the model called a tool instead of writing a summary".to_owned();
                return Err(CompactionError::Failed { status: 502, message });
            }
            None if events.is_empty() => {
                let message = "the turn has no end".to_owned();
                return Err(CompactionError::Failed { status: 503, message });
            }
            None => {}
        }
    }
}
