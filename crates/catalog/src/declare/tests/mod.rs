//! Tests of declarations as a model reads them: exact text, and bounds for hostile schemas.

mod combinations;
mod facts;
mod files;
mod functions;
mod hostile;
mod soup;
mod types;

use contract::tool::Operation;
use serde_json::Value;

use super::function::Function;
use super::render::{Role, render};

/// Writes a type with the definitions it needs, as for the type of a result.
fn shown(schema: &Value) -> String {
    let role = Role { is_input: false, prefix: "f".to_owned(), name: "Output", margin: 0, indent: 0, limit: 4096 };
    let rendered = render(schema, &role);
    rendered.definitions + &rendered.text
}

fn check(cases: &[(&str, Value, &str)]) {
    for (name, schema, expected) in cases {
        assert_eq!(shown(schema), *expected, "{name}");
    }
}

fn function<'a>(description: &'a str, input: &'a Value, output: Option<&'a Value>) -> Function<'a> {
    Function { operation: Operation::Tool, method: "run", name: "run", description, input, output }
}
