//! A client of the programs' interface that checks every successful response against the OpenAPI document.

use gateway::openapi::document;
use reqwest::Method;
use serde_json::Value;

use crate::world::World;

/// One operation of the document.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) description: Value,
}

impl Operation {
    pub(crate) fn permissions(&self) -> Vec<String> {
        let permissions = self.description["x-permissions"].as_array().unwrap();
        permissions.iter().map(|permission| permission.as_str().unwrap().to_owned()).collect()
    }

    pub(crate) fn is_events(&self) -> bool {
        self.path == "/api/v1/events"
    }

    /// Returns the path with this text in the place of each id.
    pub(crate) fn with_ids(&self, id: &str) -> String {
        let parts = self.path.split('/').map(|part| if part.starts_with('{') { id } else { part });
        parts.collect::<Vec<_>>().join("/")
    }
}

/// Returns the operations that are described in detail.
pub(crate) fn operations() -> Vec<Operation> {
    let document = document();
    let mut operations = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, description) in methods.as_object().unwrap() {
            if description.get("operationId").is_some() {
                let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
                operations.push(Operation { method, path: path.clone(), description: description.clone() });
            }
        }
    }
    assert!(operations.len() > 20);
    operations
}

/// A response of the interface.
#[derive(Clone, Debug)]
pub(crate) struct ApiResponse {
    pub(crate) status: u16,
    pub(crate) text: String,
    pub(crate) body: Value,
}

/// Sends a request, and checks a response of the status 200 against its schema, and any error against that of errors.
pub(crate) async fn call(world: &World, token: &str, method: Method, path: &str, body: Option<&Value>) -> ApiResponse {
    let mut request = world.client.request(method.clone(), format!("{}{path}", world.base)).bearer_auth(token);
    if let Some(body) = body {
        request = request.json(body);
    }
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    let body: Value = serde_json::from_str(&text).unwrap_or_default();
    check(&method, path, status, &body);
    ApiResponse { status, text, body }
}

pub(crate) async fn get(world: &World, token: &str, path: &str) -> ApiResponse {
    call(world, token, Method::GET, path, None).await
}

pub(crate) async fn post(world: &World, token: &str, path: &str, body: &Value) -> ApiResponse {
    call(world, token, Method::POST, path, Some(body)).await
}

/// Checks a response against the document.
fn check(method: &Method, path: &str, status: u16, body: &Value) {
    let plain = path.split('?').next().unwrap();
    let fits = |operation: &&Operation| {
        let (own, given): (Vec<&str>, Vec<&str>) = (operation.path.split('/').collect(), plain.split('/').collect());
        let same = |(own, given): (&&str, &&str)| own.starts_with('{') || own == given;
        operation.method == *method && own.len() == given.len() && own.iter().zip(&given).all(same)
    };
    let operations = operations();
    let Some(operation) = operations.iter().find(fits) else { panic!("{method} {path} is not in the document") };
    let described = &operation.description["responses"][status.to_string().as_str()];
    assert!(described.is_object(), "{method} {path}: {status} is not in the document");
    let mut schema = described["content"]["application/json"]["schema"].clone();
    if schema.get("$ref").is_some() {
        schema = document()["components"]["schemas"]["Error"].clone();
    }
    if !schema.is_null() {
        catalog::arguments::check(&schema, body).unwrap_or_else(|error| panic!("{method} {path}: {error}: {body}"));
    }
}
