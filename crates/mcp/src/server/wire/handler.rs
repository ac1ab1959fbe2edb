//! Requests in, answers out, for one connection or one request of it.

use std::sync::Arc;

use axum::http::request::Parts;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CancelledNotificationParam, CompleteRequestMethod,
    CompleteRequestParams, CompleteResult, CustomRequest, CustomResult, ErrorCode, ErrorData, Extensions,
    Implementation, ListPromptsRequestMethod, ListPromptsResult, ListResourceTemplatesRequestMethod,
    ListResourceTemplatesResult, ListResourcesRequestMethod, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, SubscriptionFilter, Tool as ListedTool,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{RoleServer, ServerHandler};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::INSTRUCTIONS;
use super::asked;
use super::calls::completed;
use super::cancels::Cancels;
use super::pump::Pump;
use super::shown::Shown;
use super::state::Seal;
use crate::server::CALL_AT_MOST;
use crate::server::answer::Answer;
use crate::server::flight::Ticket;
use crate::server::frontend::{Call, Frontend, refused};
use crate::server::prepared::Prepared;
use crate::server::principal::Principal;
use crate::server::settings::Offered;

/// How long a list of tools may be kept without asking again, by clients that do not listen for changes.
const LIST_GOOD_FOR_MS: u64 = 60_000;

/// How often a task that only waits looks whether its client is still there.
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_secs(60);

#[derive(Clone, Debug)]
pub(super) struct Handler {
    pub(super) frontend: Frontend,
    caller: Caller,
    cancels: Arc<Cancels>,
    shown: Arc<Shown>,
    pub(super) seal: Seal,
}

/// Who calls.
#[derive(Clone, Debug)]
pub(super) enum Caller {
    /// Whoever is at the other end of the streams.
    Fixed(Principal),
    /// Whoever the gate let in with each request.
    OfRequest,
}

impl Handler {
    pub(super) fn new(frontend: Frontend, caller: Caller) -> Self {
        let seal = Seal::new(&frontend.settings().seal);
        Self { frontend, caller, cancels: Arc::default(), shown: Arc::default(), seal }
    }

    fn principal(&self, extensions: &Extensions) -> Result<Principal, ErrorData> {
        let given = match &self.caller {
            Caller::Fixed(principal) => Some(principal),
            Caller::OfRequest => extensions.get::<Parts>().and_then(|parts| parts.extensions.get::<Principal>()),
        };
        given.cloned().ok_or_else(|| ErrorData::internal_error("the request came past the gate", None))
    }

    async fn listed(&self, principal: &Principal) -> Result<Vec<ListedTool>, ErrorData> {
        let prepared = self.frontend.prepared(principal).await;
        let prepared = prepared.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        tools(&prepared)
    }

    /// The client does not wait for the answer any more. Only if it wants the call to end, the run does.
    async fn stopped(&self, context: &RequestContext<RoleServer>, call: &Call) {
        if self.frontend.is_leaving() {
            return;
        }
        let closing_is_cancelling = context.extensions.get::<Parts>().is_some() && asked::is_modern(context);
        if closing_is_cancelling || self.cancels.has(&context.id).await {
            self.frontend.call_off(call).await;
        }
    }

    /// Waits for the tools to look different to this principal. Nothing to wait for once nobody can change them.
    async fn changed(
        &self,
        changes: &mut watch::Receiver<Offered>,
        principal: &Principal,
        known: &mut Vec<ListedTool>,
    ) {
        loop {
            if changes.changed().await.is_err() {
                return std::future::pending().await;
            }
            if let Ok(now) = self.listed(principal).await
                && now != *known
            {
                *known = now;
                return;
            }
        }
    }
}

/// In the library's types.
fn tools(prepared: &Prepared) -> Result<Vec<ListedTool>, ErrorData> {
    let tools = prepared.listed.iter().map(|tool| serde_json::from_value(tool.clone()));
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
        let tools = self.listed(&self.principal(&context.extensions)?).await?;
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
            principal: self.principal(&context.extensions)?,
            arguments: request.arguments.clone().unwrap_or_default(),
            progress,
            ticket: Arc::new(Ticket::default()),
            until: Instant::now() + CALL_AT_MOST,
        };
        tokio::select! {
            answer = self.answered(tool, &request, &context, &call) => answer,
            () = Pump::run(pump) => Err(ErrorData::internal_error("stopped", None)),
            () = context.ct.cancelled() => {
                self.stopped(&context, &call).await;
                Err(ErrorData::internal_error("the client does not wait for this any more", None))
            }
        }
    }

    // What is not declared is not there, also where the library would answer with an empty list.

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

    /// A call whose arguments are no object does not read as a call at all; its model is told why all the same.
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
            self.cancels.heard(id);
        }
    }

    /// From now on a client with a session hears of changes, for as long as it is there.
    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let Ok(principal) = self.principal(&context.extensions) else { return };
        let handler = self.clone();
        tokio::spawn(async move {
            // What changed before this began is told to who was shown what was there before.
            let mut changes = handler.frontend.changes();
            let mut known = match handler.frontend.shown().get(&principal).and_then(|shown| tools(shown).ok()) {
                Some(shown) => shown,
                None => handler.listed(&principal).await.unwrap_or_default(),
            };
            while !context.peer.is_transport_closed() {
                tokio::select! {
                    () = handler.changed(&mut changes, &principal, &mut known) => {
                        if context.peer.notify_tool_list_changed().await.is_err() {
                            return;
                        }
                    }
                    () = tokio::time::sleep(LOOK_EVERY) => {}
                    () = handler.frontend.left() => return,
                }
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
        let principal = self.principal(&context.request_context().extensions)?;
        // The subscription has been acknowledged already: what changed since then is told, too.
        let (before, since) = self.shown.take(&self.frontend, &principal);
        let (mut known, mut changes) = match before {
            Some(shown) => (tools(&shown)?, self.frontend.changes()),
            None => (Vec::new(), since),
        };
        loop {
            tokio::select! {
                () = self.changed(&mut changes, &principal, &mut known) => {
                    if context.sink().notify_tool_list_changed().await.is_err() {
                        return Ok(());
                    }
                }
                () = context.cancelled() => return Ok(()),
                () = self.frontend.left() => return Ok(()),
            }
        }
    }
}
