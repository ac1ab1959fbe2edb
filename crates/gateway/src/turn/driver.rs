//! Runs a turn: does what its record says must happen next, and writes each step before the next one begins.

use std::sync::Arc;
use std::time::Duration;

use contract::ids::{CallId, RunId};
use contract::tool::ToolId;
use executor::clock::now_ms;
use futures_util::future::join_all;
use serde_json::{Value, json};
use store::{
    Approval, CallRow, CallState, CommitError, DeliveryRow, Durability, Entry, EntryKind, HeldTurn, ModelUse,
    NewDelivery, NewStep, ReleaseLease, Store, StoreError, TurnChange, TurnState,
};
use telemetry::LogIgnored;
use tokio::time::Instant;
use tracing::Instrument;
use wire::conversation::{self, Item, ModelCall, StopReason, Usage};
use wire::downstream::ClientCall;
use wire::upstream::{ModelEvent, ModelRequest, PARAGRAPH, ToolChoice, message_events};

use super::answers::settle_answers;
use super::control::{Attempt, ControlCalls, ControlEnd, is_client_tool, waiting_result};
use super::held::{HeldCalls, has_decision};
use super::live::{Interventions, LiveTurns, SteeredMessage};
use super::log::{LogEnd, TurnLog};
use super::prepared::PreparedTurn;
use super::record::{ControlResult, DeliveredCall, ModelStep, NextStep, Step, TurnEnd, TurnRecord};
use super::{EndRecord, OnEnd, Owner, TurnSummary};
use crate::internal_error::internal_message;
use crate::provider::{CallError, ClientProgress, ModelTarget, RetryPolicy, verify};
use crate::services::Services;

/// How often approvals are read, at least, while a turn waits for people to decide: a notification may be lost, and an
/// approval that expires causes none.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// How long a cell that has all its results is given to continue.
const SETTLED_PAUSE: Duration = Duration::from_millis(10);

/// The longest time after which the gateway asks a client to repeat a request.
const MAX_CLIENT_WAIT_SECONDS: u64 = 3_600;

/// The message to a client whose turn another process has taken over.
pub(crate) const TAKEN_OVER: &str = "another process has taken over the turn; send the request again";

/// The most approvals that a message names.
const MAX_NAMED_APPROVALS: usize = 8;

/// A turn that this process runs.
pub(crate) struct Driver {
    pub(crate) services: Arc<Services>,
    pub(crate) live: Arc<LiveTurns>,
    pub(crate) owner: Owner,
    pub(crate) held: HeldTurn,
    pub(crate) record: TurnRecord,
    /// The conversation before this turn.
    pub(crate) history: Vec<Item>,
    pub(crate) targets: Vec<ModelTarget>,
    pub(crate) prepared: Arc<PreparedTurn>,
    pub(crate) log: TurnLog,
    pub(crate) interventions: Arc<Interventions>,
    pub(crate) on_end: Option<OnEnd>,
    /// Whether calls of the model may have been begun before.
    pub(crate) attempt: Attempt,
}

/// Why a driver stops without an end of its turn.
#[derive(Debug, thiserror::Error)]
enum DriverError {
    #[error(transparent)]
    Commit(#[from] CommitError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot read system randomness: {0}")]
    Randomness(#[from] getrandom::Error),
}

impl Driver {
    /// Runs the turn until it ends or waits for the client.
    pub(crate) async fn run(mut self) {
        let log = self.log.clone();
        if let Err(stopped) = self.run_steps().await {
            let message = match &stopped {
                DriverError::Commit(CommitError::Fenced) => {
                    tracing::warn!("a turn stopped, because another process has taken it over");
                    TAKEN_OVER.to_owned()
                }
                stopped => {
                    let what_failed = "the turn cannot be written to the store now";
                    let next = "send the request again to continue it";
                    internal_message("write a turn", stopped, what_failed, next)
                }
            };
            self.live.forget(&self.held.turn_id, &self.interventions);
            log.end(LogEnd::Failed { status: 503, message, has_effects: false, retry_after: None });
        }
    }

    async fn run_steps(&mut self) -> Result<(), DriverError> {
        let hold_until = Instant::now() + Duration::from_secs(self.services.settings.gateway.hold_seconds);
        settle_answers(&self.services.code_mode, &self.record).await?;
        loop {
            if self.interventions.abort.is_cancelled() {
                let reason = self.interventions.reason.lock().clone();
                let reason = reason.unwrap_or_else(|| "the turn was aborted".to_owned());
                return self.end(TurnEnd::Aborted { reason }).await;
            }
            self.take_steered().await?;
            let next = self.record.next();
            if let Some(end) = failed_compaction(&self.record, &next) {
                return self.end(end).await;
            }
            match next {
                NextStep::Model => {
                    fault::point("turn.before_model").map_err(StoreError::from)?;
                    match self.ask_model().await {
                        Ok(step) => {
                            fault::point("turn.after_model").map_err(StoreError::from)?;
                            let transcript = vec![model_entry(&self.held, &step)];
                            let model_use = Some(model_use(&step, self.record.model_calls()));
                            let change = TurnChange { transcript, model_use, ..TurnChange::default() };
                            self.commit(vec![Step::Model(step)], change).await?;
                            self.attempt = Attempt::First;
                        }
                        Err(end) => return self.end(end).await,
                    }
                }
                NextStep::Calls(calls) => {
                    if let Some((end, held)) = self.make_calls(calls, hold_until).await? {
                        self.end(end).await?;
                        tokio::spawn(held.follow().in_current_span());
                        return Ok(());
                    }
                }
                NextStep::Client(calls) => return self.wait_for_client(&calls).await,
                NextStep::Over(end) => return self.end(end).await,
            }
        }
    }

    /// Writes steps, with what else changes in the same transaction.
    async fn commit(&mut self, steps: Vec<Step>, change: TurnChange) -> Result<(), CommitError> {
        let new = |step: &Step| {
            let body = serde_json::to_string(step).unwrap_or_else(|_| "null".to_owned());
            NewStep { kind: step.kind().to_owned(), body }
        };
        let change = TurnChange { steps: steps.iter().map(new).collect(), ..change };
        let store = self.services.code_mode.store();
        store.commit_turn(&mut self.held, &change, Durability::Synced, now_ms()).await?;
        steps.into_iter().for_each(|step| self.record.push(step));
        Ok(())
    }

    /// Adds the messages that a person has sent since the last step.
    async fn take_steered(&mut self) -> Result<(), CommitError> {
        let steered = std::mem::take(&mut *self.interventions.steered.lock());
        for SteeredMessage { message_id, parts } in steered {
            let transcript =
                vec![entry(EntryKind::UserMessage, json!({"turnId": &self.held.turn_id, "steered": true}))];
            let change = TurnChange { transcript, messages: vec![message_id], ..TurnChange::default() };
            self.commit(vec![Step::Steered(parts)], change).await?;
        }
        Ok(())
    }

    /// Asks the model, and repeats the request as often as that may help.
    async fn ask_model(&mut self) -> Result<ModelStep, TurnEnd> {
        let agent = &self.record.request().agent;
        let limit = self.services.policy().config.max_model_calls(agent);
        if self.record.model_calls() as u64 >= limit {
            let message = format!(
                "the turn has asked the model {limit} times, which is its limit; continue in a new message, or raise \
                 `maxModelCalls` of the agent `{agent}`"
            );
            return Err(TurnEnd::Failed { status: 400, message, retry_after: None });
        }
        let items = conversation::join(self.history.clone(), self.record.items());
        let mut last_error = None;
        for target in &self.targets {
            let body = self.request_body(target, &items);
            if let Err(violation) = verify(&self.prepared.surface, target.provider.wire(), &body) {
                let what_failed =
                    "the request to the model was not sent, because it would show other tools than the policy allows";
                let message = internal_message("verify a request's tools", &violation, what_failed, "see the log");
                return Err(TurnEnd::Failed { status: 500, message, retry_after: None });
            }
            let mut attempts = 0;
            loop {
                let mut speaker = self.log.speaker();
                let mut has_events = false;
                let on_event = |event: ModelEvent| {
                    has_events = true;
                    speaker.say(&event);
                };
                let responded = tokio::select! {
                    biased;
                    () = self.interventions.abort.cancelled() => return Err(self.aborted()),
                    responded = target.provider.respond(body.clone(), on_event) => responded,
                };
                let error = match responded {
                    Ok(response) => {
                        // Some servers stream a message as a whole, without its pieces.
                        if !speaker.has_text() {
                            let rest = message_events(&response.message).into_iter();
                            rest.filter(|event| !has_events || matches!(event, ModelEvent::Text(_)))
                                .for_each(|event| speaker.say(&event));
                        }
                        return Ok(ModelStep {
                            provider: target.provider.id().to_owned(),
                            model: target.model.clone(),
                            message: response.message,
                            stop: response.stop,
                            usage: response.usage,
                        });
                    }
                    Err(error) => error,
                };
                let provider = target.provider.id();
                let (model, summary) = (&target.model, error.summary());
                tracing::warn!(provider, model, error = summary, "a request to a model failed");
                // The provider chose this text.
                tracing::debug!(provider, model, %error, "what the provider of a failed request answered");
                attempts += 1;
                if speaker.has_text() {
                    // What the client has received cannot be taken back.
                    return Err(failed(&error));
                }
                let Some(pause) = RetryPolicy::retry_delay(&error, attempts, crate::random::jitter()) else {
                    if !RetryPolicy::may_fall_back(&error, ClientProgress::Nothing) {
                        return Err(failed(&error));
                    }
                    last_error = Some(error);
                    break;
                };
                tokio::select! {
                    biased;
                    () = self.interventions.abort.cancelled() => return Err(self.aborted()),
                    () = tokio::time::sleep(pause) => {}
                }
            }
        }
        Err(last_error.map_or_else(
            || TurnEnd::Failed { status: 500, message: "the agent has no model".to_owned(), retry_after: None },
            |error| failed(&error),
        ))
    }

    fn aborted(&self) -> TurnEnd {
        let reason = self.interventions.reason.lock().clone();
        TurnEnd::Aborted { reason: reason.unwrap_or_else(|| "the turn was aborted".to_owned()) }
    }

    fn request_body(&self, target: &ModelTarget, items: &[Item]) -> Vec<u8> {
        let request = self.record.request();
        let policy = self.services.policy();
        let own = policy.config.instructions(&request.agent);
        let instructions = match (own.is_empty(), request.instructions.is_empty()) {
            (false, false) => format!("{own}\n\n{}", request.instructions),
            (false, true) => own.to_owned(),
            (true, _) => request.instructions.clone(),
        };
        // A call that the client forces is made once; afterwards the model decides.
        let tool_choice = match request.tool_choice {
            ToolChoice::Required if self.record.model_calls() > 0 => ToolChoice::Auto,
            choice => choice,
        };
        let mut extra = target.provider.extra().clone();
        extra.extend(request.extra.clone());
        let limits = [request.max_output_tokens, policy.config.max_output_tokens(&request.agent)];
        let limit = limits.into_iter().flatten().chain(target.max_tokens).min();
        let request = ModelRequest {
            model: &target.model,
            instructions: &instructions,
            tools: &self.prepared.tools,
            tool_choice,
            items,
            max_output_tokens: limit,
            stream: target.provider.streams(),
            cache_key: &self.owner.session_id,
            extra: &extra,
            quirks: target.provider.quirks(),
        };
        request.encode(target.provider.wire())
    }

    /// Makes the model's calls. Returns the end of the turn, if only people are awaited for too long, and the calls that
    /// continue after it.
    async fn make_calls(
        &mut self,
        calls: Vec<ModelCall>,
        hold_until: Instant,
    ) -> Result<Option<(TurnEnd, HeldCalls)>, DriverError> {
        let ends = {
            let controls = ControlCalls {
                code_mode: &self.services.code_mode,
                prepared: &self.prepared,
                cancelled: &self.interventions.abort,
            };
            let attempt = self.attempt;
            let made = join_all(calls.iter().map(|call| controls.run(call, attempt)));
            tokio::select! {
                biased;
                made = made => made,
                () = self.interventions.abort.cancelled() => {
                    // The end of the turn aborts them again.
                    self.abort_runs(&calls).await.log_ignored("abort the cells of a turn");
                    return Ok(None);
                }
            }
        };
        self.attempt = Attempt::Repeated;
        let (mut steps, mut clients, mut people, mut waiting) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (call, end) in calls.into_iter().zip(ends) {
            match end? {
                ControlEnd::Done(result) => steps.push(Step::Result(result)),
                ControlEnd::Client(run_id) if self.is_awaited_elsewhere(&run_id).await? => {
                    let result = waiting_result(&call, &run_id);
                    steps.push(Step::Result(ControlResult { run_id: Some(run_id), result }));
                }
                ControlEnd::Client(run_id) => clients.push(run_id),
                ControlEnd::People { run_id, approvals } => {
                    people.push((run_id, approvals));
                    waiting.push(call);
                }
            }
        }
        if !steps.is_empty() {
            self.commit(steps, TurnChange::default()).await?;
        }
        if !clients.is_empty() {
            self.deliver(&clients).await?;
            return Ok(None);
        }
        if people.is_empty() {
            return Ok(None);
        }
        if self.wait_for_people(&people, hold_until).await {
            return Ok(None);
        }
        let message = held_message(&people);
        let runs = people.iter().map(|(run_id, _)| run_id.clone()).collect();
        let (services, prepared) = (Arc::clone(&self.services), Arc::clone(&self.prepared));
        let held = HeldCalls { services, prepared, calls: waiting, people };
        Ok(Some((TurnEnd::Held { message, runs }, held)))
    }

    /// Returns whether another turn has sent an open call of the run to the client: a call is never sent under two ids.
    /// That turn gives the client's result to the call, also if it is interrupted or aborted after it has received it.
    async fn is_awaited_elsewhere(&self, run_id: &RunId) -> Result<bool, StoreError> {
        let store = self.services.code_mode.store();
        let open: Vec<CallId> = client_calls(store, run_id).await?.into_iter().map(|row| row.call).collect();
        for turn_id in store.turns_of_run(run_id).await? {
            let is_open = |one: &DeliveryRow| one.run_id == *run_id && open.contains(&one.call);
            if turn_id != self.held.turn_id && store.deliveries_of_turn(&turn_id).await?.iter().any(is_open) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Waits until a decision may let one of the runs continue. Returns `false` if the client cannot wait any longer.
    async fn wait_for_people(&self, people: &[(RunId, Vec<Approval>)], until: Instant) -> bool {
        let run_ids: Vec<RunId> = people.iter().map(|(run_id, _)| run_id.clone()).collect();
        let mut changes = self.services.code_mode.run_changes();
        loop {
            if Instant::now() >= until {
                return false;
            }
            tokio::select! {
                biased;
                () = self.interventions.abort.cancelled() => return true,
                () = self.services.shutdown.cancelled() => return false,
                () = changes.wait_any(&run_ids, POLL_INTERVAL) => {}
            }
            if has_decision(self.services.code_mode.store(), people).await {
                return true;
            }
        }
    }

    /// Aborts the cells that the calls of the model have started. If the store cannot say which cell a call has started,
    /// those of the others are aborted all the same.
    async fn abort_runs(&self, calls: &[ModelCall]) -> Result<(), StoreError> {
        let (code_mode, executor) = (&self.services.code_mode, &self.prepared.executor);
        let mut result = Ok(());
        for call in calls {
            match code_mode.store().run_of_tool_call(executor.scope(), &call.id).await {
                Ok(Some(run_id)) => {
                    code_mode.abort_with(executor, &run_id).await;
                }
                Ok(None) => {}
                Err(error) => result = Err(error),
            }
        }
        result
    }

    /// Stores the calls that these runs want from the client. They are sent afterwards.
    async fn deliver(&mut self, runs: &[RunId]) -> Result<(), DriverError> {
        let store = self.services.code_mode.store().clone();
        let expires_at = self.services.client_deadline();
        let round = self.record.steps().iter().filter(|step| matches!(step, Step::Delivered(_))).count();
        let round = u32::try_from(round).unwrap_or(u32::MAX);
        let mut calls = Vec::new();
        for run_id in runs {
            for row in client_calls(&store, run_id).await? {
                if self.record.is_delivered(run_id, row.call) {
                    // A call is never sent under two ids. Its result was received and is being given to the cell.
                    continue;
                }
                let name = ToolId::parse(tool_of(&row)).map(|id| id.name().to_owned()).unwrap_or_default();
                // The input is stored only if it differs from what the cell sent.
                let arguments = row.input.as_ref().unwrap_or(&row.payload).clone();
                let id = crate::random::call_id(self.record.request().wire)?;
                let client = ClientCall { id, name, arguments };
                calls.push(DeliveredCall { run_id: run_id.clone(), call: row.call, client });
            }
            store.prolong(run_id, expires_at).await?;
        }
        if calls.is_empty() {
            // The calls were settled in the meantime, so the cells can continue.
            tokio::time::sleep(SETTLED_PAUSE).await;
            return Ok(settle_answers(&self.services.code_mode, &self.record).await?);
        }
        let deliveries = calls
            .iter()
            .map(|call| NewDelivery {
                call_id: call.client.id.clone(),
                run_id: call.run_id.clone(),
                call: call.call,
                round,
            })
            .collect();
        let end =
            LogEnd::Calls { calls: calls.iter().map(|call| call.client.clone()).collect(), usage: self.record.usage() };
        let EndRecord { conversations, response } = self.end_record(&end);
        let change = TurnChange {
            state: Some(TurnState::Waiting),
            expires_at: Some(expires_at),
            release: ReleaseLease::Release,
            deliveries,
            conversations,
            response,
            ..TurnChange::default()
        };
        fault::point("delivery.before_commit").map_err(StoreError::from)?;
        self.commit(vec![Step::Delivered(calls)], change).await?;
        fault::point("delivery.after_commit").map_err(StoreError::from)?;
        Ok(())
    }

    /// Ends the log with the calls that the client is asked to make. The turn is in the store, where no process holds it.
    async fn wait_for_client(&mut self, calls: &[DeliveredCall]) -> Result<(), DriverError> {
        let calls = calls.iter().map(|call| call.client.clone()).collect();
        self.live.forget(&self.held.turn_id, &self.interventions);
        self.log.end(LogEnd::Calls { calls, usage: self.record.usage() });
        Ok(())
    }

    fn end_record(&mut self, end: &LogEnd) -> EndRecord {
        let (text, said, round) = (self.log.visible_text(), self.log.said(), self.record.rounds());
        let summary = TurnSummary { turn_id: &self.held.turn_id, text: &text, said: &said, round, end };
        self.on_end.take().map(|on_end| on_end(&summary)).unwrap_or_default()
    }

    /// Writes the end of the turn, then ends the log.
    async fn end(&mut self, end: TurnEnd) -> Result<(), DriverError> {
        let usage = self.record.usage();
        let (state, log_end) = match &end {
            TurnEnd::Completed(stop) => (TurnState::Completed, LogEnd::Done { stop: stop.clone(), usage }),
            TurnEnd::Held { message, .. } => {
                let separator = if self.log.visible_text().is_empty() { "" } else { PARAGRAPH };
                self.log.text(&format!("{separator}{message}"));
                (TurnState::Completed, LogEnd::Done { stop: StopReason::EndTurn, usage })
            }
            TurnEnd::Failed { status, message, retry_after } => {
                let has_effects = self.record.has_effects();
                let (status, message, retry_after) = (*status, message.clone(), *retry_after);
                (TurnState::Failed, LogEnd::Failed { status, message, has_effects, retry_after })
            }
            TurnEnd::Aborted { reason } => (
                TurnState::Aborted,
                LogEnd::Failed { status: 499, message: reason.clone(), has_effects: true, retry_after: None },
            ),
        };
        if matches!(end, TurnEnd::Aborted { .. })
            && let NextStep::Calls(calls) = self.record.next()
        {
            // If a cell cannot be found now, the turn has no end: it counts as interrupted, and `Gateway::sweep` ends it
            // together with its cells.
            self.abort_runs(&calls).await?;
        }
        let EndRecord { conversations, response } = self.end_record(&log_end);
        let transcript = vec![end_entry(&self.held, &end, usage)];
        let change = TurnChange {
            state: Some(state),
            release: ReleaseLease::Release,
            conversations,
            response,
            transcript,
            ..TurnChange::default()
        };
        fault::point("turn.before_end").map_err(StoreError::from)?;
        self.commit(vec![Step::Ended(end)], change).await?;
        fault::point("turn.after_end").map_err(StoreError::from)?;
        self.live.forget(&self.held.turn_id, &self.interventions);
        self.log.end(log_end);
        Ok(())
    }
}

/// Returns the calls of a run that wait for the client's results.
async fn client_calls(store: &Store, run_id: &RunId) -> Result<Vec<CallRow>, StoreError> {
    let mut rows = store.open_calls(run_id).await?;
    rows.retain(|row| row.state == CallState::Parked && row.outcome.is_none() && is_client_tool(tool_of(row)));
    Ok(rows)
}

fn tool_of(row: &CallRow) -> &str {
    row.tool_id.as_deref().unwrap_or(&row.target)
}

/// Returns how a turn ends after a request to a model failed. The provider's own words are passed on only if the client can
/// act on them.
fn failed(error: &CallError) -> TurnEnd {
    let (status, message) = match error {
        CallError::Status { status: status @ (400 | 413), message, .. } => (*status, message.clone()),
        CallError::Status { status: 429, .. } => (429, "the model's provider limits the rate of requests".to_owned()),
        CallError::Status { status: 529, .. } => (529, "the model's provider is overloaded".to_owned()),
        CallError::Status { status: 401 | 403, .. } => {
            (502, "the model's provider rejects the gateway's key; the operator must check it".to_owned())
        }
        CallError::Status { status, .. } => (502, format!("the model's provider answered with status {status}")),
        CallError::Unreachable(_) => (502, "the model's provider cannot be reached".to_owned()),
        CallError::TimedOut(_) => (504, "the model's provider did not respond in time".to_owned()),
        CallError::Broken(_) => (502, "the model's provider sent a response that is not complete".to_owned()),
    };
    let retry_after = match error {
        CallError::Status { retry_after: Some(wait), .. } => Some(client_wait(*wait)),
        _ => None,
    };
    TurnEnd::Failed { status, message, retry_after }
}

/// Returns the seconds after which a client should repeat its request, if a provider asks for this wait.
fn client_wait(wait: Duration) -> u64 {
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    seconds.clamp(1, MAX_CLIENT_WAIT_SECONDS)
}

/// Returns the text that a client receives if people have not decided in time.
fn held_message(people: &[(RunId, Vec<Approval>)]) -> String {
    let open: Vec<&Approval> = people.iter().flat_map(|(_, approvals)| approvals).collect();
    let mut lines = vec![format!(
        "I am waiting for a person to decide about {} tool call{}.",
        open.len(),
        if open.len() == 1 { "" } else { "s" }
    )];
    for approval in open.iter().take(MAX_NAMED_APPROVALS) {
        let (tool, id) = (approval.tool_id.as_str(), approval.approval_id.as_str());
        lines.push(format!("- {tool} ({id})"));
    }
    let rest =
        "Decide with `cellmate approvals`. The work continues by itself then. Send another message to get the result.";
    lines.push(rest.to_owned());
    lines.join("\n")
}

fn entry(kind: EntryKind, entry: Value) -> Entry {
    Entry { at: now_ms(), kind, entry }
}

fn model_entry(held: &HeldTurn, step: &ModelStep) -> Entry {
    let calls: Vec<Value> = step.message.calls.iter().map(|call| json!({"id": call.id, "name": call.name})).collect();
    entry(
        EntryKind::ModelMessage,
        json!({
            "turnId": held.turn_id, "provider": step.provider, "model": step.model, "text": step.message.text,
            "calls": calls, "stop": step.stop, "usage": step.usage,
        }),
    )
}

/// Returns what a response of a model adds to its usage. `earlier` is the number of responses before it in the turn.
fn model_use(step: &ModelStep, earlier: usize) -> ModelUse {
    let Usage { input_tokens, output_tokens, cache_read_tokens, cache_write_tokens } = step.usage;
    let model = format!("{}/{}", step.provider, step.model);
    ModelUse { model, is_first: earlier == 0, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens }
}

/// Returns the end of a turn that should summarize a conversation, but did not.
fn failed_compaction(record: &TurnRecord, next: &NextStep) -> Option<TurnEnd> {
    record.request().compaction.as_ref()?;
    let message = match next {
        NextStep::Calls(_) | NextStep::Client(_) => "the model called a tool instead of writing a summary; try again",
        NextStep::Over(TurnEnd::Completed(_)) if record.summary().is_none() => "the model wrote no summary; try again",
        NextStep::Model | NextStep::Over(_) => return None,
    };
    Some(TurnEnd::Failed { status: 502, message: message.to_owned(), retry_after: None })
}

fn end_entry(held: &HeldTurn, end: &TurnEnd, usage: Usage) -> Entry {
    entry(EntryKind::TurnNote, json!({"turnId": held.turn_id, "end": end, "usage": usage}))
}
