//! The request handler of one connection, one session, or one request without a session.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::http::request::Parts;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CancelledNotificationParam, CompleteRequestMethod,
    CompleteRequestParams, CompleteResult, CustomRequest, CustomResult, ErrorCode, ErrorData, Implementation,
    ListPromptsRequestMethod, ListPromptsResult, ListResourceTemplatesRequestMethod, ListResourceTemplatesResult,
    ListResourcesRequestMethod, ListResourcesResult, ListToolsResult, PaginatedRequestParams, ServerCapabilities,
    ServerConfig, SubscriptionFilter, Tool as ListedTool,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{RoleServer, ServerHandler};
use serde_json::Value;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::INSTRUCTIONS;
use super::asked;
use super::calls::completed;
use super::cancels::Cancels;
use super::pump::Pump;
use super::shown::Shown;
use super::state::Seal;
use crate::server::CALL_AT_MOST;
use crate::server::answer::Answer;
use crate::server::flight::CallHandle;
use crate::server::frontend::{Call, McpService, refused};
use crate::server::principal::Principal;
use crate::server::settings::Offered;

/// How long clients that do not subscribe to changes may cache the tool list.
const LIST_GOOD_FOR_MS: u64 = 60_000;

#[derive(Clone, Debug)]
pub(super) struct Handler {
    pub(super) frontend: McpService,
    /// The principal of this connection or session.
    principal: Principal,
    cancels: Arc<Cancels>,
    shown: Arc<Shown>,
    pub(super) seal: Seal,
    pub(super) session: Arc<Session>,
}

/// State of one session, one connection, or one request without a session. It is dropped when that ends.
#[derive(Debug)]
pub(super) struct Session {
    /// Whether a task already notifies the client of changes. A client may send `initialized` more than once.
    is_watched: AtomicBool,
    /// Permits for forms whose calls have ended without an answer.
    pub(super) late_forms: Arc<Semaphore>,
    ended: CancellationToken,
}

impl Session {
    fn new() -> Self {
        let late_forms = Arc::new(Semaphore::new(asked::MAX_LATE_FORMS));
        Self { is_watched: AtomicBool::new(false), late_forms, ended: CancellationToken::new() }
    }

    /// Returns a token that is cancelled when the session ends. Tasks that may outlive the session hold this token, not
    /// the session.
    pub(super) fn ended(&self) -> CancellationToken {
        self.ended.clone()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

impl Handler {
    pub(super) fn new(frontend: McpService, principal: Principal) -> Self {
        let seal = Seal::new(&frontend.settings().seal);
        let session = Arc::new(Session::new());
        Self { frontend, principal, cancels: Arc::default(), shown: Arc::default(), seal, session }
    }

    async fn listed(&self) -> Result<Vec<ListedTool>, ErrorData> {
        let prepared = self.frontend.prepared(&self.principal).await;
        tools(&prepared.map_err(|error| ErrorData::internal_error(error.to_string(), None))?.listed)
    }

    /// Handles a client that no longer waits for the response. The run ends only if the client cancelled the call.
    async fn stopped(&self, context: &RequestContext<RoleServer>, call: &Call) {
        if self.frontend.is_leaving() {
            return;
        }
        let closing_is_cancelling = context.extensions.get::<Parts>().is_some() && asked::is_modern(context);
        if closing_is_cancelling || self.cancels.has(&context.id).await {
            self.frontend.cancel(call).await;
        }
    }
}

/// Waits until this principal's tool list changes; forever, if the offered tools can no longer change.
async fn changed(
    frontend: &McpService,
    principal: &Principal,
    changes: &mut watch::Receiver<Offered>,
    known: &mut Arc<Vec<Value>>,
) {
    loop {
        if changes.changed().await.is_err() {
            return std::future::pending().await;
        }
        if let Ok(now) = frontend.prepared(principal).await
            && now.listed != *known
        {
            *known = Arc::clone(&now.listed);
            return;
        }
    }
}

/// Converts the tool list to the library's types.
fn tools(listed: &[Value]) -> Result<Vec<ListedTool>, ErrorData> {
    let tools = listed.iter().map(|tool| serde_json::from_value(tool.clone()));
    tools.collect::<Result<_, _>>().map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build();
        let mut implementation = Implementation::new("cellmate", env!("CARGO_PKG_VERSION"));
        implementation.title = Some("Cellmate".to_owned());
        ServerConfig::new(capabilities).with_server_info(implementation).with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = self.listed().await?;
        let list = ListToolsResult::with_all_items(tools);
        if asked::is_modern(&context) {
            return Ok(list.with_ttl_ms(LIST_GOOD_FOR_MS).with_cache_scope(CacheScope::Private));
        }
        Ok(list)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = self.frontend.settings().tool_prefix.tool(&request.name) else {
            return Err(ErrorData::invalid_params(format!("unknown tool: {}", request.name), None));
        };
        let (progress, pump) = Pump::new(context.meta.get_progress_token(), &context.peer);
        let call = Call {
            principal: self.principal.clone(),
            arguments: request.arguments.clone().unwrap_or_default(),
            progress,
            handle: Arc::new(CallHandle::default()),
            until: Instant::now() + CALL_AT_MOST,
        };
        tokio::select! {
            answer = self.run_call(tool, &request, &context, &call) => answer,
            () = Pump::run(pump) => Err(ErrorData::internal_error("stopped", None)),
            () = context.ct.cancelled() => {
                self.stopped(&context, &call).await;
                Err(ErrorData::internal_error("the client no longer waits for this response", None))
            }
        }
    }

    // Capabilities that are not declared are rejected; the library's defaults would return empty lists.

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListPromptsRequestMethod>())
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListResourcesRequestMethod>())
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListResourceTemplatesRequestMethod>())
    }

    async fn complete(
        &self,
        _request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(ErrorData::method_not_found::<CompleteRequestMethod>())
    }

    /// Returns a readable error for a call whose arguments are not an object: the library parses such a call as a
    /// custom request.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let name = request.params.as_ref().and_then(|params| params.get("name")).and_then(Value::as_str);
        let called = name.and_then(|name| self.frontend.settings().tool_prefix.tool(name));
        if request.method == "tools/call" && called.is_some() {
            let answer = Answer::of(&refused("`arguments` must be an object"), &[]);
            let result = serde_json::to_value(completed(&answer)).unwrap_or_default();
            return Ok(CustomResult::new(result));
        }
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, request.method, None))
    }

    async fn on_cancelled(&self, params: CancelledNotificationParam, _context: NotificationContext<RoleServer>) {
        if let Some(id) = params.request_id {
            self.cancels.record(id);
        }
    }

    /// Starts to notify a client with a session of changes, until the session ends.
    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        if self.session.is_watched.swap(true, Ordering::Relaxed) {
            return;
        }
        let (frontend, principal, ended) = (self.frontend.clone(), self.principal.clone(), self.session.ended());
        let peer = context.peer;
        tokio::spawn(async move {
            // Compare with what this principal was last shown, so that earlier changes are announced too.
            let mut changes = frontend.changes();
            let watched = async {
                let mut known = match frontend.shown().get(&principal) {
                    Some(shown) => Arc::clone(&shown.listed),
                    None => match frontend.prepared(&principal).await {
                        Ok(prepared) => Arc::clone(&prepared.listed),
                        Err(_) => Arc::default(),
                    },
                };
                while !peer.is_transport_closed() {
                    changed(&frontend, &principal, &mut changes, &mut known).await;
                    if peer.notify_tool_list_changed().await.is_err() {
                        return;
                    }
                }
            };
            tokio::select! {
                () = watched => {}
                () = ended.cancelled() => {}
                () = frontend.shutdown_started() => {}
            }
        });
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        let mut accepted = SubscriptionFilter::new();
        accepted.tools_list_changed = requested.tools_list_changed;
        self.shown.keep(&self.frontend);
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        // The library has already acknowledged the subscription: changes since then must be announced too.
        let (before, since) = self.shown.take(&self.frontend, &self.principal);
        let (mut known, mut changes) = match before {
            Some(shown) => (Arc::clone(&shown.listed), self.frontend.changes()),
            None => (Arc::default(), since),
        };
        loop {
            tokio::select! {
                () = changed(&self.frontend, &self.principal, &mut changes, &mut known) => {
                    if context.sink().notify_tool_list_changed().await.is_err() {
                        return Ok(());
                    }
                }
                () = context.cancelled() => return Ok(()),
                () = self.frontend.shutdown_started() => return Ok(()),
            }
        }
    }
}
