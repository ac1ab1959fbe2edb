//! The example in the description of `exec`: a complete cell that calls a tool of this catalog.

use contract::tool::{Repeat, ToolSpec};
use serde_json::{Map, Value};

use crate::Catalog;
use crate::text::is_identifier;

/// The maximum length of the call in the example.
const MAX_CALL_BYTES: usize = 110;

/// The maximum number of inputs in the example, and the maximum length of an input's name or value.
const MAX_INPUTS: usize = 2;
const MAX_WORD_BYTES: usize = 24;

/// Returns a cell that calls a tool of a server, or a tool without a server if there is none.
pub(super) fn example(catalog: &Catalog) -> Option<String> {
    if let Some(call) = mcp_call(catalog) {
        return Some(format!(
            "  const r = await {call};\n  if (r.isError) throw new Error(r.content[0].text);\n  return \
             r.structuredContent ?? r.content[0].text.slice(0, 1000);"
        ));
    }
    let has_others = catalog.len() > catalog.sources().mcp;
    has_others.then(|| {
        "  const [hit] = await tools.search(\"read a file\"); // hit.signature is its input\n  return await \
         tools.call(hit.id, { path: \"README.md\" });"
            .to_owned()
    })
}

/// Returns the call of a tool: one that only reads if there is one, else any whose input is simple, else any of the
/// first server.
fn mcp_call(catalog: &Catalog) -> Option<String> {
    let calls = || {
        catalog.servers.iter().flat_map(|(identifier, server)| {
            let call = move |(method, position): (&String, &usize)| {
                let tool = catalog.tools.get(*position)?;
                let call = format!("MCP.{identifier}.{method}({})", simple_input(tool)?);
                (call.len() <= MAX_CALL_BYTES).then_some((tool.repeat, call))
            };
            server.methods.iter().filter_map(call)
        })
    };
    let reads = calls().find(|(repeat, _)| *repeat == Repeat::Always);
    let simple = reads.or_else(|| calls().next()).map(|(_, call)| call);
    simple.or_else(|| Some(format!("MCP.{}.<tool>({{ ...input }})", catalog.server_identifiers().first()?)))
}

/// Returns an input with a value for each required field, if these are few and simple.
fn simple_input(tool: &ToolSpec) -> Option<String> {
    let none = Map::new();
    let properties = tool.parameters.get("properties").and_then(Value::as_object).unwrap_or(&none);
    let required = match tool.parameters.get("required") {
        None => &[],
        Some(required) => required.as_array()?.as_slice(),
    };
    if required.len() > MAX_INPUTS || ["anyOf", "oneOf", "allOf", "$ref"].iter().any(|key| has(&tool.parameters, key)) {
        return None;
    }
    let mut inputs = Vec::new();
    for name in required {
        let name = name.as_str().filter(|name| name.len() <= MAX_WORD_BYTES && is_identifier(name))?;
        inputs.push(format!("{name}: {}", simple_value(properties.get(name)?)?));
    }
    Some(if inputs.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", inputs.join(", ")) })
}

fn simple_value(schema: &Value) -> Option<String> {
    if let Some(choices) = schema.get("enum") {
        let first = choices.get(0)?.as_str()?;
        let is_plain = first.len() <= MAX_WORD_BYTES && first.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        return is_plain.then(|| format!("\"{first}\""));
    }
    match schema.get("type")?.as_str()? {
        "string" => Some("\"...\"".to_owned()),
        "integer" | "number" => Some("1".to_owned()),
        "boolean" => Some("true".to_owned()),
        _ => None,
    }
}

fn has(schema: &Value, key: &str) -> bool {
    schema.get(key).is_some()
}

#[cfg(test)]
mod tests {
    use contract::tool::{Repeat, ToolId, ToolSpec};
    use serde_json::{Value, json};

    use super::example;
    use crate::Catalog;

    fn tool(id: &str, parameters: Value, repeat: Repeat) -> ToolSpec {
        ToolSpec { repeat, ..ToolSpec::new(ToolId::parse(id).unwrap(), "", parameters) }
    }

    fn call(tools: Vec<ToolSpec>) -> String {
        let example = example(&Catalog::new(tools).unwrap()).unwrap();
        example.lines().next().unwrap().trim().to_owned()
    }

    #[test]
    fn a_tool_that_only_reads_is_preferred_and_required_inputs_are_given() {
        let path = json!({"type": "object", "properties": {"path": {"type": "string"}, "n": {}}, "required": ["path"]});
        let write = || tool("mcp:a:write", json!({}), Repeat::Never);
        let read = tool("mcp:b:read_text_file", path, Repeat::Always);
        assert_eq!(call(vec![write(), read]), "const r = await MCP.b.readTextFile({ path: \"...\" });");
        assert_eq!(call(vec![write()]), "const r = await MCP.a.write({});");
    }

    #[test]
    fn a_tool_without_a_simple_input_is_not_chosen() {
        let odd = [
            json!({"properties": {"a": {"type": "object"}}, "required": ["a"]}),
            json!({"properties": {"a": {"enum": ["\" ); evil("]}}, "required": ["a"]}),
            json!({"properties": {"a b": {"type": "string"}}, "required": ["a b"]}),
            json!({"properties": {}, "required": ["a"]}),
            json!({"required": "a"}),
            json!({"anyOf": [{"required": ["a"]}]}),
        ];
        for parameters in odd {
            let shown = call(vec![tool("mcp:a:odd", parameters.clone(), Repeat::Always)]);
            assert_eq!(shown, "const r = await MCP.a.<tool>({ ...input });", "{parameters}");
        }
        let long = "x".repeat(64);
        let shown = call(vec![tool(&format!("mcp:{long}:{long}"), json!({}), Repeat::Always)]);
        assert_eq!(shown, format!("const r = await MCP.{long}.<tool>({{ ...input }});"));
    }

    #[test]
    fn without_servers_the_example_uses_tools_and_without_tools_there_is_none() {
        assert!(call(vec![tool("plugin:a:b", json!({}), Repeat::Never)]).contains("await tools.search("));
        assert_eq!(example(&Catalog::new(Vec::new()).unwrap()), None);
    }
}
