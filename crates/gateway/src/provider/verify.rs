//! Checks the tools in the final bytes of a request.

use catalog::{Surface, SurfaceViolation};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use wire::Wire;
use wire::upstream::tool_names;

/// Why a request is not sent: the model would see other tools than those of its run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadViolation {
    #[error(transparent)]
    Tools(#[from] SurfaceViolation),
    #[error("the request gives the model tools in `{0}`, which are not those of this run")]
    Field(&'static str),
    #[error("the tools of the request cannot be read from its bytes")]
    Unreadable,
}

/// Verifies that a request contains exactly the tools of a surface. If the bytes cannot be read, it fails.
pub fn verify(surface: &Surface, wire: Wire, body: &[u8]) -> Result<(), PayloadViolation> {
    let names = tool_names(wire, body).ok_or(PayloadViolation::Unreadable)?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    surface.verify(&names)?;
    other_tools(body)
}

/// Fields beside `tools` that give a model tools.
#[derive(Deserialize)]
struct OtherFields<'a> {
    functions: Option<IgnoredAny>,
    mcp_servers: Option<IgnoredAny>,
    plugins: Option<IgnoredAny>,
    web_search_options: Option<IgnoredAny>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct InputItem {
    r#type: Option<String>,
}

fn other_tools(body: &[u8]) -> Result<(), PayloadViolation> {
    let fields: OtherFields<'_> = serde_json::from_slice(body).map_err(|_| PayloadViolation::Unreadable)?;
    let given = [
        ("functions", fields.functions),
        ("mcp_servers", fields.mcp_servers),
        ("plugins", fields.plugins),
        ("web_search_options", fields.web_search_options),
    ];
    if let Some((name, _)) = given.iter().find(|(_, value)| value.is_some()) {
        return Err(PayloadViolation::Field(name));
    }
    let Some(input) = fields.input.filter(|input| input.get().starts_with('[')) else { return Ok(()) };
    let items: Vec<InputItem> = serde_json::from_str(input.get()).map_err(|_| PayloadViolation::Unreadable)?;
    match items.iter().any(|item| item.r#type.as_deref() == Some("additional_tools")) {
        true => Err(PayloadViolation::Field("additional_tools")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use catalog::Surface;
    use serde_json::{Value, json};
    use wire::Wire;

    use super::{PayloadViolation, verify};

    fn body(wire: Wire, names: &[&str]) -> Value {
        let tool = |name: &&str| match wire {
            Wire::Chat => json!({"type": "function", "function": {"name": name}}),
            Wire::Responses => json!({"type": "function", "name": name}),
            Wire::Messages => json!({"name": name, "input_schema": {}}),
        };
        json!({"model": "m", "tools": names.iter().map(tool).collect::<Vec<_>>()})
    }

    fn check(wire: Wire, body: &Value) -> Result<(), PayloadViolation> {
        verify(&Surface::CodeMode, wire, body.to_string().as_bytes())
    }

    #[test]
    fn only_a_request_with_exactly_the_tools_of_the_surface_is_sent() {
        for wire in Wire::ALL {
            assert_eq!(check(wire, &body(wire, &["exec", "wait"])), Ok(()), "{wire}");
            assert_eq!(check(wire, &body(wire, &["wait", "exec"])), Ok(()), "{wire}");
            for names in [&["exec"] as &[&str], &["exec", "wait", "read"], &["exec", "exec", "wait"], &[]] {
                let violation = check(wire, &body(wire, names));
                assert!(matches!(violation, Err(PayloadViolation::Tools(_))), "{wire} {names:?}");
            }
            assert_eq!(verify(&Surface::None, wire, b"{\"model\":\"m\"}"), Ok(()));
        }
    }

    #[test]
    fn bytes_that_cannot_be_read_are_not_sent() {
        for wire in Wire::ALL {
            let twice = r#"{"tools":[],"tools":[{"type":"function","name":"x","function":{"name":"x"}}]}"#;
            for bytes in ["", "{", "[]", "{\"tools\":7}", "{\"tools\":[{}]}", twice] {
                let violation = verify(&Surface::None, wire, bytes.as_bytes());
                assert_eq!(violation, Err(PayloadViolation::Unreadable), "{wire} {bytes}");
            }
            // A tool that the provider executes has no name in OpenAI's APIs.
            let mut hosted = body(wire, &["exec", "wait"]);
            hosted["tools"].as_array_mut().unwrap().push(json!({"type": "web_search"}));
            assert!(check(wire, &hosted).is_err(), "{wire}");
        }
    }

    #[test]
    fn tools_in_other_fields_are_violations() {
        for (field, value) in [
            ("functions", json!([{"name": "x"}])),
            ("mcp_servers", json!([{"url": "https://x"}])),
            ("plugins", json!([{"id": "web"}])),
            ("web_search_options", json!({})),
        ] {
            let mut body = body(Wire::Chat, &["exec", "wait"]);
            body[field] = value;
            assert_eq!(check(Wire::Chat, &body), Err(PayloadViolation::Field(field)));
        }
        let mut body = body(Wire::Responses, &["exec", "wait"]);
        body["input"] = json!([{"role": "user", "content": "hi"}, {"type": "additional_tools", "tools": []}]);
        assert_eq!(check(Wire::Responses, &body), Err(PayloadViolation::Field("additional_tools")));
        body["input"] = json!([{"role": "user", "content": "hi"}]);
        assert_eq!(check(Wire::Responses, &body), Ok(()));
    }
}
