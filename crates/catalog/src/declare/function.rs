//! An operation of a server as a TypeScript function declaration: its description, input and result.

use contract::limits::MAX_IDENTIFIER_BYTES;
use contract::tool::Operation;
use serde_json::Value;

use super::print::Comments;
use super::render::{RenderedSchema, Role, render};
use super::result_type;
use crate::text::{clean, cut, in_comment, property, quoted};

/// The maximum length of a declaration with its types and comments.
pub(super) const FUNCTION_BYTES: usize = 8 << 10;

/// The maximum length of a method name; methods with longer names are counted, not declared.
pub(super) const MAX_METHOD_NAME_BYTES: usize = MAX_IDENTIFIER_BYTES;

/// The maximum length of the input and result types together.
const TYPES_BYTES: usize = 5 << 10;

/// The maximum length of the result types.
const RESULT_BYTES: usize = 2 << 10;

/// The maximum length of the comment lines.
const DOC_BYTES: usize = 4 << 10;

/// The maximum length of the description within the comment.
const DESCRIPTION_BYTES: usize = 1536;
const DESCRIPTION_LINES: usize = 24;

/// A comment line is never cut to fewer bytes than this; with less space it is omitted.
const MIN_LINE_BYTES: usize = 56;

/// The length of a comment line without its text.
const LINE_OVERHEAD_BYTES: usize = 8;

/// The length of a comment without its lines, including the line that counts the omitted ones.
const COMMENT_OVERHEAD_BYTES: usize = 96;

/// A tool or operation of a server under its method name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Function<'a> {
    pub(super) operation: Operation,
    pub(super) method: &'a str,
    /// The server's own name for it.
    pub(super) name: &'a str,
    pub(super) description: &'a str,
    pub(super) input: &'a Value,
    /// The schema of a tool's `structuredContent`; for other operations, of the whole result.
    pub(super) output: Option<&'a Value>,
}

impl Function<'_> {
    /// Returns `resources` or `prompts`; `None` for tools.
    pub(super) fn namespace(&self) -> Option<&'static str> {
        self.operation.namespace_and_method().map(|(namespace, _)| namespace)
    }

    /// Returns the path that is written after the server's name.
    pub(super) fn path(&self) -> String {
        match self.namespace() {
            Some(namespace) => format!("{namespace}.{}", self.method),
            None => self.method.to_owned(),
        }
    }

    /// Returns the declaration, of at most [`FUNCTION_BYTES`] if the method's name has at most
    /// [`MAX_METHOD_NAME_BYTES`].
    pub(super) fn declaration(&self, indent: usize) -> String {
        let margin = " ".repeat(indent);
        let (result, result_types) = self.result(indent);
        let limit = TYPES_BYTES.saturating_sub(result.len() + result_types.len());
        let prefix = self.method.to_owned();
        let role =
            Role { is_input: true, prefix, name: "Input", margin: indent, indent, limit, comments: Comments::Lines };
        let input = render(self.input, &role);
        let mark = if input.is_optional { "?" } else { "" };
        let types = format!("{}{result_types}", input.definitions);
        let gap = if types.is_empty() { "" } else { "\n" };
        let head = format!("{margin}function {}(input{mark}: {}): Promise<{result}>;\n", self.method, input.text);
        let room = FUNCTION_BYTES.saturating_sub(types.len() + head.len() + COMMENT_OVERHEAD_BYTES).min(DOC_BYTES);
        format!("{types}{gap}{}{head}", doc(&self.doc_lines(&input, room), &margin))
    }

    /// Returns a declaration without types and comments, for a file that has no space for the full one.
    pub(super) fn outline(&self, indent: usize) -> String {
        let margin = " ".repeat(indent);
        let result = result_type::name(self.operation);
        format!("{margin}function {}(input?: Record<string, unknown>): Promise<{result}>;\n", self.method)
    }

    /// Returns the type of the result, and the types it needs.
    ///
    /// `structuredContent` is optional, because a result with `isError` has none.
    fn result(&self, indent: usize) -> (String, String) {
        let Some(schema) = self.output else {
            return (result_type::name(self.operation).to_owned(), String::new());
        };
        let is_tool = self.operation == Operation::Tool;
        let inner = if is_tool { indent + 2 } else { indent };
        let prefix = format!("{}_Result", self.method);
        let limit = RESULT_BYTES;
        let role = Role {
            is_input: false,
            prefix,
            name: "Output",
            margin: indent,
            indent: inner,
            limit,
            comments: Comments::Lines,
        };
        let output = render(schema, &role);
        let text = match (is_tool, output.text.contains('\n')) {
            (false, _) => output.text,
            (true, false) => format!("McpToolResult & {{ structuredContent?: {} }}", output.text),
            (true, true) => {
                let margin = " ".repeat(indent);
                format!("McpToolResult & {{\n{margin}  structuredContent?: {};\n{margin}}}", output.text)
            }
        };
        (text, output.definitions)
    }

    fn doc_lines(&self, input: &RenderedSchema, room: usize) -> Vec<String> {
        let mut lines = description(self.description);
        if input.is_cut {
            let selector = quoted(&self.path());
            lines.push(format!("Shortened; $api({selector}, {{ schema: true }}) returns the full schema."));
        }
        let used: usize = lines.iter().map(|line| line.len() + LINE_OVERHEAD_BYTES).sum();
        lines.extend(parameters(&input.described, room.saturating_sub(used)));
        lines
    }
}

fn description(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut left = DESCRIPTION_BYTES;
    // Bounds the number of blank lines that are skipped.
    for line in text.lines().take(DESCRIPTION_LINES * 8) {
        let room = left.max(MIN_LINE_BYTES);
        let line = cut(in_comment(&clean(line, room)).into_owned(), room);
        if line.is_empty() {
            continue;
        }
        if left < MIN_LINE_BYTES || lines.len() == DESCRIPTION_LINES {
            lines.push("…".to_owned());
            break;
        }
        left = left.saturating_sub(line.len() + LINE_OVERHEAD_BYTES);
        lines.push(line);
    }
    lines
}

/// Returns a line for each described field. If they do not all fit, each is cut to an equal share, and the lines that
/// still do not fit are replaced by their count.
fn parameters(described: &[(String, String)], room: usize) -> Vec<String> {
    let line = |(name, text): &(String, String)| in_comment(&format!("@param {} {text}", property(name))).into_owned();
    let mut lines: Vec<String> = described.iter().filter(|(_, text)| !text.is_empty()).map(line).collect();
    if lines.iter().map(|line| line.len() + LINE_OVERHEAD_BYTES).sum::<usize>() <= room {
        return lines;
    }
    let share = (room / lines.len().max(1)).max(MIN_LINE_BYTES + LINE_OVERHEAD_BYTES) - LINE_OVERHEAD_BYTES;
    let mut used = 0;
    let fits = |line: &String| {
        used += line.len() + LINE_OVERHEAD_BYTES;
        used <= room
    };
    let count = lines.len();
    lines = lines.into_iter().map(|line| cut(line, share)).take_while(fits).collect();
    if lines.len() < count {
        lines.push(format!("… {} more are described in the schema", count - lines.len()));
    }
    lines
}

fn doc(lines: &[String], margin: &str) -> String {
    match lines {
        [] => String::new(),
        [line] => format!("{margin}/** {line} */\n"),
        _ => {
            let body: String = lines.iter().map(|line| format!("{margin} * {line}\n")).collect();
            format!("{margin}/**\n{body}{margin} */\n")
        }
    }
}
