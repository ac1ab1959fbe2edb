//! `/api/v1/sessions`: sessions, their transcripts and their export.

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use contract::ids::RunId;
use executor::clock::now_ms;
use serde_json::{Value, json};
use store::{PageKey, RunPageFilter, SessionSummary, Store};

use super::Api;
use super::access::Viewer;
use super::error::ApiError;
use super::limits::{DEFAULT_TRANSCRIPT_PAGE, MAX_HELD_ENTRIES, MAX_PAGE, MAX_SHOWN_TURNS};
use super::nested_entries::NestedEntries;
use super::request::{Ids, Query, cursor, page};
use super::schema::Presence::{Optional, Required};
use super::schema::{integer, list as list_of, nullable_text, object, open_object, page as page_of, text};
use super::turns::{abort_turn, turn_fields, turn_json};

pub(super) fn page_schema() -> Value {
    page_of(object(&[
        ("sessionId", Required, text()),
        ("agentId", Required, text()),
        ("principal", Required, text()),
        ("turns", Required, integer()),
        ("firstAt", Required, integer()),
        ("lastAt", Required, integer()),
    ]))
}

pub(super) fn session_schema() -> Value {
    object(&[
        ("sessionId", Required, text()),
        ("principal", Required, nullable_text()),
        ("turns", Required, list_of(object(&turn_fields()))),
        ("turnsOmitted", Required, integer()),
        ("liveRuns", Required, integer()),
    ])
}

pub(super) fn deleted_schema() -> Value {
    object(&[("deletedTurns", Required, integer()), ("deletedRuns", Required, integer())])
}

pub(super) fn transcript_schema() -> Value {
    let call =
        open_object(&[("at", Required, integer()), ("kind", Required, text()), ("toolCallId", Required, text())]);
    let entry =
        open_object(&[("at", Required, integer()), ("kind", Required, text()), ("toolCalls", Optional, list_of(call))]);
    object(&[
        ("sessionId", Required, text()),
        ("items", Required, list_of(entry)),
        ("nextCursor", Required, nullable_text()),
    ])
}

pub(super) async fn list(State(api): State<Api>, viewer: Viewer, query: Query) -> Result<Json<Value>, ApiError> {
    let (after, limit) = (query.after()?, query.number("limit"));
    let (only, agent) = (viewer.only(), query.text("agent"));
    let rows = api.store().session_page(only, agent, after.as_ref(), limit.saturating_add(1)).await?;
    let key = |session: &SessionSummary| PageKey { at: session.last_at, id: session.session_id.clone() };
    let show = |session: &SessionSummary| {
        json!({
            "sessionId": session.session_id, "agentId": session.agent_id, "principal": session.principal,
            "turns": session.turns, "firstAt": session.first_at, "lastAt": session.last_at,
        })
    };
    Ok(Json(page(rows, limit, key, show)))
}

/// Checks that a session exists and that everything in it may be seen by the caller. Returns its principal.
pub(super) async fn visible(store: &Store, viewer: &Viewer, id: &str) -> Result<Option<String>, ApiError> {
    let owners = store.session_owners(id).await?;
    let is_visible = match owners.as_slice() {
        // The runs and turns may be deleted, but not the transcript. Only administrators still know whose it was.
        [] => viewer.sees_all() && !store.transcript_page(id, 0, 1).await?.is_empty(),
        owners => owners.iter().all(|owner| viewer.sees(owner.as_deref())),
    };
    if is_visible { Ok(owners.into_iter().flatten().next()) } else { Err(ApiError::not_found()) }
}

pub(super) async fn get(State(api): State<Api>, viewer: Viewer, ids: Ids) -> Result<Json<Value>, ApiError> {
    let principal = visible(api.store(), &viewer, ids.first()).await?;
    let turns = api.store().turns_of_session(ids.first()).await?;
    let runs = api.store().runs_of_session(ids.first()).await?;
    let omitted = turns.len().saturating_sub(MAX_SHOWN_TURNS);
    let shown: Vec<Value> = turns.iter().skip(omitted).map(turn_json).collect();
    Ok(Json(json!({
        "sessionId": ids.first(), "principal": principal, "turns": shown, "turnsOmitted": omitted, "liveRuns": runs.len(),
    })))
}

pub(super) async fn delete(State(api): State<Api>, viewer: Viewer, ids: Ids) -> Result<Json<Value>, ApiError> {
    let session = ids.first();
    visible(api.store(), &viewer, session).await?;
    for turn in api.store().turns_of_session(session).await? {
        abort_turn(&api, &turn, "the session was deleted").await?;
    }
    api.gateway.code_mode().end_session(session).await;
    let deleted_runs = delete_runs(api.store(), session).await?;
    let deleted_turns = api.store().delete_session(session).await?;
    Ok(Json(json!({"deletedTurns": deleted_turns, "deletedRuns": deleted_runs})))
}

/// Deletes the runs of a session that have ended.
async fn delete_runs(store: &Store, session: &str) -> Result<u64, ApiError> {
    let filter = RunPageFilter { session: Some(session.to_owned()), ..RunPageFilter::default() };
    let (mut deleted, mut after) = (0, None);
    loop {
        let page = store.run_page(&filter, after.as_ref(), MAX_PAGE).await?;
        let Some(last) = page.last() else { return Ok(deleted) };
        after = Some(PageKey { at: last.created_at, id: last.run_id.to_string() });
        let runs: Vec<RunId> = page.into_iter().map(|run| run.run_id).collect();
        deleted += store.delete_runs(&runs).await?;
    }
}

pub(super) async fn transcript(
    State(api): State<Api>,
    viewer: Viewer,
    ids: Ids,
    query: Query,
) -> Result<Json<Value>, ApiError> {
    let session = ids.first();
    visible(api.store(), &viewer, session).await?;
    let limit = query.number("limit");
    let after = query.after()?.map_or(0, |key| key.at);
    let rows = api.store().transcript_page(session, after, limit).await?;
    let is_full = u32::try_from(rows.len()).is_ok_and(|rows| rows == limit);
    let next = rows.last().filter(|_| is_full).map(|(at, _)| cursor(&PageKey { at: *at, id: "entry".to_owned() }));
    let mut nested = NestedEntries::new(usize::MAX);
    let mut items = Vec::new();
    for (_, entry) in rows {
        items.extend(nested.push(entry));
    }
    items.extend(nested.finish());
    Ok(Json(json!({"sessionId": session, "items": items, "nextCursor": next})))
}

/// What an export has read.
struct Export {
    store: Store,
    session: String,
    after: i64,
    nested: Option<NestedEntries>,
}

impl Export {
    /// Returns the next lines; `None` at the end.
    async fn next(&mut self) -> Option<Result<Vec<Value>, store::StoreError>> {
        let mut nested = self.nested.take()?;
        let rows = match self.store.transcript_page(&self.session, self.after, DEFAULT_TRANSCRIPT_PAGE).await {
            Ok(rows) => rows,
            Err(error) => return Some(Err(error)),
        };
        let Some((last, _)) = rows.last() else { return Some(Ok(nested.finish())) };
        self.after = *last;
        let lines = rows.into_iter().flat_map(|(_, entry)| nested.push(entry)).collect();
        self.nested = Some(nested);
        Some(Ok(lines))
    }
}

/// Sends the whole transcript of a session, after a line that describes it.
pub(super) async fn trajectory(State(api): State<Api>, viewer: Viewer, ids: Ids) -> Result<Response, ApiError> {
    let session = ids.first().to_owned();
    let principal = visible(api.store(), &viewer, &session).await?;
    let head = json!({
        "kind": "trajectory", "version": 1, "sessionId": session, "principal": principal, "exportedAt": now_ms(),
    });
    let nested = Some(NestedEntries::new(MAX_HELD_ENTRIES));
    let export = Export { store: api.store().clone(), session, after: 0, nested };
    let lines = futures_util::stream::unfold((Some(head), export), |(head, mut export)| async move {
        if let Some(head) = head {
            return Some((Ok(written(&[head])), (None, export)));
        }
        let read = export.next().await?;
        Some((read.map(|lines| written(&lines)).map_err(std::io::Error::other), (None, export)))
    });
    let mut response = Response::new(Body::from_stream(lines));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    Ok(response)
}

fn written(lines: &[Value]) -> Bytes {
    let mut text = String::new();
    for line in lines {
        text.push_str(&line.to_string());
        text.push('\n');
    }
    Bytes::from(text)
}
