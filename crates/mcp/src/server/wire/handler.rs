//! The request handler of one connection, one session, or one request without a session.

use std::sync::Arc;

use axum::http::request::Parts;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CancelledNotificationParam, CompleteRequestMethod,
    CompleteRequestParams, CompleteResult, CustomRequest, CustomResult, ErrorCode, ErrorData, Implementation,
    ListPromptsRequestMethod, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities, ServerConfig,
    SubscriptionFilter,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{RoleServer, ServerHandler};
use serde::Serialize;
use serde_json::Value;
use telemetry::LogIgnored;
use tokio::time::Instant;

use super::calls::{ToolCall, completed};
use super::changes::{self, PendingListeners};
use super::connection::Connection;
use super::progress::ProgressPump;
use super::questions::{self, FormRights};
use super::request_state::Seal;
use super::sessions::RequestInProgress;
use super::{instructions, list, resources};
use crate::server::answer::{Answer, failed, refused};
use crate::server::calls::{Call, CallHandle};
use crate::server::client_key::ClientKey;
use crate::server::plain;
use crate::server::principal::Principal;
use crate::server::service::McpService;

/// How long clients that do not subscribe to changes may cache the tool list.
const LIST_GOOD_FOR_MS: u64 = 60_000;

/// How much of an unknown tool's name is repeated to the client.
const MAX_SHOWN_NAME_CHARS: usize = 200;

/// Handles the requests of one client. Clones share one connection.
#[derive(Clone, Debug)]
pub(super) struct Handler {
    service: McpService,
    /// The principal of this connection or session.
    principal: Principal,
    listeners: Arc<PendingListeners>,
    seal: Seal,
    connection: Arc<Connection>,
    /// What its user may do with forms.
    rights: FormRights,
}

impl Handler {
    pub(super) fn new(service: McpService, principal: Principal, rights: FormRights) -> Self {
        let seal = Seal::new(&service.settings().seal);
        let connection = Arc::new(Connection::new());
        Self { service, principal, listeners: Arc::default(), seal, connection, rights }
    }

    /// Returns the key of the client that makes a request.
    fn client(&self, context: &RequestContext<RoleServer>) -> ClientKey {
        let name = context.client_info().map(|client| client.name).unwrap_or_default();
        ClientKey::new(&name, self.service.settings().project.as_deref())
    }

    /// Finds the called tool, and runs the call to its response.
    async fn answer(
        &self,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
        call: &Call,
    ) -> Result<CallToolResponse, ErrorData> {
        let called = self.service.called_tool(&self.principal, &request.name, request.arguments.as_ref()).await;
        let (prepared, tool) = match called {
            Ok(Some(found)) => found,
            Ok(None) => {
                let name = plain(&request.name, MAX_SHOWN_NAME_CHARS);
                return Err(ErrorData::invalid_params(format!("unknown tool: {name}"), None));
            }
            Err(error) => return Ok(completed(&Answer::of(&failed(&error.to_string()), &[])).into()),
        };
        let tool_call = ToolCall {
            service: &self.service,
            seal: &self.seal,
            connection: &self.connection,
            context,
            request,
            prepared: &prepared,
            tool: &tool,
            call,
            rights: self.rights,
        };
        tool_call.run().await
    }

    /// Handles a client that no longer waits for the response. The run ends only if the client cancelled the call.
    async fn stopped(&self, context: &RequestContext<RoleServer>, call: &Call) {
        if self.service.is_shutting_down() {
            return;
        }
        let closing_is_cancelling = context.extensions.get::<Parts>().is_some() && questions::is_modern(context);
        if closing_is_cancelling || self.connection.cancels.has(&context.id).await {
            self.service.cancel(call).await;
        }
    }
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let capabilities =
            ServerCapabilities::builder().enable_resources().enable_tools().enable_tool_list_changed().build();
        let mut implementation = Implementation::new("cellmate", env!("CARGO_PKG_VERSION"));
        implementation.title = Some("Cellmate".to_owned());
        let config = ServerConfig::new(capabilities).with_server_info(implementation);
        match self.service.known(&self.principal).ok().and_then(|known| instructions(&known.surface)) {
            Some(instructions) => config.with_instructions(instructions),
            None => config,
        }
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let prepared = self.service.prepared_for_list(&self.principal).await;
        let prepared = prepared.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        let cursor = request.and_then(|request| request.cursor);
        let list = list::page(&prepared, cursor.as_deref())?;
        if questions::is_modern(&context) {
            return Ok(list.with_ttl_ms(LIST_GOOD_FOR_MS).with_cache_scope(CacheScope::Private));
        }
        Ok(list)
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        self.connection.note_use_of_resources();
        let cursor = request.and_then(|request| request.cursor);
        resources::list(&self.service, (&self.principal, &self.client(&context)), cursor.as_deref()).await
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        self.connection.note_use_of_resources();
        Ok(resources::templates())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        self.connection.note_use_of_resources();
        let result = resources::read(&self.service, &self.principal, &request.uri).await?;
        count_result(&context, &result);
        Ok(result.into())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let (progress, pump) = ProgressPump::new(context.meta.get_progress_token(), &context.peer);
        let call = Call {
            principal: self.principal.clone(),
            client: self.client(&context),
            arguments: request.arguments.clone().unwrap_or_default(),
            progress,
            handle: Arc::new(CallHandle::default()),
            until: Instant::now() + self.service.call_at_most(&self.principal, &request.name),
        };
        tokio::select! {
            answer = self.answer(&request, &context, &call) => {
                // Sessions never get the other responses.
                if let Ok(CallToolResponse::Complete(result)) = &answer {
                    count_result(&context, result);
                }
                answer
            }
            () = ProgressPump::run(pump) => Err(ErrorData::internal_error("stopped", None)),
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
        let called = match name {
            Some(name) => self.service.called_tool(&self.principal, name, None).await.ok().flatten(),
            None => None,
        };
        if request.method == "tools/call" && called.is_some() {
            let mut answer = Answer::of(&refused("`arguments` must be an object"), &[]);
            if let Ok(prepared) = self.service.prepared_for_list(&self.principal).await {
                answer = answer.with_telemetry(&prepared.telemetry());
            }
            let result = serde_json::to_value(completed(&answer)).unwrap_or_default();
            return Ok(CustomResult::new(result));
        }
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, request.method, None))
    }

    async fn on_cancelled(&self, params: CancelledNotificationParam, _context: NotificationContext<RoleServer>) {
        if let Some(id) = params.request_id {
            self.connection.cancels.record(id);
        }
    }

    /// Starts to notify a client with a session of changes, until the session ends.
    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        if self.connection.begin_watching() {
            let (service, principal) = (self.service.clone(), self.principal.clone());
            tokio::spawn(changes::notify_session(service, principal, context.peer, self.connection.ended()));
        }
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        let mut accepted = SubscriptionFilter::new();
        accepted.tools_list_changed = requested.tools_list_changed;
        self.listeners.keep(&self.service);
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        changes::notify_subscriber(&self.service, &self.principal, &self.listeners, &context).await;
        Ok(())
    }
}

/// Counts the size of a result that a session keeps for a client that resumes its stream.
fn count_result(context: &RequestContext<RoleServer>, result: &impl Serialize) {
    let Some(request) = context.extensions.get::<RequestInProgress>() else { return };
    let mut counted = CountedBytes(0);
    // Writing to a counter cannot fail, and a result that cannot be serialised is not sent either.
    serde_json::to_writer(&mut counted, result).log_ignored("count the bytes of a result");
    request.count_result(counted.0);
}

/// A writer that counts bytes and discards them.
struct CountedBytes(usize);

impl std::io::Write for CountedBytes {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.saturating_add(bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
