//! Requests that are generated from the OpenAPI document, valid and not: none of them makes the server fail.

use reqwest::Method;
use serde_json::{Map, Value, json};
use testkit::model::Reply;
use wire::Wire;

use crate::api_client::{Operation, get, operations};
use crate::world::{ADA, APPROVER, BOB, Form, Options, ROOT, RUNNER, World, exec, question};

const REQUESTS: usize = 2_000;

/// A sequence of numbers that looks random and is always the same.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn choose<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// Returns a value, mostly one that fits the schema.
    fn value(&mut self, schema: &Value, depth: usize) -> Value {
        if self.one_in(8) || depth > 5 {
            let any = [json!(null), json!(-1), json!(1e300), json!("\u{0}\u{202e}"), json!([[]]), json!({"": {}})];
            return self.choose(&any).clone();
        }
        if let Some(words) = schema["enum"].as_array() {
            return self.choose(words).clone();
        }
        match schema["type"].as_str() {
            Some("object") => {
                let mut fields = Map::new();
                for (name, schema) in schema["properties"].as_object().cloned().unwrap_or_default() {
                    if !self.one_in(4) {
                        fields.insert(name, self.value(&schema, depth + 1));
                    }
                }
                Value::Object(fields)
            }
            Some("boolean") => json!(self.one_in(2)),
            Some("integer") => json!(self.next() as i64),
            Some("string") => json!(self.choose(&["add", "openclaw:core:add", "once", "x", "\u{1F4A9}"])),
            _ => json!({"a": self.next()}),
        }
    }
}

/// Returns the ids of things that exist, encoded for a path.
async fn ids(world: &World) -> Vec<String> {
    let mut ids: Vec<String> =
        ["x", "%00", "%ff", "%2F", "%25", "mcp:ada", "openclaw:core:add", "turn_x"].map(str::to_owned).into();
    for (path, name) in [("runs", "runId"), ("runs", "turnId"), ("sessions", "sessionId")] {
        let items = get(world, ROOT, &format!("/api/v1/{path}")).await.body["items"].clone();
        ids.extend(items.as_array().unwrap().iter().filter_map(|item| item[name].as_str()).map(str::to_owned));
    }
    ids
}

fn address(numbers: &mut Numbers, operation: &Operation, ids: &[String]) -> String {
    let part = |part: &str, numbers: &mut Numbers| {
        if part.starts_with('{') { numbers.choose(ids).clone() } else { part.to_owned() }
    };
    let path: Vec<String> = operation.path.split('/').map(|one| part(one, numbers)).collect();
    let mut query = Vec::new();
    for parameter in operation.description["parameters"].as_array().unwrap() {
        if parameter["in"] == "query" && numbers.one_in(2) {
            let value = match numbers.value(&parameter["schema"], 0) {
                Value::String(text) => text,
                other => other.to_string(),
            };
            let value: String = url::form_urlencoded::byte_serialize(value.as_bytes()).collect();
            query.push(format!("{}={value}", parameter["name"].as_str().unwrap()));
        }
    }
    if query.is_empty() { path.join("/") } else { format!("{}?{}", path.join("/"), query.join("&")) }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_generated_requests_cause_no_error_of_the_server() {
    let script = vec![exec("return await tools.add({a: 1})"), Reply::text("done")];
    let world = World::start(Options::default(), script).await;
    assert_eq!(world.ask(Wire::Chat, &question(Wire::Chat, Form::Whole, "go")).await.status, 200);
    let (ids, operations) = (ids(&world).await, operations());
    let mut numbers = Numbers(0x9E37_79B9_7F4A_7C15);
    let mut succeeded = 0;
    for number in 0..REQUESTS {
        let operation = numbers.choose(&operations).clone();
        let address = address(&mut numbers, &operation, &ids);
        let token = *numbers.choose(&[ADA, BOB, ROOT, APPROVER, RUNNER]);
        let mut request = world.client.request(operation.method.clone(), format!("{}{address}", world.base));
        request = request.bearer_auth(token);
        if operation.method == Method::POST {
            let schema = &operation.description["requestBody"]["content"]["application/json"]["schema"];
            request = request.json(&numbers.value(schema, 0));
        }
        let status = request.send().await.unwrap().status().as_u16();
        assert!(status < 500, "request {number}: {} {address}: {status}", operation.method);
        succeeded += usize::from(status == 200);
    }
    assert!(succeeded > REQUESTS / 20, "the generator makes too few valid requests: {succeeded}");
}
