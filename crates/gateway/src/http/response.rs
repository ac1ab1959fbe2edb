//! Responses to clients of the three wires: streamed or not, kept alive while a turn works, errors in the wire's form.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::sync::mpsc;
use wire::Wire;
use wire::downstream::{Repetition, ResponseWriter, WireError};

use crate::gateway::TurnError;
use crate::internal_error::internal_message;
use crate::turn::log::{LogEnd, LogReader, TurnEvent};

/// How many pieces of a response may wait for a slow client.
const QUEUED_PIECES: usize = 64;

/// The header with the id of a request.
const REQUEST_ID: &str = "request-id";

/// Whether a response is sent as events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Stream,
    Whole,
}

/// Returns the response to a request whose turn is in progress.
///
/// A stream begins at once. A whole response waits for the end, but after one interval it begins with white space, so that
/// the connection stays alive; its status is then 200 whatever happens.
pub(super) async fn turn_response(
    mut writer: ResponseWriter,
    wire: Wire,
    form: Form,
    mut reader: LogReader,
    keep_alive: Duration,
    request_id: String,
) -> Response {
    if form == Form::Whole {
        let mut waited = tokio::time::interval_at(tokio::time::Instant::now() + keep_alive, keep_alive);
        loop {
            tokio::select! {
                biased;
                events = reader.next() => {
                    if let Some(response) = whole(&mut writer, wire, events, &request_id) {
                        return response;
                    }
                }
                _ = waited.tick() => break,
            }
        }
    }
    let (sender, receiver) = mpsc::channel::<Bytes>(QUEUED_PIECES);
    let first = match form {
        Form::Stream => writer.start(),
        // An interval is over.
        Form::Whole => writer.keep_alive(),
    };
    tokio::spawn(send(writer, reader, keep_alive, sender, first, request_id.clone()));
    let stream = futures_util::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|piece| (Ok::<_, std::convert::Infallible>(piece), receiver))
    });
    let content_type = match form {
        Form::Stream => "text/event-stream; charset=utf-8",
        Form::Whole => "application/json",
    };
    let mut response = Response::new(Body::from_stream(stream));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    with_request_id(response, &request_id)
}

/// Returns the whole response, if these events contain the end.
fn whole(writer: &mut ResponseWriter, wire: Wire, events: Vec<TurnEvent>, request_id: &str) -> Option<Response> {
    for event in events {
        match event {
            TurnEvent::Text(text) => drop(writer.text(&text)),
            TurnEvent::Reasoning(text) => drop(writer.reasoning(&text)),
            TurnEvent::End(LogEnd::Failed { status, message, has_effects, retry_after }) => {
                let error = WireError { retry_after, ..failure(status, message, has_effects) };
                return Some(error_response(wire, &error, request_id));
            }
            TurnEvent::End(end) => {
                let body = ended(writer, &end, request_id);
                let mut response = Response::new(Body::from(body));
                response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
                return Some(with_request_id(response, request_id));
            }
        }
    }
    None
}

/// Writes the log to a connection until it ends or the client is gone.
async fn send(
    mut writer: ResponseWriter,
    mut reader: LogReader,
    keep_alive: Duration,
    sender: mpsc::Sender<Bytes>,
    first: Vec<u8>,
    request_id: String,
) {
    let mut piece = first;
    let mut silent = tokio::time::interval_at(tokio::time::Instant::now() + keep_alive, keep_alive);
    loop {
        if !piece.is_empty() {
            if sender.send(Bytes::from(std::mem::take(&mut piece))).await.is_err() {
                return;
            }
            silent.reset();
        }
        tokio::select! {
            biased;
            events = reader.next() => {
                if events.is_empty() {
                    return;
                }
                for event in events {
                    match event {
                        TurnEvent::Text(text) => piece.extend(writer.text(&text)),
                        TurnEvent::Reasoning(text) => piece.extend(writer.reasoning(&text)),
                        TurnEvent::End(end) => {
                            piece.extend(ended(&mut writer, &end, &request_id));
                            // Nothing follows, whether the client has received it or not.
                            drop(sender.send(Bytes::from(piece)).await);
                            return;
                        }
                    }
                }
            }
            _ = silent.tick() => piece.extend(writer.keep_alive()),
            () = sender.closed() => return,
        }
    }
}

fn ended(writer: &mut ResponseWriter, end: &LogEnd, request_id: &str) -> Vec<u8> {
    match end {
        LogEnd::Done { stop, usage } => writer.end(&[], stop, *usage),
        LogEnd::Calls { calls, usage } => writer.end(calls, &wire::conversation::StopReason::ToolCalls, *usage),
        LogEnd::Failed { status, message, has_effects, .. } => {
            writer.fail(&failure(*status, message.clone(), *has_effects), request_id)
        }
    }
}

/// Returns the error of a failed turn. If the turn has had effects, the client must not repeat its request by itself.
fn failure(status: u16, message: String, has_effects: bool) -> WireError {
    let error = WireError::new(status, message);
    if has_effects { WireError { repetition: Repetition::Never, ..error } } else { error }
}

/// Returns an error in the form of the wire.
pub(super) fn error_response(wire: Wire, error: &WireError, request_id: &str) -> Response {
    let status = StatusCode::from_u16(error.http_status(wire)).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = error.body(wire, request_id).to_string();
    let mut response = (status, [(header::CONTENT_TYPE, "application/json")], body).into_response();
    if !error.may_repeat() {
        response.headers_mut().insert("x-should-retry", HeaderValue::from_static("false"));
    } else if error.retry_after.is_some() || matches!(error.status, 429 | 503 | 529) {
        let seconds = error.retry_after.unwrap_or(1);
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    with_request_id(response, request_id)
}

/// Returns a new id of a request.
pub(super) fn request_id() -> String {
    match crate::random::id() {
        Ok(id) => format!("req_{id}"),
        // The id only helps to find the request in a log.
        Err(_) => "req_unknown".to_owned(),
    }
}

/// Adds an id to a response that has none.
pub(super) async fn with_own_request_id(response: Response) -> Response {
    if response.headers().contains_key(REQUEST_ID) { response } else { with_request_id(response, &request_id()) }
}

/// Returns the error that a client receives for a turn that cannot be started.
pub(super) fn turn_error(error: &TurnError) -> WireError {
    let status = match error {
        TurnError::NoModel(_) | TurnError::UnknownModel(_) => 500,
        TurnError::NotOffered(_) => 400,
        TurnError::TooMany(_) => 429,
        TurnError::ShuttingDown | TurnError::HeldElsewhere | TurnError::Store(_) | TurnError::Commit(_) => 503,
        TurnError::Prepare(crate::turn::prepared::PreparationError::Tools(_)) => 400,
        TurnError::Prepare(_) | TurnError::Corrupt(_) | TurnError::Randomness(_) => 500,
        TurnError::Unknown => 404,
    };
    let message = match error {
        TurnError::Store(_) | TurnError::Commit(_) | TurnError::Corrupt(_) => {
            internal_message("start or continue a turn", error, "the store cannot be used now", "try again")
        }
        _ => error.to_string(),
    };
    WireError::new(status, message)
}

fn with_request_id(mut response: Response, request_id: &str) -> Response {
    if let Ok(value) = HeaderValue::from_str(request_id) {
        response.headers_mut().insert(REQUEST_ID, value.clone());
        response.headers_mut().insert("x-request-id", value);
    }
    response
}

#[cfg(test)]
mod tests {
    use store::StoreError;

    use super::turn_error;
    use crate::gateway::TurnError;

    #[test]
    fn an_error_of_the_store_reaches_the_client_as_an_incident_id() {
        let error = TurnError::Store(StoreError::Corrupt("no such column: SELECT secret FROM turns".to_owned()));
        let refused = turn_error(&error);
        assert_eq!(refused.status, 503);
        let message = refused.message;
        assert!(message.starts_with("the store cannot be used now (incident "), "{message}");
        assert!(message.ends_with("); try again") && !message.contains("SELECT"), "{message}");
    }
}
