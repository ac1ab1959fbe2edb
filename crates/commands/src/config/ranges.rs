//! Numbers of a configuration that are outside of their range. They are accepted, and the nearest one is used.

use client_config::KeyPath;
use serde_json::Value;

use super::schema;
use crate::render;

/// Ports are not moved into their range: another number is an error.
const PORT: &str = "callbackPort";

/// Time limits of servers. They are moved into their range, but one that is not above zero is an error.
const TIME_LIMITS: [&str; 2] = ["startupTimeoutMs", "callTimeoutMs"];

/// A number that is not used as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MovedNumber {
    pub(super) path: KeyPath,
    pub(super) message: String,
}

/// Returns the numbers of a configuration that are outside of their ranges.
pub(super) fn moved_numbers(config: &Value) -> Vec<MovedNumber> {
    let mut found = Vec::new();
    search(&schema::schema(), config, &KeyPath::root(), &mut found);
    found
}

fn search(schema: &Value, value: &Value, path: &KeyPath, found: &mut Vec<MovedNumber>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields.iter().filter(|(key, value)| !is_refused(key, value)) {
                if let Some(below) = schema::below(schema, Some(key)) {
                    search(below, value, &path.child(key), found);
                }
            }
        }
        Value::Array(items) => {
            for (position, value) in items.iter().enumerate() {
                if let Some(below) = schema::below(schema, None) {
                    search(below, value, &path.item(position), found);
                }
            }
        }
        Value::Number(_) => found.extend(message(schema, value, path)),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// Whether the number is an error, which is reported as such.
fn is_refused(key: &str, value: &Value) -> bool {
    key == PORT || (TIME_LIMITS.contains(&key) && value.as_f64().is_some_and(|number| number <= 0.0))
}

fn message(schema: &Value, value: &Value, path: &KeyPath) -> Option<MovedNumber> {
    let (least, most) = (schema.get("minimum")?, schema.get("maximum")?);
    let number = value.as_f64()?;
    let used = match (number < least.as_f64()?, number > most.as_f64()?) {
        (true, _) => least,
        (_, true) => most,
        (false, false) => return None,
    };
    let message = render::out_of_range(path, value, [least, most, used]);
    Some(MovedNumber { path: path.clone(), message })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::moved_numbers;

    #[test]
    fn numbers_outside_of_their_range_are_found_anywhere() {
        let config = json!({
            "tools": {"codeMode": {"timeoutMs": 90_000, "maxWaitMs": 45_000}, "web": {"fetch": {"timeoutSeconds": 31}}},
            "agents": {"list": [{"id": "a", "tools": {"codeMode": {"timeoutMs": 1}}}]},
            "mcpServers": {"s": {"startupTimeoutMs": 10, "callTimeoutMs": 0, "oauth": {"callbackPort": 70_000}}},
        });
        let messages: Vec<String> = moved_numbers(&config).into_iter().map(|moved| moved.message).collect();
        assert_eq!(
            messages,
            [
                "`tools.codeMode.timeoutMs`: 90000 is outside of its range, 100 to 60000, so 60000 is used",
                "`tools.web.fetch.timeoutSeconds`: 31 is outside of its range, 1 to 30, so 30 is used",
                "`agents.list[0].tools.codeMode.timeoutMs`: 1 is outside of its range, 100 to 60000, so 100 is used",
                "`mcpServers.s.startupTimeoutMs`: 10 is outside of its range, 100 to 3600000, so 100 is used",
            ]
        );
    }
}
