//! The gateway independent of HTTP: starts turns, continues them with the results of clients, and stops them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use catalog::policy::Provider as PolicyProvider;
use codemode::CodeMode;
use contract::ids::TurnId;
use contract::limits::MAX_FOLLOWED_TURNS;
use contract::scope::Scope;
use executor::clock::now_ms;
use futures_util::future::try_join_all;
use mcp::server::{CallPolicy, OfferedSources};
use parking_lot::Mutex;
use serde_json::json;
use store::{
    COMPACTION, CommitError, Durability, Entry, EntryKind, HeldTurn, LeaseError, NewStep, NewTurn, ReleaseLease,
    StoreError, TurnChange, TurnMessage, TurnRow, TurnState,
};
use telemetry::LogIgnored;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use wire::conversation::{self, CallResult, Item, Part, StopReason};

use crate::compactions::Compactions;
use crate::provider::{ModelTarget, Providers};
use crate::services::{Services, Settings};
use crate::turn::driver::{Driver, TAKEN_OVER};
use crate::turn::live::{Interventions, LiveTurn, LiveTurns};
use crate::turn::log::{LogEnd, LogReader, TurnLog};
use crate::turn::prepared::{PreparationError, PreparedTurn};
use crate::turn::record::{
    ClientResults, DeliveredCall, NextStep, Origin, RecordedResponse, Step, TurnEnd, TurnRecord, TurnRequest,
};
use crate::turn::{Attempt, ControlCalls, OnEnd, OpenCallPolicy, Owner, abort_held};

/// How long a process keeps its turns without renewing their leases.
const LEASE: Duration = Duration::from_millis(6_000);

/// How often leases are renewed within their length.
const RENEWALS: u32 = 3;

/// How often messages of other processes to the turns of this one are read.
const MESSAGE_INTERVAL: Duration = Duration::from_millis(500);

/// How often turns that no client continues are looked for.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// How many interrupted turns are ended at once.
const ORPHANS_PER_SWEEP: u32 = 100;

/// How many earlier turns of a conversation are read. Older ones are left out.
pub(crate) const MAX_ANCESTORS: usize = 1_000;

/// The agent gateway. A handle: clones refer to the same gateway.
#[derive(Clone, Debug)]
pub struct Gateway {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    services: Arc<Services>,
    /// The turns that this process runs.
    live: Arc<LiveTurns>,
    /// The turns that this process is about to run.
    starting: Mutex<HashSet<TurnId>>,
    /// The requests whose meaning this process is finding out, by their digests.
    requests: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    /// A permit for each turn that may run at once.
    admissions: Arc<Semaphore>,
    /// Identifies this process in leases.
    holder: String,
}

/// A turn in progress and what a client reads of it.
#[derive(Debug)]
pub struct TurnHandle {
    pub turn_id: TurnId,
    /// Reads the turn's log from the beginning. While there is a reader, the turn is not abandoned.
    pub reader: LogReader,
    /// The number of the response among those of the turn, from 0. Each but the last ends with calls for the client.
    pub round: u32,
}

/// Whether a turn that no client reads is aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abandonment {
    /// The turn is aborted after `abandonedSeconds`.
    Abort,
    /// The turn continues.
    Continue,
}

/// A request to start a turn.
pub struct NewTurnRequest {
    pub owner: Owner,
    pub request: TurnRequest,
    /// Identifies the request, so that a repeated one finds the turn.
    pub digest: String,
    pub abandonment: Abandonment,
    pub on_end: OnEnd,
}

impl std::fmt::Debug for NewTurnRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewTurnRequest").field("owner", &self.owner).finish_non_exhaustive()
    }
}

/// Why a turn cannot be started or continued.
#[derive(Debug, thiserror::Error)]
pub enum TurnError {
    #[error("the agent `{0}` has no model; set `agents.{0}.model` or `agents.defaults.model` to `PROVIDER/MODEL`")]
    NoModel(String),
    #[error("the model `{0}` is not configured; add its provider to `models.providers`")]
    UnknownModel(String),
    #[error("the model `{0}` is not offered; ask for one that `models.providers` lists or an agent uses")]
    NotOffered(String),
    #[error("{0} turns are in progress, which is the limit of this gateway; try again later")]
    TooMany(usize),
    #[error("the gateway is shutting down; try again")]
    ShuttingDown,
    #[error(transparent)]
    Prepare(#[from] PreparationError),
    #[error("another process is working on this turn")]
    HeldElsewhere,
    #[error("there is no such turn")]
    Unknown,
    #[error("the store cannot be used: {0}")]
    Store(#[from] StoreError),
    #[error("the turn cannot be written: {0}")]
    Commit(#[from] CommitError),
    #[error("the turn cannot be read: {0}")]
    Corrupt(String),
    #[error("cannot read system randomness: {0}")]
    Randomness(#[from] getrandom::Error),
}

impl Gateway {
    /// Creates a gateway and starts the task that renews its leases. Must be called in a Tokio runtime.
    pub fn new(
        code_mode: CodeMode,
        settings: Settings,
        offered: watch::Receiver<OfferedSources>,
        providers: Providers,
    ) -> Result<Self, getrandom::Error> {
        let shutdown = CancellationToken::new();
        let admissions = Arc::new(Semaphore::new(max_turns(&settings)));
        let inner = Arc::new(Inner {
            services: Arc::new(Services {
                code_mode,
                settings,
                offered,
                providers,
                shutdown,
                followed: Semaphore::new(MAX_FOLLOWED_TURNS),
            }),
            live: Arc::default(),
            starting: Mutex::default(),
            requests: Mutex::default(),
            admissions,
            holder: executor::random_name()?,
        });
        tokio::spawn(renew(Arc::downgrade(&inner)));
        tokio::spawn(sweep(Arc::downgrade(&inner)));
        tokio::spawn(receive_messages(Arc::downgrade(&inner)));
        Ok(Self { inner })
    }

    pub fn code_mode(&self) -> &CodeMode {
        &self.inner.services.code_mode
    }

    pub fn settings(&self) -> &Settings {
        &self.inner.services.settings
    }

    pub fn providers(&self) -> &Providers {
        &self.inner.services.providers
    }

    /// Returns the policy for new steps of turns, which may have changed since the start.
    pub fn policy(&self) -> Arc<CallPolicy> {
        self.inner.services.policy()
    }

    /// Returns the tool sources that are offered now.
    pub fn offered(&self) -> OfferedSources {
        self.inner.services.offered.borrow().clone()
    }

    pub fn shutdown(&self) -> &CancellationToken {
        &self.inner.services.shutdown
    }

    /// Returns the number of turns that this process runs.
    pub fn live_turns(&self) -> usize {
        self.inner.live.len()
    }

    /// Waits until no equal request is being read. The caller holds the lock until the request's turn is in progress, so
    /// that equal requests that arrive together lead to one turn.
    pub async fn lock_request(&self, digest: &str) -> RequestLock {
        let lock = Arc::clone(self.inner.requests.lock().entry(digest.to_owned()).or_default());
        let guard = Some(lock.lock_owned().await);
        RequestLock { inner: Arc::clone(&self.inner), digest: digest.to_owned(), guard }
    }

    /// Returns whether this process runs a turn, or is about to.
    pub(crate) fn is_live(&self, turn_id: &TurnId) -> bool {
        self.inner.live.has(turn_id)
    }

    /// Starts a turn. It runs until it ends or waits for its client.
    pub async fn begin(&self, new: NewTurnRequest) -> Result<TurnHandle, TurnError> {
        let admission = self.admit()?;
        let NewTurnRequest { owner, mut request, digest, abandonment, on_end } = new;
        request.origin = Origin {
            session_key: owner.session_key.clone(),
            sender: owner.sender.clone(),
            channel: owner.channel.clone(),
        };
        let targets = self.targets_of(&request)?;
        let turn_id = TurnId::new(format!("turn_{}", crate::random::id()?));
        let prepared = self.prepare(&owner, &turn_id, &request, &targets)?;
        let history = match &request.parent {
            Some(parent) => {
                let record = self.record(parent, &owner.principal).await?;
                let open = self.open_results(parent, &record).await?;
                if !open.is_empty() {
                    // Recorded here, so that later turns of the conversation show the model the same.
                    request.items = conversation::join(Vec::new(), [vec![Item::Results(open)], request.items].concat());
                }
                self.history(parent, &owner.principal, &request, &prepared, &targets).await?
            }
            None => Vec::new(),
        };
        let row = NewTurn {
            turn_id: turn_id.clone(),
            principal: owner.principal.clone(),
            agent_id: owner.agent.clone(),
            session_id: owner.session_id.clone(),
            parent: request.parent.clone(),
            wire: if request.compaction.is_some() { COMPACTION } else { request.wire.as_str() }.to_owned(),
            request_digest: digest,
            expires_at: self.inner.services.client_deadline(),
        };
        let step = Step::Request(request.clone());
        let body = serde_json::to_string(&step).map_err(|error| TurnError::Corrupt(error.to_string()))?;
        let transcript = vec![user_entry(&turn_id, &owner, &request)];
        let steps = vec![NewStep { kind: step.kind().to_owned(), body }];
        let first = TurnChange { steps, transcript, ..TurnChange::default() };
        let (now, holder) = (now_ms(), &self.inner.holder);
        fault::point("turn.before_create").map_err(StoreError::from)?;
        let held = self.store().create_turn(&row, &first, holder, lease_until(now), now).await?;
        fault::point("turn.after_create").map_err(StoreError::from)?;
        let record = TurnRecord::new(request);
        let ready = ReadyTurn { owner, record, history, targets, prepared, attempt: Attempt::First, admission };
        Ok(self.launch(held, ready, abandonment, on_end))
    }

    /// Continues a turn that waits for results of its client. Results that were given before are ignored.
    pub async fn continue_turn(
        &self,
        row: &TurnRow,
        results: ClientResults,
        abandonment: Abandonment,
        on_end: OnEnd,
    ) -> Result<TurnHandle, TurnError> {
        let (mut held, mut ready, _starting) = self.take_over(row).await?;
        let unanswered = ready.record.unanswered();
        let is_answered = |call: &DeliveredCall| results.results.iter().any(|result| result.call_id == call.client.id);
        if unanswered.is_empty() || !unanswered.iter().all(is_answered) {
            // Another process received the results first, and may have sent newer calls to the client.
            let change = TurnChange { release: ReleaseLease::Release, ..TurnChange::default() };
            self.store().commit_turn(&mut held, &change, Durability::Relaxed, now_ms()).await?;
            return Err(TurnError::HeldElsewhere);
        }
        let answered = results.results.iter().map(|result| result.call_id.clone()).collect();
        let step = Step::Answered(results);
        let change = TurnChange {
            steps: vec![NewStep {
                kind: step.kind().to_owned(),
                body: serde_json::to_string(&step).map_err(|error| TurnError::Corrupt(error.to_string()))?,
            }],
            state: Some(TurnState::Running),
            answered,
            ..TurnChange::default()
        };
        fault::point("answer.before_commit").map_err(StoreError::from)?;
        self.store().commit_turn(&mut held, &change, Durability::Synced, now_ms()).await?;
        fault::point("answer.after_commit").map_err(StoreError::from)?;
        ready.record.push(step);
        Ok(self.launch(held, ready, abandonment, on_end))
    }

    /// Continues a turn whose process ended while it was running. The client receives the response from its beginning.
    pub async fn resume(
        &self,
        row: &TurnRow,
        abandonment: Abandonment,
        on_end: OnEnd,
    ) -> Result<TurnHandle, TurnError> {
        let (held, ready, _starting) = self.take_over(row).await?;
        Ok(self.launch(held, ready, abandonment, on_end))
    }

    /// Returns a recorded response of a turn, to be sent again; `None` if it is not complete. Responses are numbered from
    /// 0.
    pub fn resend(&self, turn_id: &TurnId, record: &TurnRecord, response: usize) -> Option<TurnHandle> {
        let responses = record.responses();
        let RecordedResponse { said, calls, usage, .. } = responses.get(response).filter(|one| one.is_whole)?.clone();
        let log = TurnLog::default();
        log.append_all(&said);
        log.end(match (calls.is_empty(), record.next()) {
            (true, NextStep::Over(TurnEnd::Completed(stop))) => LogEnd::Done { stop, usage },
            (true, _) => LogEnd::Done { stop: StopReason::EndTurn, usage },
            (false, _) => LogEnd::Calls { calls, usage },
        });
        let round = u32::try_from(response).unwrap_or(u32::MAX);
        Some(TurnHandle { turn_id: turn_id.clone(), reader: log.read(), round })
    }

    /// Returns what the model receives for its calls that have no result in a turn: the results of their runs, or that
    /// they are still waiting. Runs of a turn that has ended are resumed, because no driver does so.
    pub(crate) async fn open_results(
        &self,
        turn_id: &TurnId,
        record: &TurnRecord,
    ) -> Result<Vec<CallResult>, TurnError> {
        let open = record.open_calls();
        let Some(row) = self.store().turn(turn_id).await?.filter(|_| !open.is_empty()) else { return Ok(Vec::new()) };
        let targets = self.targets_of(record.request())?;
        let prepared = self.prepare(&owner_of(&row, record.request()), turn_id, record.request(), &targets)?;
        let cancelled = CancellationToken::new();
        let calls = ControlCalls { code_mode: self.code_mode(), prepared: &prepared, cancelled: &cancelled };
        let policy = if row.state.is_over() { OpenCallPolicy::Resume } else { OpenCallPolicy::Leave };
        // Together: each may wait for a tool. The results have the order of the calls.
        Ok(try_join_all(open.iter().map(|call| calls.recorded(call, policy))).await?)
    }

    /// Returns a turn that this process runs, if it belongs to the principal.
    pub fn live(&self, turn_id: &TurnId, principal: &str) -> Option<TurnHandle> {
        let (reader, round) = self.inner.live.read(turn_id, principal)?;
        Some(TurnHandle { turn_id: turn_id.clone(), reader, round })
    }

    /// Returns the turns of a principal that this process runs, with the numbers of their responses.
    pub fn live_responses(&self, principal: &str) -> Vec<(TurnId, u32)> {
        self.inner.live.of(principal)
    }

    /// Aborts a turn that this process runs. Returns whether there was one.
    pub fn abort(&self, turn_id: &TurnId, reason: &str) -> bool {
        self.inner.live.abort(turn_id, reason)
    }

    /// Gives a stored message to a turn, if this process runs it. Otherwise the process that runs it reads the message.
    pub(crate) fn receive(&self, message: TurnMessage) {
        self.inner.live.receive(message);
    }

    /// Returns the conversation up to and including a turn, as the model has seen it.
    pub async fn conversation(&self, turn_id: &TurnId, principal: &str) -> Result<Vec<Item>, TurnError> {
        let mut turns = Vec::new();
        let mut items = Vec::new();
        let mut next = Some(turn_id.clone());
        let mut compactions = Compactions::default();
        while let Some(turn_id) = next.take().filter(|_| turns.len() < MAX_ANCESTORS) {
            let row = self.store().turn(&turn_id).await?.filter(|row| row.principal == principal);
            let Some(row) = row else {
                // An ancestor may have been deleted, because it is too old.
                if turns.is_empty() {
                    return Err(TurnError::Unknown);
                }
                break;
            };
            if let Some(compaction) = compactions.of(self.store(), &row).await?
                && let Some(summary) = self.read_record(&compaction).await?.summary()
            {
                items.push(summary);
                break;
            }
            let record = self.read_record(&turn_id).await?;
            next.clone_from(&record.request().parent);
            turns.push(record);
        }
        for record in turns.iter().rev() {
            items = conversation::join(items, record.items());
        }
        Ok(items)
    }

    /// Returns the record of a principal's turn.
    pub async fn record(&self, turn_id: &TurnId, principal: &str) -> Result<TurnRecord, TurnError> {
        let row = self.store().turn(turn_id).await?.filter(|row| row.principal == principal);
        row.ok_or(TurnError::Unknown)?;
        self.read_record(turn_id).await
    }

    pub(crate) async fn read_record(&self, turn_id: &TurnId) -> Result<TurnRecord, TurnError> {
        let steps = self.store().turn_steps(turn_id).await?;
        let read = |step: &store::TurnStep| serde_json::from_str::<Step>(&step.body);
        let steps: Result<Vec<Step>, _> = steps.iter().map(read).collect();
        let steps = steps.map_err(|error| TurnError::Corrupt(error.to_string()))?;
        TurnRecord::from_steps(steps).map_err(|error| TurnError::Corrupt(error.to_string()))
    }

    pub(crate) fn store(&self) -> &store::Store {
        self.inner.services.code_mode.store()
    }

    /// Reserves the place of one turn among those that run at once.
    fn admit(&self) -> Result<OwnedSemaphorePermit, TurnError> {
        if self.inner.services.shutdown.is_cancelled() {
            return Err(TurnError::ShuttingDown);
        }
        let admission = Arc::clone(&self.inner.admissions).try_acquire_owned();
        admission.map_err(|_| TurnError::TooMany(max_turns(&self.inner.services.settings)))
    }

    /// Returns the models of a turn: the one that the client asks for, or those of the agent.
    pub(crate) fn targets_of(&self, request: &TurnRequest) -> Result<Vec<ModelTarget>, TurnError> {
        let Some(name) = &request.model else { return self.targets(&request.agent) };
        let target = self.inner.services.providers.target(name).filter(|_| self.is_offered(name));
        Ok(vec![target.ok_or_else(|| TurnError::NotOffered(name.clone()))?])
    }

    /// Returns whether clients may ask for a model by its name: the configuration lists it, or an agent uses it.
    fn is_offered(&self, name: &str) -> bool {
        let config = &self.policy().config;
        let used = |agent: &str| {
            let choice = config.model(agent);
            choice
                .is_some_and(|choice| std::iter::once(&choice.primary).chain(&choice.fallbacks).any(|one| one == name))
        };
        self.inner.services.providers.is_listed(name) || config.agent_ids().any(used)
    }

    /// Estimates the tokens of the first request to the model for a turn: four bytes are one token.
    pub fn estimate_tokens(&self, owner: &Owner, request: &TurnRequest, history: &[Item]) -> Result<u64, TurnError> {
        let targets = self.targets_of(request)?;
        let prepared = self.prepare(owner, &TurnId::new("estimate"), request, &targets)?;
        let tool = |tool: &wire::conversation::ModelTool| {
            tool.name.len() + tool.description.len() + tool.parameters.get().len()
        };
        let tools: usize = prepared.tools.iter().map(tool).sum();
        let instructions = self.policy().config.instructions(&request.agent).len() + request.instructions.len();
        let bytes = |items: &[Item]| serde_json::to_string(items).map_or(0, |text| text.len());
        let all = tools + instructions + bytes(history) + bytes(&request.items);
        Ok(u64::try_from(all.div_ceil(4)).unwrap_or(u64::MAX))
    }

    /// Returns the models of an agent, the preferred one first.
    fn targets(&self, agent: &str) -> Result<Vec<ModelTarget>, TurnError> {
        let policy = self.policy();
        let choice = policy.config.model(agent).ok_or_else(|| TurnError::NoModel(agent.to_owned()))?;
        let all = std::iter::once(&choice.primary).chain(&choice.fallbacks);
        all.map(|name| self.inner.services.providers.target(name).ok_or_else(|| TurnError::UnknownModel(name.clone())))
            .collect()
    }

    pub(crate) fn prepare(
        &self,
        owner: &Owner,
        turn_id: &TurnId,
        request: &TurnRequest,
        targets: &[ModelTarget],
    ) -> Result<PreparedTurn, TurnError> {
        let scope = Scope {
            agent_id: owner.agent.clone(),
            session_id: owner.session_id.clone(),
            session_key: owner.session_key.clone(),
            agent_run_id: turn_id.as_str().to_owned(),
            sender: owner.sender.clone(),
            channel: owner.channel.clone(),
            ..Scope::default()
        };
        let provider = match targets.first() {
            Some(target) => {
                PolicyProvider::Known { name: target.provider.id().to_owned(), model: Some(target.model.clone()) }
            }
            None => PolicyProvider::Unknown,
        };
        Ok(PreparedTurn::new(&self.inner.services.settings, &self.offered(), scope, request, provider)?)
    }

    /// Takes a turn that no process runs.
    async fn take_over(&self, row: &TurnRow) -> Result<(HeldTurn, ReadyTurn, StartingTurn), TurnError> {
        let admission = self.admit()?;
        // The store lets a process take its own turns again, so that a turn is taken once here is checked here.
        let starting = StartingTurn::new(&self.inner, &row.turn_id).ok_or(TurnError::HeldElsewhere)?;
        let now = now_ms();
        let taken = self.store().take_turn(&row.turn_id, &self.inner.holder, now, lease_until(now)).await;
        let held = taken.map_err(|error| match error {
            LeaseError::Store(error) => TurnError::Store(error),
            _ => TurnError::HeldElsewhere,
        })?;
        let record = self.read_record(&row.turn_id).await?;
        let owner = owner_of(row, record.request());
        let targets = self.targets_of(record.request())?;
        let prepared = self.prepare(&owner, &row.turn_id, record.request(), &targets)?;
        let history = match &record.request().parent {
            Some(parent) => self.history(parent, &row.principal, record.request(), &prepared, &targets).await?,
            None => Vec::new(),
        };
        let ready = ReadyTurn { owner, record, history, targets, prepared, attempt: Attempt::Repeated, admission };
        Ok((held, ready, starting))
    }

    fn launch(&self, held: HeldTurn, ready: ReadyTurn, abandonment: Abandonment, on_end: OnEnd) -> TurnHandle {
        let ReadyTurn { owner, record, history, targets, prepared, attempt, admission } = ready;
        let (log, interventions) = (TurnLog::default(), Arc::new(Interventions::default()));
        // A response that was interrupted is sent from its beginning.
        log.append_all(&record.responses().last().map(|response| response.said.clone()).unwrap_or_default());
        let turn_id = held.turn_id.clone();
        let round = record.rounds();
        let live = LiveTurn {
            principal: owner.principal.clone(),
            log: log.clone(),
            interventions: Arc::clone(&interventions),
            round,
            _admission: Arc::new(admission),
        };
        self.inner.live.add(&turn_id, live);
        let driver = Driver {
            services: Arc::clone(&self.inner.services),
            live: Arc::clone(&self.inner.live),
            owner,
            held,
            record,
            history,
            targets,
            prepared: Arc::new(prepared),
            log: log.clone(),
            interventions: Arc::clone(&interventions),
            on_end: Some(on_end),
            attempt,
        };
        let (gateway, id) = (self.clone(), turn_id.clone());
        let reader = log.read();
        let (watched, lost_log) = (log.clone(), log.clone());
        let task = async move {
            let running = driver.run();
            tokio::pin!(running);
            let abandoned = abandoned(watched, abandonment, gateway.settings().gateway.abandoned_seconds);
            tokio::select! {
                biased;
                () = &mut running => {}
                () = interventions.lost.cancelled() => {
                    // The other process continues the turn and its runs, so nothing is aborted here.
                    let message = TAKEN_OVER.to_owned();
                    lost_log.end(LogEnd::Failed { status: 503, message, has_effects: false, retry_after: None });
                }
                () = abandoned => {
                    gateway.abort(&id, "the client closed its connection and did not come back");
                    running.await;
                }
            }
            gateway.inner.live.forget(&id, &interventions);
        };
        // At level `error`, so that a log of errors only has it, too.
        tokio::spawn(task.instrument(tracing::error_span!("turn", turn = %turn_id)));
        TurnHandle { turn_id, reader, round }
    }

    /// Ends turns that no client continues at this time. Their runs are aborted, or expire. Returns how many turns it
    /// ended.
    pub async fn sweep(&self, now: store::Millis) -> Result<u64, TurnError> {
        let store = self.store();
        let mut ended = store.expire_turns(now).await?;
        let seconds = i64::try_from(self.inner.services.settings.gateway.abandoned_seconds).unwrap_or(i64::MAX);
        let left = now.saturating_sub(seconds.saturating_mul(1_000));
        for row in store.orphaned_turns(left, ORPHANS_PER_SWEEP).await? {
            // A lease that was released has no time of its own.
            if row.updated_at.max(row.lease_until) > left {
                continue;
            }
            match self.end_orphan(&row).await {
                Ok(()) => ended += 1,
                // A client has come back just now, or another process ends it.
                Err(TurnError::HeldElsewhere | TurnError::Commit(CommitError::Fenced)) => {}
                Err(error) => {
                    let error = telemetry::error_chain(&error);
                    tracing::warn!(turn = row.turn_id.as_str(), error, "an interrupted turn cannot be ended");
                }
            }
        }
        Ok(ended)
    }

    async fn end_orphan(&self, row: &TurnRow) -> Result<(), TurnError> {
        let _starting = StartingTurn::new(&self.inner, &row.turn_id).ok_or(TurnError::HeldElsewhere)?;
        let now = now_ms();
        let taken = self.store().take_turn(&row.turn_id, &self.inner.holder, now, lease_until(now)).await;
        let mut held = taken.map_err(|error| match error {
            LeaseError::Store(error) => TurnError::Store(error),
            _ => TurnError::HeldElsewhere,
        })?;
        let record = self.read_record(&row.turn_id).await?;
        let reason = "the process that ran the turn ended, and the client did not come back";
        abort_held(self.code_mode(), &mut held, &record, reason).await?;
        tracing::info!(
            turn = row.turn_id.as_str(),
            "an interrupted turn was ended, because its client did not come back"
        );
        Ok(())
    }

    /// Stops accepting turns and releases those that this process runs, so that another process can continue them.
    pub async fn shut_down(&self) {
        self.inner.services.shutdown.cancel();
        self.store().release_turns(&self.inner.holder).await.log_ignored("release the turns of this process");
    }
}

/// The right to find out what a request means. Equal requests wait for it.
#[derive(Debug)]
pub struct RequestLock {
    inner: Arc<Inner>,
    digest: String,
    guard: Option<tokio::sync::OwnedMutexGuard<()>>,
}

impl Drop for RequestLock {
    fn drop(&mut self) {
        let mut requests = self.inner.requests.lock();
        self.guard = None;
        // New holders take the lock out of the map first, which is locked here.
        if requests.get(&self.digest).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            requests.remove(&self.digest);
        }
    }
}

/// A turn that this process is about to run. No second request can take it meanwhile.
struct StartingTurn {
    inner: Arc<Inner>,
    turn_id: TurnId,
}

impl StartingTurn {
    /// Returns `None` if this process runs the turn, or another request is about to continue it.
    fn new(inner: &Arc<Inner>, turn_id: &TurnId) -> Option<Self> {
        let mut starting = inner.starting.lock();
        if inner.live.has(turn_id) || !starting.insert(turn_id.clone()) {
            return None;
        }
        Some(Self { inner: Arc::clone(inner), turn_id: turn_id.clone() })
    }
}

impl Drop for StartingTurn {
    fn drop(&mut self) {
        self.inner.starting.lock().remove(&self.turn_id);
    }
}

/// Returns whose turn a stored turn is, as its request said.
pub(crate) fn owner_of(row: &TurnRow, request: &TurnRequest) -> Owner {
    let Origin { session_key, sender, channel } = request.origin.clone();
    let (principal, agent) = (row.principal.clone(), row.agent_id.clone());
    Owner { principal, agent, session_id: row.session_id.clone(), session_key, sender, channel }
}

/// A turn that is ready to be driven.
struct ReadyTurn {
    owner: Owner,
    record: TurnRecord,
    history: Vec<Item>,
    targets: Vec<ModelTarget>,
    prepared: PreparedTurn,
    attempt: Attempt,
    admission: OwnedSemaphorePermit,
}

/// Returns how many turns may run at once.
fn max_turns(settings: &Settings) -> usize {
    usize::try_from(settings.gateway.max_concurrent_turns)
        .map_or(Semaphore::MAX_PERMITS, |turns| turns.min(Semaphore::MAX_PERMITS))
}

fn lease_until(now: store::Millis) -> store::Millis {
    now + i64::try_from(LEASE.as_millis()).unwrap_or(i64::MAX)
}

/// Completes when a turn's log has had no reader for some time.
async fn abandoned(log: TurnLog, abandonment: Abandonment, seconds: u64) {
    if abandonment == Abandonment::Continue {
        return std::future::pending().await;
    }
    loop {
        log.without_readers().await;
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        if log.readers() == 0 {
            return;
        }
    }
}

/// Renews the leases of this process's turns. A driver whose turn another process has taken stops.
async fn renew(inner: Weak<Inner>) {
    loop {
        tokio::time::sleep(LEASE / RENEWALS).await;
        let Some(inner) = inner.upgrade() else { return };
        let ids = inner.live.ids();
        if ids.is_empty() {
            continue;
        }
        let store = inner.services.code_mode.store();
        store.renew_turns(&inner.holder, &ids, lease_until(now_ms())).await.log_ignored("renew the leases of turns");
        match store.lost_turns(&inner.holder, &ids).await {
            Ok(lost) => lost.iter().for_each(|turn_id| inner.live.lose(turn_id)),
            Err(error) => tracing::warn!(error = telemetry::error_chain(&error), "lost turns cannot be looked for"),
        }
    }
}

/// Receives what other processes ask the turns of this process to do.
async fn receive_messages(inner: Weak<Inner>) {
    loop {
        tokio::time::sleep(MESSAGE_INTERVAL).await;
        let Some(inner) = inner.upgrade() else { return };
        if inner.live.len() == 0 {
            continue;
        }
        match inner.services.code_mode.store().turn_messages(&inner.holder).await {
            Ok(messages) => messages.into_iter().for_each(|message| inner.live.receive(message)),
            Err(error) => tracing::warn!(error = telemetry::error_chain(&error), "messages to turns cannot be read"),
        }
    }
}

/// Ends turns that no client continues: those whose calls were not answered in time, and those whose process ended while
/// they were running.
async fn sweep(inner: Weak<Inner>) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        let Some(inner) = inner.upgrade() else { return };
        if inner.services.shutdown.is_cancelled() {
            return;
        }
        let gateway = Gateway { inner };
        gateway.sweep(now_ms()).await.log_ignored("end turns that no client continues");
    }
}

fn user_entry(turn_id: &TurnId, owner: &Owner, request: &TurnRequest) -> Entry {
    if request.compaction.is_some() {
        let entry = json!({"turnId": turn_id, "compaction": {"upTo": request.parent}});
        return Entry { at: now_ms(), kind: EntryKind::TurnNote, entry };
    }
    let text = |item: &Item| match item {
        Item::User(parts) => Some(
            parts
                .iter()
                .filter_map(|part| match part {
                    Part::Text(text) => Some(text.as_str()),
                    Part::Image(_) | Part::Other(..) => None,
                })
                .collect::<Vec<_>>()
                .join("\n"),
        ),
        Item::System(_) | Item::Assistant(_) | Item::Results(_) => None,
    };
    let text = request.items.iter().rev().find_map(text).unwrap_or_default();
    let entry = json!({
        "turnId": turn_id, "principal": owner.principal, "agent": owner.agent, "wire": request.wire, "text": text,
        "sender": owner.sender, "channel": owner.channel,
    });
    Entry { at: now_ms(), kind: EntryKind::UserMessage, entry }
}
