//! The store's public interface. Each method delegates to the module of its topic.

use std::io::{Read, Write};

use contract::config::{Quotas, Retention};
use contract::ids::{ApprovalId, CallId, OutputHandle, RunId, TurnId};
use contract::scope::Scope;

use crate::approvals::{
    Approval, Decision, DecisionError, RecordedDecision, RuleSubject, StandingRule, requests, rules,
};
use crate::backend::{Backend, Durability};
use crate::backup::{self, BackupError, BackupSummary, RestoreOptions, restore};
use crate::commit::{self, Change, CommitError, CommitReport};
use crate::error::StoreError;
use crate::keys::Keys;
use crate::lease::{LeaseError, RUNS, TURNS};
use crate::listing::{self, ChangedRow, ListedRun, PageKey, RunPageFilter};
use crate::location::Location;
use crate::outputs::{self, NewOutput, OutputPiece, OutputPosition, OutputRow, OutputWriter};
use crate::rows::{CallRow, DispatchedCall, JournalTotals, LegRow, RunFilter, RunListEntry, RunRow, RunSummary};
use crate::runs::{FencedRun, lease, read};
use crate::seal::SealError;
use crate::session_values::{self, SessionKey, SessionTotals, SessionValue, SessionValueSize};
use crate::settle::{self, SettleError, SettleResult};
use crate::sql::read_again;
use crate::sweep::{self, SweepReport};
use crate::tokens::{self, NewToken, StoredToken};
use crate::transcript::{self, Entry, NewEntry};
use crate::turns::{
    self, DeliveryRow, HeldTurn, NewTurn, ResponseRow, SessionFilter, SessionSummary, TurnChange, TurnMessage, TurnRow,
    TurnStep, UsageFilter, UsageGroup, UsageTotals,
};
use crate::watch::{self, Watch};
use crate::{Millis, key_check, migrations};

/// A handle to the store. Clones share the connections.
#[derive(Clone, Debug)]
pub struct Store {
    backend: Backend,
}

/// Opening and closing.
impl Store {
    /// Opens the store and upgrades its schema. An SQLite file is created if it does not exist.
    pub async fn open(location: &Location, keys: Keys) -> Result<Self, StoreError> {
        let backend = Backend::connect(location, keys).await?;
        migrations::apply(&backend).await?;
        Ok(Self { backend })
    }

    /// Sets how long ended runs and transcripts are kept, and how much one principal may store.
    #[must_use]
    pub fn bounded(mut self, retention: Retention, quotas: Quotas) -> Self {
        (self.backend.retention, self.backend.quotas) = (retention, quotas);
        self
    }

    /// Returns where the store is.
    pub fn location(&self) -> &Location {
        &self.backend.location
    }

    /// Returns the Postgres server's clock; `None` for SQLite.
    pub async fn server_clock(&self) -> Result<Option<Millis>, StoreError> {
        self.backend.server_clock().await
    }

    /// Returns the number of connections that are checked out of the pools.
    #[cfg(feature = "faults")]
    pub fn connections_in_use(&self) -> usize {
        self.backend.connections_in_use()
    }

    /// Waits for running operations and closes every connection.
    pub async fn close(&self) {
        self.backend.close().await;
    }
}

/// Runs and leases.
impl Store {
    /// Returns a run with its snapshot still sealed. The caller must check who may see it.
    pub async fn run(&self, run_id: &RunId) -> Result<Option<RunRow>, StoreError> {
        read::run(&self.backend, run_id).await
    }

    /// Returns the newest runs of a scope that are live or ended after `since`; only those of its client, if the scope
    /// has one.
    pub async fn recent_runs(&self, scope: &Scope, since: Millis, limit: u32) -> Result<Vec<RunSummary>, StoreError> {
        read::recent_runs(&self.backend, scope, since, limit).await
    }

    /// Returns waiting runs of a scope that have exactly this definition and are not expired, oldest first; at most 16.
    pub async fn waiting_runs(&self, scope: &Scope, definition: &str, now: Millis) -> Result<Vec<RunId>, StoreError> {
        read::waiting_runs(&self.backend, scope, definition, now).await
    }

    /// Returns the newest runs of all principals that the filter admits, newest first.
    pub async fn runs(&self, filter: &RunFilter, limit: u32) -> Result<Vec<RunListEntry>, StoreError> {
        read::runs(&self.backend, filter, limit).await
    }

    /// Returns the ids of a session's live runs.
    pub async fn runs_of_session(&self, session_id: &str) -> Result<Vec<RunId>, StoreError> {
        read::runs_of_session(&self.backend, session_id).await
    }

    /// Returns the newest run of a scope that a control call with this id started.
    pub async fn run_of_tool_call(&self, scope: &Scope, tool_call_id: &str) -> Result<Option<RunId>, StoreError> {
        read_again(|| read::run_of_tool_call(&self.backend, scope, tool_call_id)).await
    }

    /// Counts the runs that are running or waiting.
    pub async fn live_runs(&self) -> Result<u64, StoreError> {
        read::live_runs(&self.backend).await
    }

    /// Takes over a live run whose lease has expired or belongs to `holder`. The previous holder can no longer change
    /// the run.
    pub async fn take(
        &self,
        run_id: &RunId,
        holder: &str,
        now: Millis,
        lease_until: Millis,
    ) -> Result<FencedRun, LeaseError> {
        lease::take(&self.backend, run_id, holder, now, lease_until).await
    }

    /// Takes over a run even if another process has a valid lease; used to abort a run at once.
    pub async fn take_forcibly(
        &self,
        run_id: &RunId,
        holder: &str,
        lease_until: Millis,
    ) -> Result<FencedRun, LeaseError> {
        lease::take_forcibly(&self.backend, run_id, holder, lease_until).await
    }

    /// Whether a process held the run and its lease has expired or was released. Runs of direct calls have no lease.
    pub async fn is_abandoned(&self, run_id: &RunId, now: Millis) -> Result<bool, StoreError> {
        lease::is_abandoned(&self.backend, run_id, now).await
    }

    /// Extends a lease that may have expired. Returns `false` if another process has taken over the run or it has
    /// ended.
    pub async fn extend_lease(&self, held: &FencedRun, lease_until: Millis) -> Result<bool, StoreError> {
        lease::extend_lease(&self.backend, held, lease_until).await
    }

    /// Renews the leases of a holder's runs and returns how many were renewed. Runs that it has released or lost are
    /// not renewed.
    pub async fn renew(&self, holder: &str, runs: &[RunId], lease_until: Millis) -> Result<u64, StoreError> {
        lease::renew(&self.backend, holder, runs, lease_until).await
    }

    /// Returns which of these runs another process has taken over, or have ended. Runs that are not in the store yet
    /// are not returned.
    pub async fn lost(&self, holder: &str, runs: &[RunId]) -> Result<Vec<RunId>, StoreError> {
        RUNS.lost(&self.backend, holder, runs).await
    }

    /// Releases a run that was taken over but not changed.
    pub async fn release_run(&self, held: &FencedRun) -> Result<(), StoreError> {
        lease::release_run(&self.backend, held).await
    }

    /// Releases all runs of a holder, so that other processes can take them over before the leases expire.
    pub async fn release(&self, holder: &str) -> Result<u64, StoreError> {
        RUNS.release(&self.backend, holder).await
    }

    /// Postpones a run's expiry, for example because an outcome arrived for it. Never moves it earlier.
    pub async fn prolong(&self, run_id: &RunId, expires_at: Millis) -> Result<(), StoreError> {
        lease::prolong(&self.backend, run_id, expires_at).await
    }
}

/// Changes and the journal.
impl Store {
    /// Commits a change and increments the run's sequence. If the sequence or fence in the store differs from the
    /// holder's, nothing is written. If the server is unavailable for a moment, the commit is retried; if the answer to
    /// a commit is lost, it is retried only after the store shows that it was not written.
    pub async fn commit(
        &self,
        held: &mut FencedRun,
        change: &Change,
        durability: Durability,
        now: Millis,
    ) -> Result<CommitReport, CommitError> {
        commit::commit(&self.backend, held, change, durability, now).await
    }

    /// Returns the legs of a run in order.
    pub async fn legs(&self, run_id: &RunId) -> Result<Vec<LegRow>, StoreError> {
        read::legs(&self.backend, run_id).await
    }

    /// Returns all calls of a run in order.
    pub async fn calls(&self, run_id: &RunId) -> Result<Vec<CallRow>, StoreError> {
        read::calls(&self.backend, run_id).await
    }

    /// Returns one call of a run.
    pub async fn call(&self, run_id: &RunId, call: CallId) -> Result<Option<CallRow>, StoreError> {
        read::call(&self.backend, run_id, call).await
    }

    /// Returns the calls of a run whose result its cell has not received. Even a long run has only a few. A run that ended
    /// in its first commit has none, also if it did not await all of its calls.
    pub async fn open_calls(&self, run_id: &RunId) -> Result<Vec<CallRow>, StoreError> {
        read::open_calls(&self.backend, run_id).await
    }

    /// Returns the calls of a run that were dispatched to tools, without their texts.
    pub async fn dispatched_calls(&self, run_id: &RunId) -> Result<Vec<DispatchedCall>, StoreError> {
        read::dispatched_calls(&self.backend, run_id).await
    }

    /// Returns the totals of a run's journal without reading its rows. The run must not have ended in its first commit.
    pub async fn journal_totals(&self, run_id: &RunId) -> Result<JournalTotals, StoreError> {
        read::journal_totals(&self.backend, run_id).await
    }

    /// Decrypts a run's snapshot; `None` if it has none.
    pub fn open_snapshot(&self, held: &FencedRun, row: &RunRow) -> Result<Option<Vec<u8>>, SealError> {
        read::open_snapshot(&self.backend, held, row)
    }

    /// Returns the catalog tables with this hash, of at most `max_bytes`.
    pub async fn tables(&self, hash: &str, max_bytes: usize) -> Result<Option<Vec<u8>>, StoreError> {
        read::tables(&self.backend, hash, max_bytes).await
    }

    /// Stores the outcome of a call without one, from any process. The first outcome wins; outcomes are ordered by
    /// arrival. If the answer to the commit is lost, the store is read to find out whether the outcome was stored.
    pub async fn settle(&self, run_id: &RunId, call: CallId, outcome: &str) -> Result<SettleResult, SettleError> {
        settle::settle(&self.backend, run_id, call, outcome).await
    }

    /// Stores the outcome of a call without one, for the run's holder. Fails with [`CommitError::Fenced`] if the run
    /// was taken over or has ended; returns `false` if there is no such call, or it already has an outcome.
    pub async fn settle_held(&self, held: &FencedRun, call: CallId, outcome: &str) -> Result<bool, CommitError> {
        settle::settle_held(&self.backend, held, call, outcome).await
    }
}

/// Outputs and session values.
impl Store {
    /// Returns a stored output. The caller must check who may see its run.
    pub async fn output(&self, handle: &OutputHandle) -> Result<Option<OutputRow>, StoreError> {
        read_again(|| outputs::output(&self.backend, handle)).await
    }

    /// Returns the outputs of a run in the order in which they were stored.
    pub async fn outputs_of_run(&self, run: &RunId) -> Result<Vec<OutputRow>, StoreError> {
        read_again(|| outputs::outputs_of_run(&self.backend, run)).await
    }

    /// Returns the newest outputs of a session's runs, newest first.
    pub async fn outputs_of_session(&self, session: &SessionKey, limit: u32) -> Result<Vec<OutputRow>, StoreError> {
        read_again(|| outputs::outputs_of_session(&self.backend, session, limit)).await
    }

    /// Returns the piece of an output that contains the position; `None` if the position is past its end.
    pub async fn output_piece(
        &self,
        handle: &OutputHandle,
        position: OutputPosition,
    ) -> Result<Option<OutputPiece>, StoreError> {
        read_again(|| outputs::piece_at(&self.backend, handle, position)).await
    }

    /// Starts to write an output of a run piece by piece. The data of `output` is ignored. A change of this
    /// process must complete the output within an hour of `now`.
    pub fn output_writer(&self, held: &FencedRun, output: &NewOutput, now: Millis) -> Result<OutputWriter, StoreError> {
        outputs::writer(&self.backend, held, output, now)
    }

    /// Returns a value of a session.
    pub async fn session_value(&self, session: &SessionKey, key: &str) -> Result<Option<SessionValue>, StoreError> {
        read_again(|| session_values::value(&self.backend, session, key)).await
    }

    /// Returns all values of a session, ordered by their keys.
    pub async fn session_values(&self, session: &SessionKey) -> Result<Vec<SessionValue>, StoreError> {
        read_again(|| session_values::values(&self.backend, session)).await
    }

    /// Returns all values of a session without their texts, in no particular order.
    pub async fn session_value_sizes(&self, session: &SessionKey) -> Result<Vec<SessionValueSize>, StoreError> {
        read_again(|| session_values::sizes(&self.backend, session)).await
    }

    /// Counts the values of a session.
    pub async fn session_totals(&self, session: &SessionKey) -> Result<SessionTotals, StoreError> {
        read_again(|| session_values::totals(&self.backend, session)).await
    }

    /// Returns the sessions that have values, those that were written last first.
    pub async fn sessions_with_values(&self, limit: u32) -> Result<Vec<(SessionKey, SessionTotals)>, StoreError> {
        session_values::sessions(&self.backend, limit).await
    }

    /// Copies the values of a session to another one, for a fork, and returns how many. Values of keys that the other
    /// session already has are kept.
    pub async fn copy_session_values(
        &self,
        from: &SessionKey,
        to: &SessionKey,
        now: Millis,
    ) -> Result<u64, CommitError> {
        commit::copy_values(&self.backend, from, to, now).await
    }

    /// Deletes a value of a session, or all of them if no key is given. Returns how many were deleted.
    pub async fn delete_session_values(&self, session: &SessionKey, key: Option<&str>) -> Result<u64, StoreError> {
        session_values::delete(&self.backend, session, key).await
    }
}

/// Approvals.
impl Store {
    /// Returns all approvals in state `pending`, oldest first, including those that have expired since the last sweep.
    pub async fn pending_approvals(&self) -> Result<Vec<Approval>, StoreError> {
        requests::pending_approvals(&self.backend).await
    }

    /// Returns an approval request and its decision.
    pub async fn approval(&self, approval_id: &ApprovalId) -> Result<Option<Approval>, StoreError> {
        requests::approval(&self.backend, approval_id).await
    }

    /// Returns the approval requests of a run, oldest first.
    pub async fn approvals_of_run(&self, run_id: &RunId) -> Result<Vec<Approval>, StoreError> {
        requests::approvals_of_run(&self.backend, run_id).await
    }

    /// Records a decision on a pending approval. Fails if it is already decided or expired, or its run has ended. A
    /// decision that creates a standing approval also approves the other pending approvals that this one covers.
    pub async fn decide(
        &self,
        approval_id: &ApprovalId,
        decision: &Decision,
        by: &str,
        now: Millis,
    ) -> Result<RecordedDecision, DecisionError> {
        requests::decide(&self.backend, approval_id, decision, by, now).await
    }

    /// Withdraws a pending approval whose decision is no longer needed.
    pub async fn withdraw(&self, approval_id: &ApprovalId) -> Result<(), StoreError> {
        requests::withdraw(&self.backend, approval_id).await
    }

    /// Returns whether a standing approval of this agent and session allows the tool to be called without asking.
    pub async fn has_standing_approval(
        &self,
        subject: RuleSubject<'_>,
        agent_id: &str,
        session_id: &str,
    ) -> Result<bool, StoreError> {
        rules::has_standing_approval(&self.backend, subject, agent_id, session_id).await
    }

    /// Returns all standing approvals, revoked ones included, by agent, session and age.
    pub async fn rules(&self) -> Result<Vec<StandingRule>, StoreError> {
        rules::rules(&self.backend).await
    }

    /// Revokes a standing approval. Returns `false` if there is no rule with that id, or it was already revoked.
    pub async fn revoke_rule(&self, rule_id: &str, now: Millis) -> Result<bool, StoreError> {
        rules::revoke_rule(&self.backend, rule_id, now).await
    }
}

/// Named HTTP tokens.
impl Store {
    /// Creates a token. Fails if its hash exists already, or if `MAX_TOKENS` are in force.
    pub async fn create_token(&self, token: &NewToken) -> Result<(), StoreError> {
        tokens::create(&self.backend, token).await
    }

    /// Returns all tokens, ended ones included, by name and age.
    pub async fn tokens(&self) -> Result<Vec<StoredToken>, StoreError> {
        read_again(|| tokens::all(&self.backend)).await
    }

    /// Revokes a token. Returns `false` if there is no token with that id, or it was already revoked.
    pub async fn revoke_token(&self, token_id: &str, now: Millis) -> Result<bool, StoreError> {
        tokens::revoke(&self.backend, token_id, now).await
    }

    /// Returns the token whose secret has this SHA-256, in hexadecimal. The caller must check that it is in force.
    pub async fn token_by_hash(&self, hash: &str) -> Result<Option<StoredToken>, StoreError> {
        read_again(|| tokens::by_hash(&self.backend, hash)).await
    }

    /// Records that a token was used.
    pub async fn touch_token(&self, token_id: &str, now: Millis) -> Result<(), StoreError> {
        tokens::touch(&self.backend, token_id, now).await
    }
}

/// Transcripts.
impl Store {
    /// Appends to a session's transcript without changing a run.
    pub async fn note(&self, session_id: &str, run_id: &RunId, entries: &[NewEntry]) -> Result<(), CommitError> {
        Ok(transcript::append(&self.backend, session_id, run_id, entries).await?)
    }

    /// Returns a session's transcript in order.
    pub async fn transcript(&self, session_id: &str) -> Result<Vec<Entry>, StoreError> {
        transcript::read(&self.backend, session_id).await
    }

    /// Returns the entries of one run in its session's transcript, in order.
    pub async fn run_transcript(&self, session_id: &str, run_id: &RunId) -> Result<Vec<Entry>, StoreError> {
        transcript::read_run(&self.backend, session_id, run_id).await
    }

    /// Deletes the entries of one run from its session's transcript.
    pub async fn delete_run_transcript(&self, session_id: &str, run_id: &RunId) -> Result<(), StoreError> {
        transcript::delete_run(&self.backend, session_id, run_id).await
    }

    /// Returns a session's transcript as JSON lines.
    pub async fn export(&self, session_id: &str) -> Result<String, StoreError> {
        transcript::export(&self.backend, session_id).await
    }
}

/// Turns of the gateway and their leases.
impl Store {
    /// Stores a turn with its first steps, held by `holder`.
    pub async fn create_turn(
        &self,
        turn: &NewTurn,
        first: &TurnChange,
        holder: &str,
        lease_until: Millis,
        now: Millis,
    ) -> Result<HeldTurn, CommitError> {
        turns::commit::create(&self.backend, turn, first, (holder, lease_until), now).await
    }

    /// Commits a change of a turn, all of it or nothing. Fails with [`CommitError::Fenced`] if another process has taken
    /// over the turn, or it has ended. Lost answers are handled as in [`Self::commit`].
    pub async fn commit_turn(
        &self,
        held: &mut HeldTurn,
        change: &TurnChange,
        durability: Durability,
        now: Millis,
    ) -> Result<(), CommitError> {
        turns::commit::commit(&self.backend, held, change, durability, now).await
    }

    /// Takes over a turn that has not ended and whose lease has expired, was released or belongs to `holder`. The
    /// previous holder can no longer change the turn. Its state stays as it is.
    pub async fn take_turn(
        &self,
        turn_id: &TurnId,
        holder: &str,
        now: Millis,
        lease_until: Millis,
    ) -> Result<HeldTurn, LeaseError> {
        turns::lease::take(&self.backend, turn_id, holder, now, lease_until).await
    }

    /// Takes over a turn even if another process has a valid lease; used to abort a turn at once.
    pub async fn take_turn_forcibly(
        &self,
        turn_id: &TurnId,
        holder: &str,
        lease_until: Millis,
    ) -> Result<HeldTurn, LeaseError> {
        turns::lease::take_forcibly(&self.backend, turn_id, holder, lease_until).await
    }

    /// Renews the leases of a holder's turns and returns how many were renewed. Turns that it has released or lost are
    /// not renewed.
    pub async fn renew_turns(&self, holder: &str, turns: &[TurnId], lease_until: Millis) -> Result<u64, StoreError> {
        TURNS.renew(&self.backend, holder, turns, lease_until).await
    }

    /// Returns which of these turns another process has taken over. A turn that its holder has ended is not among them.
    pub async fn lost_turns(&self, holder: &str, turns: &[TurnId]) -> Result<Vec<TurnId>, StoreError> {
        TURNS.lost(&self.backend, holder, turns).await
    }

    /// Releases all turns of a holder, so that other processes can take them over before the leases expire.
    pub async fn release_turns(&self, holder: &str) -> Result<u64, StoreError> {
        TURNS.release(&self.backend, holder).await
    }

    /// Stores a message to a turn, which the process that runs the turn receives. Returns `false` if the turn is not
    /// running, or has too many messages.
    pub async fn add_turn_message(&self, message: &TurnMessage, now: Millis) -> Result<bool, StoreError> {
        turns::messages::add(&self.backend, message, now).await
    }

    /// Returns the messages to the turns that a process holds, oldest first. They stay until a change of their turn
    /// includes them.
    pub async fn turn_messages(&self, holder: &str) -> Result<Vec<TurnMessage>, StoreError> {
        read_again(|| turns::messages::of_holder(&self.backend, holder)).await
    }

    /// Returns turns in state `running` whose lease is over, those that were left first first.
    pub async fn orphaned_turns(&self, now: Millis, limit: u32) -> Result<Vec<TurnRow>, StoreError> {
        read_again(|| turns::read::orphaned(&self.backend, now, limit)).await
    }

    /// Fails every turn that has not ended, is past its `expires_at` and is held by no process. Returns how many.
    pub async fn expire_turns(&self, now: Millis) -> Result<u64, StoreError> {
        sweep::expire_turns(&self.backend, now).await
    }
}

/// What is stored of turns. What a client names is looked up with its principal.
impl Store {
    /// Returns a turn. The caller must check who may see it.
    pub async fn turn(&self, turn_id: &TurnId) -> Result<Option<TurnRow>, StoreError> {
        read_again(|| turns::read::turn(&self.backend, turn_id)).await
    }

    /// Returns the steps of a turn in order. The caller must check who may see them.
    pub async fn turn_steps(&self, turn_id: &TurnId) -> Result<Vec<TurnStep>, StoreError> {
        read_again(|| turns::read::steps(&self.backend, turn_id)).await
    }

    /// Returns the newest turns of a principal in state `running`.
    pub async fn running_turns(&self, principal: &str, limit: u32) -> Result<Vec<TurnRow>, StoreError> {
        read_again(|| turns::read::running(&self.backend, principal, limit)).await
    }

    /// Returns the finished compactions of a principal's session, oldest first: each with the turn up to which it
    /// summarizes the conversation.
    pub async fn compactions(&self, principal: &str, session_id: &str) -> Result<Vec<(TurnId, TurnId)>, StoreError> {
        read_again(|| turns::read::compactions(&self.backend, principal, session_id)).await
    }

    /// Returns the usage of models, summed up by group and in the order of the groups' keys.
    pub async fn model_usage(
        &self,
        filter: &UsageFilter,
        group: UsageGroup,
        limit: u32,
    ) -> Result<Vec<UsageTotals>, StoreError> {
        read_again(|| turns::usage::totals(&self.backend, filter, group, limit)).await
    }

    /// Returns the newest turn of a principal that began with this request and is in state `running`, or changed at
    /// `since` or later.
    pub async fn turn_by_request(
        &self,
        principal: &str,
        request_digest: &str,
        since: Millis,
    ) -> Result<Option<TurnRow>, StoreError> {
        read_again(|| turns::read::by_request(&self.backend, principal, request_digest, since)).await
    }

    /// Returns the newest turn of a principal and an agent with which the visible conversation of this digest ended.
    pub async fn turn_by_conversation(
        &self,
        principal: &str,
        agent_id: &str,
        digest: &str,
    ) -> Result<Option<TurnId>, StoreError> {
        read_again(|| turns::read::by_conversation(&self.backend, principal, agent_id, digest)).await
    }

    /// Returns those of these calls that a client of the principal was asked to make, in no particular order.
    pub async fn deliveries(&self, principal: &str, call_ids: &[String]) -> Result<Vec<DeliveryRow>, StoreError> {
        read_again(|| turns::read::deliveries(&self.backend, principal, call_ids)).await
    }

    /// Returns the calls that a turn's client was asked to make, by round.
    pub async fn deliveries_of_turn(&self, turn_id: &TurnId) -> Result<Vec<DeliveryRow>, StoreError> {
        read_again(|| turns::read::deliveries_of_turn(&self.backend, turn_id)).await
    }

    /// Returns the turns whose clients were asked to make calls of a run.
    pub async fn turns_of_run(&self, run_id: &RunId) -> Result<Vec<TurnId>, StoreError> {
        read_again(|| turns::read::turns_of_run(&self.backend, run_id)).await
    }

    /// Returns a response of a principal, also if it has expired since the last sweep.
    pub async fn response(&self, principal: &str, response_id: &str) -> Result<Option<ResponseRow>, StoreError> {
        read_again(|| turns::read::response(&self.backend, principal, response_id)).await
    }

    /// Returns the response of a principal that contains an item, the newest if there are several.
    pub async fn response_of_item(&self, principal: &str, item_id: &str) -> Result<Option<ResponseRow>, StoreError> {
        read_again(|| turns::read::response_of_item(&self.backend, principal, item_id)).await
    }

    /// Deletes a response. Returns `false` if the principal has none with this id.
    pub async fn delete_response(&self, principal: &str, response_id: &str) -> Result<bool, StoreError> {
        turns::retention::delete_response(&self.backend, principal, response_id).await
    }

    /// Returns the sessions that the filter admits and that last changed before `before`, those that changed last first.
    pub async fn sessions(
        &self,
        filter: &SessionFilter,
        limit: u32,
        before: Option<Millis>,
    ) -> Result<Vec<SessionSummary>, StoreError> {
        read_again(|| turns::read::sessions(&self.backend, filter, limit, before)).await
    }

    /// Returns the turns of a session, oldest first. The caller must check who may see them.
    pub async fn turns_of_session(&self, session_id: &str) -> Result<Vec<TurnRow>, StoreError> {
        read_again(|| turns::read::turns_of_session(&self.backend, session_id)).await
    }
}

/// Lists for programs. The caller must check who may see what they contain.
impl Store {
    /// Returns the runs that the filter admits after a place in the list, newest first.
    pub async fn run_page(
        &self,
        filter: &RunPageFilter,
        after: Option<&PageKey>,
        limit: u32,
    ) -> Result<Vec<ListedRun>, StoreError> {
        read_again(|| listing::runs(&self.backend, filter, after, limit)).await
    }

    /// Returns the sessions of an owner and an agent after a place in the list, those that changed last first.
    pub async fn session_page(
        &self,
        owner: Option<&str>,
        agent: Option<&str>,
        after: Option<&PageKey>,
        limit: u32,
    ) -> Result<Vec<SessionSummary>, StoreError> {
        read_again(|| listing::sessions(&self.backend, (owner, agent), after, limit)).await
    }

    /// Returns the principals that the turns and runs of a session belong to, each once. `None` is one without a
    /// principal.
    pub async fn session_owners(&self, session_id: &str) -> Result<Vec<Option<String>>, StoreError> {
        read_again(|| listing::session_owners(&self.backend, session_id)).await
    }

    /// Returns entries of a session's transcript with their positions, in order, those after a position.
    pub async fn transcript_page(
        &self,
        session_id: &str,
        after: i64,
        limit: u32,
    ) -> Result<Vec<(i64, Entry)>, StoreError> {
        read_again(|| transcript::read_page(&self.backend, session_id, after, limit)).await
    }

    /// Returns the runs and turns that changed at this time or later, at most `limit` of each, in that order.
    pub async fn changed_since(&self, since: Millis, limit: u32) -> Result<Vec<ChangedRow>, StoreError> {
        read_again(|| listing::changed_since(&self.backend, since, limit)).await
    }

    /// Returns the approvals that are pending, without their content, oldest first.
    pub async fn pending_approval_rows(&self, limit: u32) -> Result<Vec<ChangedRow>, StoreError> {
        read_again(|| listing::pending_approvals(&self.backend, limit)).await
    }

    /// Deletes a session's turns that have ended, its transcript and its values. Its runs are deleted with
    /// [`Self::delete_runs`]. Returns the number of turns.
    pub async fn delete_session(&self, session_id: &str) -> Result<u64, StoreError> {
        listing::delete_session(&self.backend, session_id).await
    }
}

/// Maintenance.
impl Store {
    /// Returns a watch that connects on first use.
    pub fn watch(&self) -> Watch {
        watch::watch(&self.backend)
    }

    /// Runs one sweep: expires runs and turns, and deletes old runs with their outputs, unfinished outputs, unused
    /// catalogs, expired responses, and transcript entries, session values and turns that are older than
    /// `keepTranscriptsSeconds`.
    pub async fn sweep(&self, now: Millis) -> Result<SweepReport, StoreError> {
        sweep::sweep(&self.backend, now).await
    }

    /// Expires runs that are past their time and have no active lease. A process that holds a run ends it itself, and a
    /// direct call without a cell runs without a lease.
    pub async fn expire(&self, now: Millis) -> Result<u64, StoreError> {
        sweep::expire(&self.backend, now).await
    }

    /// Deletes every run that ended before `then`, with its journal and outputs. Transcripts are kept.
    pub async fn delete_runs_before(&self, then: Millis) -> Result<u64, StoreError> {
        sweep::delete_runs_before(&self.backend, then).await
    }

    /// Counts the runs that [`Self::delete_runs_before`] would delete.
    pub async fn ended_before(&self, then: Millis) -> Result<u64, StoreError> {
        read::ended_before(&self.backend, then).await
    }

    /// Deletes those of these runs that have ended, with their journals and outputs, and returns how many. Transcripts
    /// are kept.
    pub async fn delete_runs(&self, runs: &[RunId]) -> Result<u64, StoreError> {
        sweep::delete_runs(&self.backend, runs).await
    }

    /// Records the fingerprints of this process's keys. Fails if the store has a different key under the same number,
    /// and cells that have not expired are sealed with that key.
    pub async fn check_keys(&self, now: Millis) -> Result<(), StoreError> {
        key_check::check_keys(&self.backend, now).await
    }

    /// Returns the number of the newest key that a process with this store has had.
    pub async fn newest_key(&self) -> Result<Option<u32>, StoreError> {
        key_check::newest_key(&self.backend).await
    }

    /// Counts the suspended cells that are sealed with this key and can still be resumed.
    pub async fn cells_sealed_with(&self, id: u32, now: Millis) -> Result<u64, StoreError> {
        key_check::cells_sealed_with(&self.backend, id, now).await
    }

    /// Writes a backup row by row and returns the number of rows. `keys` is the text of a key file to include.
    pub async fn backup(&self, out: &mut (dyn Write + Send), keys: Option<&str>) -> Result<u64, BackupError> {
        backup::write(&self.backend, out, keys).await
    }

    /// Replaces the contents of the store with a backup. `from` must be the backup that `summary` was read from, from
    /// its beginning; if it differs, nothing is changed.
    pub async fn restore(
        &self,
        from: &mut (dyn Read + Send),
        summary: &BackupSummary,
        options: RestoreOptions,
        now: Millis,
    ) -> Result<(), BackupError> {
        restore::restore(&self.backend, from, summary, options, now).await
    }
}
