//! The description of `exec`: how to write a cell, and what a cell can use.

use contract::cell::Language;
use contract::config::{CodeMode, Languages};
use contract::limits::{MAX_CONTROL_DESCRIPTION_BYTES, MAX_OUTSTANDING_CALLS, MAX_SOURCE_BYTES};

use super::amount::{count, size, time};
use super::namespaces;
use crate::Catalog;
use crate::text::cut;

/// An ordinary tool in the catalog, which models that need a shell should call.
const SHELL: &str = "openclaw:core:exec";

pub fn exec(config: &CodeMode, catalog: &Catalog) -> String {
    let mut sections = vec![program(config.languages), tools(config, catalog), world(), language(config, catalog)];
    sections.push(limits(config));
    sections.extend(namespaces::block(catalog));
    // Every section has its own bound; this one guards against later changes of those.
    cut(sections.join("\n\n"), MAX_CONTROL_DESCRIPTION_BYTES)
}

fn program(languages: Languages) -> String {
    format!(
        "\
Runs one {} program, called a cell, and returns {{ status, value, output, telemetry }}; the status is \"completed\", \
\"waiting\" or \"failed\".
A cell is the body of an async function: `await` and `return` work at its top level. Only `return` passes a value \
back; a cell without it completes with the value null. `text(value)`, `json(value)` and `console.log(…)` add to \
`output` in order. Values must be JSON.",
        spoken(languages)
    )
}

fn spoken(languages: Languages) -> &'static str {
    match (languages.allow(Language::JavaScript), languages.allow(Language::TypeScript)) {
        (true, true) => "JavaScript or TypeScript",
        (false, true) => "TypeScript",
        (true, false) | (false, false) => "JavaScript",
    }
}

fn tools(config: &CodeMode, catalog: &Catalog) -> String {
    let number = catalog.len() - catalog.sources().mcp;
    if number == 0 {
        return "`tools` is empty in this run; its tools are in the namespaces below.".to_owned();
    }
    format!(
        "\
{number} can be searched, described and called from the cell:
  const hits = await tools.search(\"read a file\");
  return await tools.call(hits[0].id, {{ path: \"README.md\" }}); // hits[0].signature is its input type
`await tools.describe(id)` returns the full JSON Schema of its input as `parameters`.
A search returns at most {default} tools, or {{ limit }} up to {max}. `ALL_TOOLS` lists the id, name and description \
of every tool. `tools.<name>(input)` calls a tool whose name is a plain and unique identifier.
A call resolves to the tool's structured data if it has any, else to its text. A failed call rejects; catch it if the \
cell can continue. Start independent calls together with Promise.all: {pending} run at once, the rest are queued, and \
at most {outstanding} may be outstanding.",
        number = count(number, "tool"),
        default = config.search.default,
        max = config.search.max,
        pending = config.limits.pending_calls,
        outstanding = MAX_OUTSTANDING_CALLS,
    )
}

fn world() -> String {
    "\
There are no modules, `import` or `require`, no Node built-ins, files, network, processes or environment: use tools \
for everything outside the cell. There are setTimeout and clearTimeout (no setInterval), TextEncoder, TextDecoder, \
structuredClone, atob, btoa and URL. The clock does not advance while code runs, only when a call or a timer settles; \
to let time pass, await a timer."
        .to_owned()
}

fn language(config: &CodeMode, catalog: &Catalog) -> String {
    let choice = match (config.languages.allow(Language::JavaScript), config.languages.allow(Language::TypeScript)) {
        (true, true) => "\"javascript\", the default, or \"typescript\", whose types are erased and not checked",
        (false, true) => "\"typescript\" and is required; types are erased and not checked",
        (true, false) | (false, false) => "\"javascript\"",
    };
    let shell = match catalog.get(SHELL) {
        Some(_) => format!("This is not a shell; run commands with tools.call(\"{SHELL}\", input)."),
        None => "This is not a shell and cannot run commands.".to_owned(),
    };
    format!("`language` is {choice}. It is never \"bash\" or \"shell\". {shell}")
}

fn limits(config: &CodeMode) -> String {
    let limits = &config.limits;
    format!(
        "\
One `exec` takes at most {time}: code still running then fails with `timeout`; if calls are still pending then, the \
status is \"waiting\", and `wait` with the result's `runId` resumes the cell. `await yield_control(reason)` suspends \
it at once, to return the output so far. Memory: {memory}. Source: {source}. Value and output together: {output}, so \
return what you need, not everything you read. A failed cell's `error` gives the position as line:column; output \
written before it is kept.",
        time = time(limits.timeout_ms),
        memory = size(limits.memory_bytes),
        source = size(MAX_SOURCE_BYTES as u64),
        output = size(limits.output_bytes),
    )
}
