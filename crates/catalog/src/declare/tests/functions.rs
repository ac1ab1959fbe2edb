//! Declarations of whole functions, as they appear in a file.

use serde_json::{Map, Value, json};

use super::function;
use crate::declare::function::Function;

fn check(function: &Function<'_>, indent: usize, expected: &str) {
    assert_eq!(function.declaration(indent), expected);
}

#[test]
fn the_contracts_example_is_declared_exactly() {
    let text = |description: &str| json!({"type": "string", "description": description});
    let input = json!({
        "type": "object",
        "properties": {
            "body": {"type": "string"},
            "owner": text("Repository owner"),
            "repo": text("Repository name"),
            "title": text("Issue title"),
        },
        "required": ["owner", "repo", "title"],
    });
    let expected = "  /**
   * Create a GitHub issue.
   * @param owner Repository owner
   * @param repo Repository name
   * @param title Issue title
   */
  function run(input: {
    owner: string;
    repo: string;
    title: string;
    body?: string;
  }): Promise<McpToolResult>;
";
    check(&function("Create a GitHub issue.", &input, None), 2, expected);
}

#[test]
fn an_input_is_an_object_and_optional_if_nothing_is_required() {
    let cases = [
        (json!({"type": "object", "properties": {}}), "input?: Record<string, never>"),
        (json!({"type": "object", "additionalProperties": false}), "input?: Record<string, never>"),
        (json!({"type": "object", "additionalProperties": true}), "input?: Record<string, unknown>"),
        (json!({"type": "object", "additionalProperties": {"type": "string"}}), "input?: Record<string, string>"),
        (json!({}), "input?: Record<string, unknown>"),
        (Value::Null, "input?: Record<string, unknown>"),
        (json!("object"), "input?: Record<string, unknown>"),
        (json!({"type": "string"}), "input?: Record<string, unknown>"),
        (json!({"properties": {"a": {"type": "string"}}}), "input?: {\n  a?: string;\n}"),
        (json!({"$ref": "#/$defs/i", "$defs": {"i": {"required": ["a"]}}}), "input: {\n  a: unknown;\n}"),
        (json!({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}), "input: { a: unknown } | { b: unknown }"),
        (
            json!({"properties": {"a": true, "b": true}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}),
            "input: {\n  a?: unknown;\n  b?: unknown;\n} & ({ a: unknown } | { b: unknown })",
        ),
    ];
    for (input, expected) in cases {
        check(&function("", &input, None), 0, &format!("function run({expected}): Promise<McpToolResult>;\n"));
    }
}

#[test]
fn below_the_first_level_descriptions_are_beside_their_fields() {
    let input = json!({
        "properties": {
            "filter": {
                "type": "object",
                "description": "What to leave out",
                "properties": {
                    "state": {"enum": ["open", "closed"], "description": "Open\n or closed.", "default": "open"},
                    "range": {"type": "object", "description": "When", "properties": {
                        "from": {"type": "string", "description": "First day", "format": "date"},
                    }},
                },
            },
            "page": {"type": "object", "properties": {"size": {"type": "integer"}, "at": {"type": "string"}}},
            "tags": {"items": {"properties": {"id": {"type": "string", "description": "Its id"}}}},
        },
    });
    let expected = "/** @param filter What to leave out */
function run(input?: {
  filter?: {
    state?: \"open\" | \"closed\"; // Open or closed. (default \"open\")
    // When
    range?: {
      from?: string; // First day (date)
    };
  };
  page?: { size?: number /* integer */; at?: string };
  tags?: {
    id?: string; // Its id
  }[];
}): Promise<McpToolResult>;
";
    check(&function("", &input, None), 0, expected);
}

#[test]
fn a_definition_is_declared_before_its_function() {
    let input = json!({
        "properties": {"filter": {"$ref": "#/$defs/filter"}},
        "required": ["filter"],
        "$defs": {
            "filter": {"description": "Any filter", "properties": {"and": {"items": {"$ref": "#/$defs/filter"}}}},
        },
    });
    let output = json!({"$ref": "#/$defs/filter", "$defs": input["$defs"]});
    let expected = "  type run_Filter = { and?: run_Filter[] };
  type run_Result_Filter = { and?: run_Result_Filter[] };

  /** @param filter Any filter */
  function run(input: {
    filter: run_Filter;
  }): Promise<McpToolResult & { structuredContent?: run_Result_Filter }>;
";
    check(&function("", &input, Some(&output)), 2, expected);
}

#[test]
fn a_tools_output_is_its_structured_content() {
    let input = json!({"type": "object"});
    let short = json!({"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]});
    let expected = "function run(input?: Record<string, never>): \
        Promise<McpToolResult & { structuredContent?: { id: string } }>;\n";
    check(&function("", &input, Some(&short)), 0, expected);

    let long = json!({"properties": {"id": {"type": "string", "description": "Its id"}}});
    let expected = "function run(input?: Record<string, never>): Promise<McpToolResult & {
  structuredContent?: {
    id?: string; // Its id
  };
}>;
";
    check(&function("", &input, Some(&long)), 0, expected);
}

#[test]
fn text_from_servers_cannot_end_a_comment() {
    let input = json!({"properties": {
        "a*/b": {"type": "string", "description": "ends */ here\u{2028}and\u{0}there, `really`*\u{200b}/"},
    }});
    let expected = "/**
 * One. *\\/ alert(1) /*
 * Two.
 * @param \"a*\\/b\" ends *\\/ here and there, `really`*\\/
 */
function run(input?: {
  \"a*/b\"?: string;
}): Promise<McpToolResult>;
";
    check(&function("One. */  alert(1) /*\n\n \t\n\u{7}Two.\r\n", &input, None), 0, expected);
}

#[test]
fn a_long_description_is_cut_and_marked() {
    let lines = (0..100).map(|number| format!("Line {number}.\n")).collect::<String>();
    let shown = function(&lines, &json!({}), None).declaration(0);
    assert!(shown.contains(" * Line 23.\n * …\n */\n"), "{shown}");

    let shown = function(&"word ".repeat(1000), &json!({}), None).declaration(0);
    assert!(shown.starts_with("/** word word ") && shown.contains("… */\n"), "{shown}");
    assert!(shown.len() < 1700, "{}", shown.len());
}

#[test]
fn fields_that_do_not_fit_are_counted_and_the_schema_is_named() {
    let field =
        |name: usize| (format!("field{name:04}"), json!({"type": "string", "description": "Some words on it."}));
    let input = json!({"properties": (0..1000).map(field).collect::<Map<_, _>>(), "required": ["field0999"]});
    let shown = function("Do.", &input, None).declaration(2);
    let head = "  /**
   * Do.
   * Shortened; $api(\"run\", { schema: true }) has the whole schema.
   * @param field0999 Some words on it.
";
    assert!(shown.starts_with(head), "{shown}");
    assert!(shown.contains("  function run(input: {\n    field0999: string;\n    field0000?: string;\n"), "{shown}");
    assert!(
        shown.contains("    field0208?: string;\n    /* … 790 more */\n  }): Promise<McpToolResult>;\n"),
        "{shown}"
    );
    assert!(shown.contains(" more are described in the schema\n   */\n"), "{shown}");
}

#[test]
fn descriptions_and_depth_are_cut_before_fields() {
    let show = |inner: &[&str], text: &str| {
        let field = |name: &&str| ((*name).to_owned(), json!({"type": "string", "description": text}));
        let object = json!({"type": "object", "properties": inner.iter().map(field).collect::<Map<_, _>>()});
        let fields: Map<_, _> = (0..40).map(|number| (format!("field{number}"), object.clone())).collect();
        function("", &json!({"properties": fields}), None).declaration(0)
    };
    let shown = show(&["a"], &"x".repeat(100));
    let expected = format!("  field39?: {{\n    a?: string; // {}…\n  }};\n}}): ", "x".repeat(57));
    assert!(shown.contains(&expected), "{shown}");

    let shown = show(&["a", "b"], &"x".repeat(200));
    assert!(shown.contains("  field39?: { a?: string; b?: string };\n}): "), "{shown}");

    let shown = show(&["aaa", "bbb", "ccc", "ddd", "eee", "fff", "ggg", "hhh"], "");
    assert!(shown.contains("  field39?: Record<string, unknown> /* … 8 fields */;\n}): "), "{shown}");
}
