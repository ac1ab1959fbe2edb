//! The table of routes. Both the router and the OpenAPI document are built from it.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use http_server::{Caller, Permission};
use serde_json::{Value, json};

use super::access::{RequiredPermission, no_token};
use super::error::ApiError;
use super::limits::{
    DEFAULT_PAGE, DEFAULT_TRANSCRIPT_PAGE, DEFAULT_USAGE_DAYS, MAX_CATALOG_PAGE, MAX_INVOKE_BYTES, MAX_PAGE,
    MAX_REQUEST_BYTES, MAX_TRANSCRIPT_PAGE, MAX_USAGE_DAYS,
};
use super::request::{Fields, Parameter, ParameterKind, Query};
use super::{
    Api, agents, approvals, catalog, compaction, document, events, invoke, runs, schema, sessions, turns, usage,
};

/// A function that returns a JSON Schema.
type Schema = fn() -> Value;

/// The content of a successful response.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Content {
    Json(Schema),
    /// JSON values, one per line.
    Lines,
    /// Server-sent events.
    Events,
    /// The bytes of an output.
    Bytes,
}

/// The method of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    Post,
    Delete,
}

impl Verb {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Delete => "DELETE",
        }
    }

    fn filter(self) -> MethodFilter {
        match self {
            Self::Get => MethodFilter::GET,
            Self::Post => MethodFilter::POST,
            Self::Delete => MethodFilter::DELETE,
        }
    }
}

/// A route of the interface.
pub(crate) struct Route {
    pub(crate) verb: Verb,
    pub(crate) path: &'static str,
    /// The operation's id in the OpenAPI document.
    pub(crate) name: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) needs: RequiredPermission,
    pub(crate) query: &'static [Parameter],
    /// The schema of the request's body; `None` if the route takes none.
    pub(crate) request: Option<Schema>,
    pub(crate) content: Content,
    pub(crate) error_form: ErrorForm,
    handler: fn(MethodFilter) -> MethodRouter<Api>,
}

/// The form of a route's error responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorForm {
    /// `{"error": …}`
    Plain,
    /// `{"ok": false, "error": …}`
    WithOk,
}

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Route({} {})", self.verb.as_str(), self.path)
    }
}

const READ: RequiredPermission = RequiredPermission::One(Permission::Read);
const EXECUTE: RequiredPermission = RequiredPermission::One(Permission::Execute);
const READ_OR_APPROVE: RequiredPermission = RequiredPermission::Either(Permission::Read, Permission::Approve);
const READ_OR_EXECUTE: RequiredPermission = RequiredPermission::Either(Permission::Read, Permission::Execute);

const LIMIT: Parameter = limit(MAX_PAGE, DEFAULT_PAGE);
const CURSOR: Parameter =
    Parameter { name: "cursor", kind: ParameterKind::Text, description: "The `nextCursor` of the page before." };
const AGENT: Parameter = Parameter { name: "agent", kind: ParameterKind::Text, description: "The id of an agent." };
const SESSION: Parameter =
    Parameter { name: "session", kind: ParameterKind::Text, description: "The id of a session." };
const RUN_STATE: Parameter = Parameter {
    name: "state",
    kind: ParameterKind::OneOf(&["running", "waiting", "completed", "failed", "expired", "aborted"]),
    description: "The state of the runs.",
};
const USAGE_GROUP: Parameter = Parameter {
    name: "by",
    kind: ParameterKind::OneOf(&usage::GROUPS),
    description: "What the usage is summed up by; `day` if not given.",
};
const DAYS: Parameter = Parameter {
    name: "days",
    kind: ParameterKind::Number { max: MAX_USAGE_DAYS, default: DEFAULT_USAGE_DAYS },
    description: "How many days are included, today and those before it, in UTC.",
};
const SEARCH: Parameter =
    Parameter { name: "query", kind: ParameterKind::Text, description: "What the tools are for, in words." };

const fn limit(max: u32, default: u32) -> Parameter {
    Parameter {
        name: "limit",
        kind: ParameterKind::Number { max, default },
        description: "The most items of the response.",
    }
}

/// Returns a GET route without query parameters.
const fn get(
    path: &'static str,
    name: &'static str,
    summary: &'static str,
    needs: RequiredPermission,
    content: Content,
    handler: fn(MethodFilter) -> MethodRouter<Api>,
) -> Route {
    Route {
        verb: Verb::Get,
        path,
        name,
        summary,
        needs,
        query: &[],
        request: None,
        content,
        error_form: ErrorForm::Plain,
        handler,
    }
}

/// Returns a POST route without query parameters, with the schemas of its request and its response.
const fn post(
    path: &'static str,
    name: &'static str,
    summary: &'static str,
    needs: RequiredPermission,
    (request, response): (Schema, Schema),
    handler: fn(MethodFilter) -> MethodRouter<Api>,
) -> Route {
    Route {
        verb: Verb::Post,
        path,
        name,
        summary,
        needs,
        query: &[],
        request: Some(request),
        content: Content::Json(response),
        error_form: ErrorForm::Plain,
        handler,
    }
}

/// All routes.
pub(crate) static ROUTES: &[Route] = &[
    Route {
        query: &[LIMIT, CURSOR, AGENT, SESSION, RUN_STATE],
        ..get("/api/v1/runs", "listRuns", "Lists runs, newest first.", READ, Content::Json(runs::page_schema), |m| {
            on(m, runs::list)
        })
    },
    get("/api/v1/runs/{runId}", "getRun", "Returns a run.", READ, Content::Json(runs::run_schema), |m| {
        on(m, runs::get)
    }),
    post("/api/v1/runs/{runId}/abort", "abortRun", "Aborts a run.", EXECUTE, (schema::nothing, schema::aborted), |m| {
        on(m, runs::abort)
    }),
    get(
        "/api/v1/runs/{runId}/outputs",
        "listOutputs",
        "Lists the stored outputs of a run.",
        READ,
        Content::Json(runs::outputs_schema),
        |m| on(m, runs::outputs),
    ),
    get(
        "/api/v1/runs/{runId}/outputs/{handle}",
        "getOutput",
        "Returns the content of a stored output.",
        READ,
        Content::Bytes,
        |m| on(m, runs::output),
    ),
    Route {
        query: &[LIMIT, CURSOR, AGENT],
        ..get(
            "/api/v1/sessions",
            "listSessions",
            "Lists sessions, those that changed last first.",
            READ,
            Content::Json(sessions::page_schema),
            |m| on(m, sessions::list),
        )
    },
    get(
        "/api/v1/sessions/{sessionId}",
        "getSession",
        "Returns a session and its last turns.",
        READ,
        Content::Json(sessions::session_schema),
        |m| on(m, sessions::get),
    ),
    Route {
        verb: Verb::Delete,
        ..get(
            "/api/v1/sessions/{sessionId}",
            "deleteSession",
            "Aborts the work of a session and deletes its turns, runs, transcript and values.",
            EXECUTE,
            Content::Json(sessions::deleted_schema),
            |m| on(m, sessions::delete),
        )
    },
    Route {
        query: &[limit(MAX_TRANSCRIPT_PAGE, DEFAULT_TRANSCRIPT_PAGE), CURSOR],
        ..get(
            "/api/v1/sessions/{sessionId}/transcript",
            "getTranscript",
            "Returns a session's transcript in order, with the calls of a cell under the cell.",
            READ,
            Content::Json(sessions::transcript_schema),
            |m| on(m, sessions::transcript),
        )
    },
    get(
        "/api/v1/sessions/{sessionId}/trajectory",
        "exportTrajectory",
        "Exports a session's whole transcript, one entry per line, with the calls of a cell under the cell.",
        READ,
        Content::Lines,
        |m| on(m, sessions::trajectory),
    ),
    post(
        "/api/v1/sessions/{sessionId}/compact",
        "compactSession",
        "Summarizes all but the newest turns of a session for the model. The transcript stays as it is.",
        EXECUTE,
        (compaction::request_schema, compaction::response_schema),
        |m| on(m, compaction::compact),
    ),
    Route {
        query: &[LIMIT, CURSOR, USAGE_GROUP, DAYS, AGENT, SESSION],
        ..get(
            "/api/v1/usage",
            "getUsage",
            "Returns turns, requests to models and tokens per day, agent, session or model.",
            READ,
            Content::Json(usage::page_schema),
            |m| on(m, usage::list),
        )
    },
    get("/api/v1/turns/{turnId}", "getTurn", "Returns a turn.", READ, Content::Json(turns::turn_schema), |m| {
        on(m, turns::get)
    }),
    post(
        "/api/v1/turns/{turnId}/abort",
        "abortTurn",
        "Aborts a turn and its runs.",
        EXECUTE,
        (schema::nothing, schema::aborted),
        |m| on(m, turns::abort),
    ),
    post(
        "/api/v1/turns/{turnId}/steer",
        "steerTurn",
        "Adds a message to a running turn; the model gets it with its next request.",
        EXECUTE,
        (turns::steer_schema, turns::steered_schema),
        |m| on(m, turns::steer),
    ),
    Route {
        query: &[LIMIT, CURSOR],
        ..get(
            "/api/v1/approvals",
            "listApprovals",
            "Lists pending approvals, oldest first.",
            READ_OR_APPROVE,
            Content::Json(approvals::page_schema),
            |m| on(m, approvals::list),
        )
    },
    get(
        "/api/v1/approvals/{approvalId}",
        "getApproval",
        "Returns an approval in any state.",
        READ_OR_APPROVE,
        Content::Json(approvals::approval_schema),
        |m| on(m, approvals::get),
    ),
    post(
        "/api/v1/approvals/{approvalId}/decision",
        "decideApproval",
        "Approves or denies a call. The caller's principal is recorded as the one who decided.",
        RequiredPermission::One(Permission::Approve),
        (approvals::decision_schema, approvals::decided_schema),
        |m| on(m, approvals::decide),
    ),
    Route {
        query: &[limit(MAX_CATALOG_PAGE, DEFAULT_PAGE), CURSOR, AGENT, SEARCH],
        ..get(
            "/api/v1/catalog",
            "listTools",
            "Lists or searches the tools that policy allows an agent.",
            READ_OR_EXECUTE,
            Content::Json(catalog::page_schema),
            |m| on(m, catalog::list),
        )
    },
    Route {
        query: &[AGENT],
        ..get(
            "/api/v1/catalog/{toolId}",
            "getTool",
            "Returns a tool with the schema of its input.",
            READ_OR_EXECUTE,
            Content::Json(catalog::tool_schema),
            |m| on(m, catalog::get),
        )
    },
    get(
        "/api/v1/agents",
        "listAgents",
        "Lists the configured agents.",
        READ_OR_EXECUTE,
        Content::Json(agents::page_schema),
        |m| on(m, agents::list),
    ),
    get(
        "/api/v1/events",
        "followEvents",
        "Sends changes of runs, turns, approvals and sessions: ids and states, no contents. `Last-Event-ID` resumes.",
        READ,
        Content::Events,
        |m| on(m, events::follow),
    ),
    Route {
        error_form: ErrorForm::WithOk,
        ..post(
            invoke::PATH,
            "invokeTool",
            "Calls one tool without a model.",
            EXECUTE,
            (invoke::request_schema, invoke::response_schema),
            |m| on(m, invoke::invoke),
        )
    },
    get(
        "/openapi.json",
        "getDocument",
        "Returns the OpenAPI document, which describes all routes.",
        RequiredPermission::Token,
        Content::Json(document::document_schema),
        |m| on(m, document::get),
    ),
];

/// Returns the router of all routes.
pub(crate) fn router() -> Router<Api> {
    let add = |router: Router<Api>, route: &'static Route| {
        let methods = (route.handler)(route.verb.filter()).layer(middleware::from_fn_with_state(route, check_request));
        router.route(route.path, methods)
    };
    ROUTES.iter().fold(Router::new(), add).method_not_allowed_fallback(wrong_method)
}

async fn wrong_method(request: Request) -> Response {
    if request.extensions().get::<Caller>().is_none() {
        return no_token().into_response();
    }
    let message = "this route does not have this method; the `Allow` header lists those that it has";
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message).into_response()
}

/// Middleware of every route: passes a request on to the handler if it is valid, and otherwise responds with the error.
async fn check_request(State(route): State<&'static Route>, request: Request, next: Next) -> Response {
    match read_request(route, request).await {
        Ok(request) => next.run(request).await,
        Err(error) => match route.error_form {
            ErrorForm::Plain => error.into_response(),
            ErrorForm::WithOk => error.response(&json!({"ok": false, "error": error.to_json()})),
        },
    }
}

/// Checks the caller's permission, the query and the body against the route. Returns the request with the parsed query
/// and body as extensions, and without the body itself.
async fn read_request(route: &'static Route, request: Request) -> Result<Request, ApiError> {
    let (mut parts, body) = request.into_parts();
    let caller = parts.extensions.get::<Caller>().ok_or_else(no_token)?;
    route.needs.check(caller)?;
    let query = Query::read(route.query, parts.uri.query().unwrap_or_default())?;
    parts.extensions.insert(query);
    if let Some(schema) = route.request {
        let max = route.max_bytes();
        let fields = Fields::read(&parts.headers, body, max, &schema()).await?;
        parts.extensions.insert(fields);
    }
    Ok(Request::from_parts(parts, axum::body::Body::empty()))
}

impl Route {
    /// Returns the maximum size of a request's body.
    pub(crate) fn max_bytes(&self) -> usize {
        if self.path == invoke::PATH { MAX_INVOKE_BYTES } else { MAX_REQUEST_BYTES }
    }
}

/// Returns the schema of errors.
pub(crate) fn error_schema() -> Value {
    schema::error()
}
