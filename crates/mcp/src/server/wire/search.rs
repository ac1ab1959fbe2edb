//! Handles the calls of Tool Search's controls.

use codemode::{ControlRequest, MadeCall, ToolSearch, ToolSearchAnswer};
use contract::error::ErrorCode;
use contract::frame::Failure;
use contract::ids::{ApprovalId, RunId};
use executor::random_name;
use rmcp::model::{CallToolResponse, ErrorData};
use serde_json::{Value, json};
use store::Approval;
use telemetry::LogIgnored;
use tokio::sync::watch;
use tokio::time::{Duration, Instant};

use super::calls::ToolCall;
use super::direct::DirectEnd;
use super::questions::{self, Channel};
use crate::server::answer::Answer;
use crate::server::calls::OwnWork;
use crate::server::elicitation::{self, Grouping};
use crate::server::tools::Tool;

/// How often the store is polled for approvals that a cell waits for. There is no notification of those: the store
/// reports decisions and outcomes, and a request for approval is neither.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// A form is not shown if its answer would come too late for the cell.
const MIN_FORM_TIME: Duration = Duration::from_secs(1);

impl ToolCall<'_> {
    /// Runs `tool_search` or `tool_describe`.
    pub(super) async fn search(&self) -> CallToolResponse {
        let Some(tool_call_id) = tool_call_id() else { return self.not_run("cannot read system randomness") };
        let (executor, config) = (self.prepared.executor(&self.call.progress), &self.prepared.tool_search);
        let (tools, input) = (self.tool_search(), self.input());
        let answer = match self.tool {
            Tool::Search => tools.search(&executor, config, &tool_call_id, &input).await,
            _ => tools.describe(&executor, config, &tool_call_id, &input).await,
        };
        self.answered(Answer::of_search(answer))
    }

    /// Runs `tool_call`. A call that waits for a person is parked, and continued when it is repeated.
    pub(super) async fn tool_call(&self) -> Result<CallToolResponse, ErrorData> {
        let Some(tool_call_id) = tool_call_id() else { return Ok(self.not_run("cannot read system randomness")) };
        let (executor, config) = (self.prepared.executor(&self.call.progress), &self.prepared.tool_search);
        // Set if the request itself is wrong.
        let mut rejected = None;
        let rejection = &mut rejected;
        let parent = tool_call_id.as_str();
        let make = move |id: String, arguments: Value| async move {
            let failure = |code, message| Err(Failure { code: Some(code), message, position: None });
            match self.call_directly(parent, &id, arguments).await {
                Ok(DirectEnd::Settled(outcome)) => Ok(MadeCall::Settled(outcome)),
                Ok(DirectEnd::Waiting(message)) => failure(ErrorCode::NestedToolFailed, message),
                Ok(DirectEnd::Stopped(message)) => failure(ErrorCode::InternalError, message),
                Ok(DirectEnd::Ask(question)) => Ok(MadeCall::Waiting(question)),
                Err(error) => {
                    let message = error.message.to_string();
                    *rejection = Some(error);
                    failure(ErrorCode::InvalidInput, message)
                }
            }
        };
        let (control, input) = ((parent, ControlRequest::New), self.input());
        let answer = self.tool_search().call_with(&executor, config, control, &input, make).await;
        match (rejected, answer) {
            (Some(error), _) => Err(error),
            (None, Ok(answer)) => Ok(self.answered(Answer::of_search(answer))),
            (None, Err(question)) => Ok((*question).into()),
        }
    }

    /// Runs `tool_search_code`. The cell ends within one turn, so the user can be asked only while it runs.
    pub(super) async fn search_code(&self) -> CallToolResponse {
        let Some(tool_call_id) = tool_call_id() else { return self.not_run("cannot read system randomness") };
        let (executor, config) = (self.prepared.executor(&self.call.progress), self.prepared.tool_search.clone());
        let (tools, input) = (self.tool_search(), self.input());
        let (started, mut run) = watch::channel(None::<RunId>);
        let handle = std::sync::Arc::clone(&self.call.handle);
        let code_mode = self.service.code_mode().clone();
        let timeout = Duration::from_millis(config.code_timeout_ms);
        // The cell ends by itself if the client disconnects.
        let mut running = tokio::spawn(async move {
            let on_start = |run_id: &RunId| {
                if handle.set_own_work(OwnWork::Run(run_id.clone())) {
                    let run_id = run_id.clone();
                    tokio::spawn(async move { code_mode.abort(&run_id).await });
                }
                started.send(Some(run_id.clone())).log_expected("pass on the id of a run");
            };
            tools.run_code_with(&executor, &config, &tool_call_id, &input, on_start).await
        });
        let until = Instant::now() + timeout;
        let asking = async {
            let run_id = run.wait_for(Option::is_some).await.ok().and_then(|run_id| run_id.clone());
            if let (Some(run_id), Channel::Request) = (run_id, Channel::of(self.context)) {
                self.ask_while_running(&run_id, until).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            done = &mut running => match done {
                Ok(answer) => self.answered(Answer::of_search(answer)),
                Err(_) => self.not_run("the program was interrupted; check what it did before you run it again"),
            },
            () = asking => self.not_run("the program was interrupted"),
            () = self.service.shutdown_started() => {
                self.not_run("cellmate is shutting down; check what the program did before you run it again")
            }
        }
    }

    /// Shows a form for each approval that the cell waits for, one after the other, until the time of the cell is over.
    async fn ask_while_running(&self, run_id: &RunId, until: Instant) {
        let Self { service, connection, context, call, .. } = *self;
        let mut asked: Vec<ApprovalId> = Vec::new();
        while until.saturating_duration_since(Instant::now()) > MIN_FORM_TIME {
            tokio::time::sleep(POLL_INTERVAL).await;
            let open = service.open_approvals_of(&call.principal, run_id).await;
            let fresh: Vec<&Approval> = open
                .iter()
                .filter(|found| !asked.contains(&found.approval_id) && questions::can_be_shown(found, self.rights))
                .collect();
            if let Some(form) = elicitation::forms(&fresh, Grouping::Together).first() {
                asked.extend(form.ids());
                questions::ask(service, connection, context, &call.principal, until, form).await;
            }
        }
    }

    fn tool_search(&self) -> ToolSearch {
        ToolSearch::new(self.service.code_mode().clone())
    }

    fn input(&self) -> Value {
        Value::Object(self.call.arguments.clone())
    }

    fn not_run(&self, why: &str) -> CallToolResponse {
        let value = json!({"ok": false, "error": why, "code": ErrorCode::RuntimeUnavailable.as_str()});
        self.answered(Answer::of_search(ToolSearchAnswer { value, telemetry: json!({}), media: Vec::new() }))
    }
}

fn tool_call_id() -> Option<String> {
    random_name().ok()
}
