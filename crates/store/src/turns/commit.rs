//! Commits the changes of turns atomically, and only for the process that holds the turn.

use super::limits::{TurnTotals, is_short_end};
use super::{HeldTurn, NewTurn, TurnChange, TurnState, messages, rows, usage};
use crate::Millis;
use crate::backend::{Backend, Durability};
use crate::commit::CommitError;
use crate::commit::recovery::{AttemptError, AttemptedRow, CommitStatus, RetryState, resolve_attempt};
use crate::commit::usage::{Claimant, take};
use crate::quota::Claim;
use crate::sqlite_writer::Program;
use crate::statement::Step;
use crate::transcript;

/// Whether a change creates its turn, with the lease of its holder.
#[derive(Clone, Copy)]
enum Target<'a> {
    New(&'a NewTurn, Millis),
    Existing,
}

pub(crate) async fn create(
    backend: &Backend,
    turn: &NewTurn,
    change: &TurnChange,
    (holder, lease_until): (&str, Millis),
    now: Millis,
) -> Result<HeldTurn, CommitError> {
    let mut held = HeldTurn {
        turn_id: turn.turn_id.clone(),
        principal: turn.principal.clone(),
        agent_id: turn.agent_id.clone(),
        session_id: turn.session_id.clone(),
        holder: holder.to_owned(),
        sequence: 0,
        fence: 1,
        totals: TurnTotals::default(),
    };
    // A later durable commit makes this one durable too, before anything that it causes.
    write_until_known(backend, &mut held, Target::New(turn, lease_until), change, Durability::Relaxed, now).await?;
    Ok(held)
}

pub(crate) async fn commit(
    backend: &Backend,
    held: &mut HeldTurn,
    change: &TurnChange,
    durability: Durability,
    now: Millis,
) -> Result<(), CommitError> {
    write_until_known(backend, held, Target::Existing, change, durability, now).await
}

/// Writes a change. If the server is unavailable for a moment, tries again; if the answer to a commit is lost, only
/// after the store shows that the change was not written.
async fn write_until_known(
    backend: &Backend,
    held: &mut HeldTurn,
    target: Target<'_>,
    change: &TurnChange,
    durability: Durability,
    now: Millis,
) -> Result<(), CommitError> {
    let after = held.totals.after(change)?;
    let claim = claim_of(change).and_then(|claim| backend.deferred_bytes.due(&held.principal, claim, &backend.quotas));
    let attempted = AttemptedRow {
        table: "turns",
        id_column: "turn_id",
        id: &held.turn_id,
        sequence: held.sequence,
        fence: held.fence,
    };
    let mut retry = RetryState::begin();
    while let Err(error) = write(backend, held, target, change, claim, durability, now).await {
        match resolve_attempt(backend, &attempted, error, &mut retry).await? {
            CommitStatus::Written => break,
            CommitStatus::NotWritten => {}
        }
    }
    held.totals = after;
    held.sequence += 1;
    Ok(fault::point("turn.after_commit")?)
}

/// Returns what the change uses of the principal's quota; `None` if nothing.
fn claim_of(change: &TurnChange) -> Option<Claim> {
    let added = TurnTotals::of(change);
    if added.bytes == 0 || is_short_end(change, added) {
        return None;
    }
    let kept_bytes = i64::try_from(added.bytes).unwrap_or(i64::MAX);
    Some(Claim { runs: 0, snapshot_bytes: 0, kept_bytes, approvals: 0 })
}

async fn write(
    backend: &Backend,
    held: &HeldTurn,
    target: Target<'_>,
    change: &TurnChange,
    claim: Option<Claim>,
    durability: Durability,
    now: Millis,
) -> Result<(), AttemptError> {
    let entries = rows::of_turn(held, &change.transcript);
    let is_checked = claim.is_some() || change.state == Some(TurnState::Waiting) || !change.deliveries.is_empty();
    if let Some(writer) = backend.sqlite_writer()
        && !is_checked
    {
        let mut steps = steps(held, target, change, now);
        steps.extend(transcript::statements(&held.session_id, &held.turn_id, &entries).map(Step::from));
        steps.push(Step::Point("turn.before_commit"));
        return Ok(writer.write(Program { steps, durability }).await?);
    }
    let mut transaction = backend.writer(durability).begin().await?;
    for step in steps(held, target, change, now) {
        step.execute(&mut transaction).await?;
    }
    if !change.deliveries.is_empty() {
        rows::check_deliveries(&mut transaction, backend.dialect, held, &change.deliveries).await?;
    }
    if change.state == Some(TurnState::Waiting) {
        rows::check_open_turns(&mut transaction, &held.principal).await?;
    }
    if let Some(claim) = claim {
        let claimant = Claimant { agent_id: &held.principal, run_id: None };
        take(&mut transaction, claimant, claim, &backend.quotas, now).await?;
    }
    transcript::write(&mut transaction, backend.dialect, &held.session_id, &held.turn_id, &entries).await?;
    fault::point("turn.before_commit")?;
    fault::commit_result(transaction.commit().await).map_err(|error| AttemptError::AtCommit(error.into()))
}

/// Returns the steps that write a change, except its transcript.
fn steps<'a>(held: &'a HeldTurn, target: Target<'a>, change: &'a TurnChange, now: Millis) -> Vec<Step<'a>> {
    let mut steps = vec![match target {
        Target::New(turn, until) => rows::insert_turn((turn, &held.holder, until), change, now).into(),
        Target::Existing => rows::update_turn(held, change, now),
    }];
    steps.extend(rows::step_statements(held, &change.steps, now).into_iter().map(Step::from));
    steps.extend(rows::delivery_statements(held, change, now).map(Step::from));
    steps.extend(rows::conversation_statements(held, &change.conversations, now).map(Step::from));
    if let Some(response) = &change.response {
        steps.extend(rows::response_steps(held, response, now));
    }
    steps.extend(change.model_use.as_ref().map(|model_use| usage::add(held, model_use, now).into()));
    steps.extend(messages::delete(held, change).into_iter().map(Step::from));
    steps
}
