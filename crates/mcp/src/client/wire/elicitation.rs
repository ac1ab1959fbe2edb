//! Handles requests from the server: during a call it may ask a person a question; all other requests are rejected.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use contract::limits::{MAX_SERVER_REQUEST_BYTES, MAX_SERVER_REQUEST_VALUES};
use executor::{Answer, QuestionSender};
use parking_lot::{Mutex, MutexGuard};
use rmcp::model::{
    ClientConfig, CustomRequest, CustomResult, ElicitRequestParams, ElicitResult, ElicitationAction, ErrorCode,
    ErrorData,
};
use rmcp::service::RequestContext;
use rmcp::{ClientHandler, RoleClient};
use serde_json::Value;

use super::bounds::TOO_LARGE;
use crate::client::questions::{ask, response};

/// The client handler that `rmcp` calls for the server's requests.
#[derive(Debug)]
pub(super) struct ElicitationHandler {
    pub(super) config: ClientConfig,
    pub(super) questions: QuestionRouter,
}

/// The calls in progress on one connection, with their question senders.
#[derive(Clone, Debug, Default)]
pub(super) struct QuestionRouter(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Locked only to read or change the calls, never across an await.
    calls: Mutex<Calls>,
    /// The number of unanswered questions.
    open: AtomicUsize,
}

#[derive(Debug, Default)]
struct Calls {
    askers: HashMap<u64, QuestionSender>,
    next: u64,
}

impl QuestionRouter {
    /// Registers a call until the returned guard is dropped.
    pub(super) fn during(&self, asker: QuestionSender) -> CallGuard {
        let mut calls = self.calls();
        let number = calls.next;
        calls.next += 1;
        calls.askers.insert(number, asker);
        CallGuard { questions: self.clone(), number }
    }

    /// Returns true while a person is being asked. This time does not count towards a call's deadline.
    pub(super) fn is_open(&self) -> bool {
        self.0.open.load(Ordering::Relaxed) > 0
    }

    /// Returns the question sender if exactly one call is in progress. A server does not say which call its question
    /// belongs to; with several calls, a person might be asked about another person's call.
    fn only(&self) -> Option<QuestionSender> {
        let calls = self.calls();
        let mut askers = calls.askers.values();
        match (askers.next(), askers.next()) {
            (Some(asker), None) => Some(asker.clone()),
            _ => None,
        }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.0.calls.lock()
    }

    /// Asks the question. Returns `None`, which the server receives as cancelled, if it cannot be asked: no person has
    /// declined it.
    async fn answer(&self, params: &Value) -> Option<Answer> {
        let asker = self.only()?;
        let ask = ask("", params).ok()?;
        let _open = QuestionGuard::new(&self.0.open);
        asker.ask(ask).await
    }
}

/// Counts an open question until it is dropped.
struct QuestionGuard<'a>(&'a AtomicUsize);

impl<'a> QuestionGuard<'a> {
    fn new(open: &'a AtomicUsize) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self(open)
    }
}

impl Drop for QuestionGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Keeps a call registered. See [`QuestionRouter::during`].
#[derive(Debug)]
pub(super) struct CallGuard {
    questions: QuestionRouter,
    number: u64,
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.questions.calls().askers.remove(&self.number);
    }
}

impl ClientHandler for ElicitationHandler {
    fn get_info(&self) -> ClientConfig {
        self.config.clone()
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let params = serde_json::to_value(request).unwrap_or_default();
        Ok(match self.questions.answer(&params).await {
            Some(Answer::Filled(content)) => {
                ElicitResult::new(ElicitationAction::Accept).with_content(Value::Object(content))
            }
            Some(Answer::Visited) => ElicitResult::new(ElicitationAction::Accept),
            Some(Answer::Declined) => ElicitResult::new(ElicitationAction::Decline),
            None => ElicitResult::new(ElicitationAction::Cancel),
        })
    }

    /// Handles elicitation requests that the library's types cannot represent.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        if request.method == TOO_LARGE {
            let why = format!(
                "requests of more than {MAX_SERVER_REQUEST_BYTES} bytes or {MAX_SERVER_REQUEST_VALUES} JSON values are \
                 rejected; send a smaller request"
            );
            return Err(ErrorData::new(ErrorCode::INVALID_REQUEST, why, None));
        }
        if request.method != "elicitation/create" {
            return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, request.method, None));
        }
        let answer = self.questions.answer(request.params.as_ref().unwrap_or(&Value::Null)).await;
        let answer = answer.map_or_else(|| serde_json::json!({"action": "cancel"}), |answer| response(&answer));
        Ok(CustomResult::new(answer))
    }
}
