//! The exact text of declarations, and the bounds that every schema must keep.

mod combinations;
mod facts;
mod files;
mod functions;
mod hostile;
mod signatures;
mod soup;
mod types;

use contract::tool::Operation;
use serde_json::Value;

use super::function::Function;
use super::print::Comments;
use super::render::{Role, render};

/// Returns a type with the definitions it needs, as a result type is written.
fn shown(schema: &Value) -> String {
    let role = Role {
        is_input: false,
        prefix: "f".to_owned(),
        name: "Output",
        margin: 0,
        indent: 0,
        limit: 4096,
        comments: Comments::Lines,
    };
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
