//! The OpenAPI document, which describes all routes. Most come from the table that the router is built from; `OTHERS`
//! lists the rest.
//!
//! The client APIs under `/v1` are described coarsely: their forms are those of OpenAI and Anthropic.

use serde_json::{Map, Value, json};

use super::table::{Content, ErrorForm, ROUTES, Route};

/// The routes of other modules: method, path, and what it does.
const OTHERS: [(&str, &str, &str); 16] = [
    ("post", "/v1/chat/completions", "OpenAI Chat Completions: one turn of an agent."),
    ("post", "/v1/responses", "OpenAI Responses: one turn of an agent."),
    ("get", "/v1/responses/{id}", "Returns a stored response."),
    ("delete", "/v1/responses/{id}", "Deletes a stored response."),
    ("post", "/v1/responses/{id}/cancel", "Cancels the turn of a response."),
    ("get", "/v1/responses/{id}/input_items", "Returns the input of a stored response."),
    ("post", "/v1/messages/count_tokens", "Estimates the tokens of a request."),
    ("post", "/v1/messages", "Anthropic Messages: one turn of an agent."),
    ("get", "/v1/models", "Lists the agents as models."),
    ("get", "/v1/models/{id}", "Returns an agent as a model."),
    ("post", "/mcp", "The Model Context Protocol over streamable HTTP."),
    ("get", "/mcp", "A stream of notifications of the Model Context Protocol."),
    ("delete", "/mcp", "Ends a session of the Model Context Protocol."),
    ("get", "/api/hello", "Says that the gateway runs, for clients that look for it. Needs no token."),
    ("get", "/healthz", "Says that the process runs. Needs no token."),
    ("get", "/readyz", "Says whether requests can be served. Needs no token."),
];

/// The headers that the routes of turns read, besides the token, and what each does.
const TURN_HEADERS: [(&str, &str); 6] = [
    ("x-openclaw-agent-id", AGENT_HEADER),
    ("x-openclaw-session-key", "Names the session of the turn, instead of `user` in the body."),
    ("x-openclaw-model", "The model of a provider, `provider/model`, instead of the agent's."),
    ("x-openclaw-account-id", SENDER_HEADER),
    ("x-openclaw-message-channel", CHANNEL_HEADER),
    ("idempotency-key", "A request with the same key returns the result of the first one instead of a new turn."),
];

/// The headers that `/tools/invoke` reads, besides the token.
const INVOKE_HEADERS: [(&str, &str); 3] = [
    ("x-openclaw-agent-id", AGENT_HEADER),
    ("x-openclaw-account-id", SENDER_HEADER),
    ("x-openclaw-message-channel", CHANNEL_HEADER),
];

const AGENT_HEADER: &str = "The agent, instead of the one that the body names.";
const SENDER_HEADER: &str = "The sender, for rules of the tool policy.";
const CHANNEL_HEADER: &str = "The channel of the message, for rules of the tool policy; `api` by default.";

/// Whether a route starts or continues turns.
fn is_turn(method: &str, path: &str) -> bool {
    method == "post" && matches!(path, "/v1/chat/completions" | "/v1/responses" | "/v1/messages")
}

/// Returns the headers that a route reads.
fn headers(method: &str, path: &str) -> &'static [(&'static str, &'static str)] {
    match path {
        _ if is_turn(method, path) => &TURN_HEADERS,
        "/tools/invoke" => &INVOKE_HEADERS,
        _ => &[],
    }
}

fn header_parameters(method: &str, path: &str) -> impl Iterator<Item = Value> + use<> {
    headers(method, path).iter().map(
        |(name, description)| json!({"name": name, "in": "header", "description": description, "schema": {"type": "string"}}),
    )
}

/// Returns the whole document.
pub fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    let mut add = |path: &str, method: &str, operation: Value| {
        let methods = paths.entry(path).or_insert_with(|| json!({}));
        if let Some(methods) = methods.as_object_mut() {
            methods.insert(method.to_owned(), operation);
        }
    };
    for route in ROUTES {
        add(route.path, &route.verb.as_str().to_lowercase(), operation(route));
    }
    for (method, path, summary) in OTHERS {
        add(path, method, coarse_operation(method, path, summary));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Cellmate gateway", "version": env!("CARGO_PKG_VERSION"),
            "description": "Times are milliseconds since 1970. Both a missing resource and one of another principal \
                            return 404.",
        },
        "security": [{"token": []}, {"apiKey": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
            "schemas": {"Error": super::table::error_schema()},
        },
    })
}

fn operation(route: &Route) -> Value {
    let in_path = path_parameters(route.path)
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}));
    let in_query = route.query.iter().map(|parameter| {
        let (name, description) = (parameter.name, parameter.description);
        json!({"name": name, "in": "query", "description": description, "schema": parameter.schema()})
    });
    let in_headers = header_parameters(&route.verb.as_str().to_lowercase(), route.path);
    let parameters: Vec<Value> = in_path.chain(in_query).chain(in_headers).collect();
    let permissions: Vec<&str> = route.needs.permissions().into_iter().map(http_server::Permission::as_str).collect();
    let mut operation = json!({
        "operationId": route.name,
        "summary": route.summary,
        "parameters": parameters,
        "responses": responses(route),
        "x-permissions": permissions,
    });
    if let (Some(schema), Some(operation)) = (route.request, operation.as_object_mut()) {
        let content = json!({"application/json": {"schema": schema()}});
        operation.insert("requestBody".to_owned(), json!({"content": content}));
    }
    operation
}

fn responses(route: &Route) -> Value {
    let content = match route.content {
        Content::Json(schema) => json!({"application/json": {"schema": schema()}}),
        Content::Lines => json!({"application/x-ndjson": {"schema": {"type": "string"}}}),
        Content::Events => json!({"text/event-stream": {"schema": {"type": "string"}}}),
        Content::Bytes => json!({"*/*": {"schema": {"type": "string"}}}),
    };
    let error = match route.error_form {
        ErrorForm::Plain => json!({"$ref": "#/components/schemas/Error"}),
        ErrorForm::WithOk => json!({
            "type": "object", "required": ["ok", "error"],
            "properties": {"ok": {"const": false}, "error": {"type": "object"}},
        }),
    };
    let mut responses = json!({"200": {"description": "The result.", "content": content}});
    if let Some(responses) = responses.as_object_mut() {
        for (status, description) in statuses(route) {
            let content = json!({"application/json": {"schema": error}});
            responses.insert(status.to_string(), json!({"description": description, "content": content}));
        }
    }
    responses
}

/// Returns the statuses of a route's errors.
pub(crate) fn statuses(route: &Route) -> Vec<(u16, &'static str)> {
    let mut statuses = vec![
        (400, "The request cannot be understood, or what it asks for is not possible."),
        (401, "The token is missing or invalid."),
        (403, "The token does not have the permission, or a person must approve the call."),
        (404, "There is no such thing, or it belongs to others."),
        (405, "The route does not have this method."),
        (429, "There is too much in progress; retry after the time in `Retry-After`."),
        (503, "The store or the agent's tools cannot be used now."),
    ];
    if route.request.is_some() {
        statuses.extend([(413, "The body is too large."), (415, "The body is not JSON.")]);
    }
    if route.error_form == ErrorForm::WithOk {
        statuses.push((500, "The outcome of the call is unknown, or the tool did not answer in time."));
    }
    statuses
}

/// Returns the names of the parameters in a path.
fn path_parameters(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

fn coarse_operation(method: &str, path: &str, summary: &str) -> Value {
    let parameters: Vec<Value> = path_parameters(path)
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
        .chain(header_parameters(method, path))
        .collect();
    let mut response = json!({"description": "In the form of the protocol."});
    if let (true, Some(fields)) = (is_turn(method, path), response.as_object_mut()) {
        let turn_id = json!({"description": "The id of the turn.", "schema": {"type": "string"}});
        fields.insert("headers".to_owned(), json!({crate::http::TURN_ID: turn_id}));
    }
    let mut operation = json!({"summary": summary, "parameters": parameters, "responses": {"default": response}});
    if let Some(fields) = operation.as_object_mut() {
        if method == "post" {
            let content = json!({"application/json": {"schema": {"type": "object"}}});
            fields.insert("requestBody".to_owned(), json!({"content": content}));
        }
        // The authentication layer, `http_server`, checks these routes: `/v1/` and MCP need `execute`, the others no
        // token.
        match path.starts_with("/v1/") || path == "/mcp" {
            true => fields.insert("x-permissions".to_owned(), json!([http_server::Permission::Execute.as_str()])),
            false => fields.insert("security".to_owned(), json!([])),
        };
    }
    operation
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::{OTHERS, ROUTES, document, headers, is_turn, path_parameters};

    #[test]
    fn every_route_is_declared_once_and_is_in_the_document() {
        let document = document();
        let of_table = ROUTES.iter().map(|route| (route.verb.as_str().to_lowercase(), route.path));
        let others = OTHERS.iter().map(|(method, path, _)| ((*method).to_owned(), *path));
        let mut declared = BTreeSet::new();
        for (method, path) in of_table.chain(others) {
            assert!(document["paths"][path][method.as_str()].is_object(), "{method} {path}");
            // A second declaration would replace the first one in the document.
            assert!(declared.insert((method.clone(), path)), "{method} {path} is declared twice");
        }
        let methods = |path: &Value| path.as_object().unwrap().len();
        assert_eq!(document["paths"].as_object().unwrap().values().map(methods).sum::<usize>(), declared.len());
    }

    #[test]
    fn a_route_of_the_table_has_its_parameters_responses_and_a_name_of_its_own() {
        let document = document();
        let mut names = BTreeSet::new();
        for route in ROUTES {
            let method = route.verb.as_str().to_lowercase();
            let operation = &document["paths"][route.path][method.as_str()];
            assert_eq!(operation["operationId"], route.name);
            assert!(names.insert(route.name), "{}", route.name);
            let parameters = operation["parameters"].as_array().unwrap();
            let headers = headers(&method, route.path).len();
            assert_eq!(parameters.len(), path_parameters(route.path).count() + route.query.len() + headers);
            assert!(operation["responses"]["200"].is_object() && operation["responses"]["404"].is_object());
        }
    }

    #[test]
    fn a_route_of_the_list_has_its_parameters_and_the_permission_that_it_needs() {
        let document = document();
        for (method, path, summary) in OTHERS {
            let operation = &document["paths"][path][method];
            assert_eq!(operation["summary"], summary);
            let parameters = path_parameters(path).count() + headers(method, path).len();
            assert_eq!(operation["parameters"].as_array().unwrap().len(), parameters, "{path}");
            let responds_with_turn = operation["responses"]["default"]["headers"]["x-cellmate-turn-id"].is_object();
            assert_eq!(responds_with_turn, is_turn(method, path), "{path}");
            let needs_token = path.starts_with("/v1/") || path == "/mcp";
            assert_eq!(operation["x-permissions"].is_array(), needs_token, "{path}");
            assert_eq!(operation["security"].is_array(), !needs_token, "{path}");
        }
    }
}
