//! The description of `exec`: an example first, then how to find and call tools, what is returned, and the limits last.

use contract::cell::Language;
use contract::config::{CodeMode, Languages};
use contract::limits::MAX_EXEC_DESCRIPTION_UNITS;

use super::amount::{count, size, time};
use super::example::example;
use super::units::{cut, units};
use super::{Channel, namespaces, servers};
use crate::Catalog;

/// An ordinary tool in the catalog, which models that need a shell should call.
const SHELL: &str = "openclaw:core:exec";

/// The room that the lists of servers have at least. Plugins' namespaces get what is left.
const LISTS_UNITS: usize = 140;

/// The texts of `exec` that depend on the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecTexts {
    /// At most [`MAX_EXEC_DESCRIPTION_UNITS`], whatever the catalog contains.
    pub description: String,
    /// Plugins' namespaces, if they do not fit into the description. They belong to that of the parameter `code`.
    pub namespaces: Option<String>,
}

pub fn exec(config: &CodeMode, catalog: &Catalog, channel: Channel<'_>) -> ExecTexts {
    let tools = [head(config.languages, catalog), mcp(catalog), others(catalog)];
    let rest = [result(), approvals(channel), waiting(channel), world(catalog), limits(config, channel)];
    let fixed: usize = tools.iter().chain(&rest).map(|section| units(section) + "\n".len()).sum();
    let room = MAX_EXEC_DESCRIPTION_UNITS.saturating_sub(fixed);
    let (namespaces, for_parameter) = namespaces::placed(catalog, room.saturating_sub(LISTS_UNITS));
    let lists = servers::lists(catalog, room.saturating_sub(units(&namespaces) + "\n\n".len()));
    let [head, mcp, others] = tools;
    let sections = [head, lists, mcp, others, namespaces].into_iter().chain(rest);
    let text = sections.filter(|section| !section.is_empty()).collect::<Vec<_>>().join("\n");
    // Every section is bounded; this guards against later changes.
    ExecTexts { description: cut(text, MAX_EXEC_DESCRIPTION_UNITS), namespaces: for_parameter }
}

fn head(languages: Languages, catalog: &Catalog) -> String {
    let language = match (languages.allow(Language::JavaScript), languages.allow(Language::TypeScript)) {
        (true, true) => "JavaScript or TypeScript",
        (false, true) => "TypeScript",
        (true, false) | (false, false) => "JavaScript",
    };
    let program = format!("Runs one {language} program (a cell), the body of an async function");
    match example(catalog) {
        Some(example) => format!("{program}, that calls tools. Example:\n{example}"),
        None => format!("{program}, and returns its result, as in `return 6 * 7`. It has no tools in this run."),
    }
}

/// Says how to find and call the tools of MCP servers.
fn mcp(catalog: &Catalog) -> String {
    if catalog.server_identifiers().is_empty() {
        return String::new();
    }
    let has_more = catalog.servers.values().any(|server| !server.operations.is_empty());
    let more = if has_more { " Some servers have resources.list/read and prompts.list/get." } else { "" };
    format!(
        "\
Find tools: `await MCP.$search(\"create an issue\")` searches all servers: [{{ call, signature, description }}]; `await \
API.read(\"mcp/<server>.d.ts\")` declares a server's tools; `await MCP.<server>.$api(\"<tool>\", {{ schema: true }})` \
has a JSON Schema.
`MCP.<server>.<tool>` takes one object and resolves to {{ content, structuredContent, isError }}; a failed tool does \
not throw, so check isError.{more}"
    )
}

/// Says how to find and call other tools.
fn others(catalog: &Catalog) -> String {
    let number = catalog.len() - catalog.sources().mcp;
    if number == 0 {
        return String::new();
    }
    let shell = match catalog.get(SHELL) {
        Some(_) => format!(" Shell: tools.call(\"{SHELL}\", input)."),
        None => String::new(),
    };
    // Each round of calls to the client is one step of a budget that the client has.
    let client = match catalog.sources().client {
        0 => "",
        _ => " Call `client:` tools together with Promise.all.",
    };
    format!(
        "\
{} in `tools`: `await tools.search(\"read a file\")` finds [{{ id, signature }}]; `await tools.call(id, input)` \
returns data or throws.{shell}{client}",
        count(number, "tool")
    )
}

fn result() -> String {
    "\
Result: status \"completed\" (value, output), \"failed\" (error) or \"waiting\" (runId). `return` sets `value`; text(x), \
json(x), image(block) add to `output`. Large results get a handle: output.read(handle), .grep, .json in later cells. \
store(key, value), load(key) share values."
        .to_owned()
}

fn approvals(channel: Channel<'_>) -> String {
    let wait = channel.wait_name();
    match channel {
        Channel::Contract(_) => format!(
            "If a call needs a person's approval, the status is \"waiting\": tell your user, then call `{wait}`."
        ),
        Channel::Mcp(_) => format!(
            "\
If a call needs a person's approval, the result is \"waiting\" with a `message`: pass it on to your user, then call \
`{wait}`. Do not try another way."
        ),
    }
}

fn waiting(channel: Channel<'_>) -> String {
    let wait = channel.wait_name();
    format!(
        "\
Slow calls also leave it \"waiting\"; `{wait}` resumes the cell. `await yield_control(\"why\")` returns early. Start \
independent calls with Promise.all."
    )
}

fn world(catalog: &Catalog) -> String {
    let shell = if catalog.get(SHELL).is_some() { "" } else { " shell," };
    format!("No import, fetch,{shell} files: only tools reach outside.")
}

fn limits(config: &CodeMode, channel: Channel<'_>) -> String {
    let limits = &config.limits;
    let code = time(limits.timeout_ms);
    let hold_ms = match channel {
        Channel::Mcp(mcp) => mcp.hold_ms,
        Channel::Contract(hold) => hold.ms(config),
    };
    let call = if hold_ms == limits.timeout_ms {
        format!("{code} in all")
    } else {
        format!("{} for calls, {code} for own code", time(hold_ms))
    };
    format!(
        "Limits: {call}, {memory} memory, {output} value and output, {pending} calls at once (more are queued).",
        memory = size(limits.memory_bytes),
        output = size(limits.output_bytes),
        pending = limits.pending_calls,
    )
}
