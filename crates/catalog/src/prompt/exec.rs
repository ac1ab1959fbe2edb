//! The description of `exec`: how to write a cell, and what it finds there.

use contract::cell::Language;
use contract::config::{CodeMode, Languages};
use contract::limits::{MAX_CONTROL_DESCRIPTION_BYTES, MAX_OUTSTANDING_CALLS, MAX_SOURCE_BYTES};

use super::amount::{count, size, time};
use super::namespaces;
use crate::Catalog;
use crate::text::cut;

/// An ordinary tool here, and what a model that wants a shell is looking for.
const SHELL: &str = "openclaw:core:exec";

pub fn exec(config: &CodeMode, catalog: &Catalog) -> String {
    let mut sections = vec![program(config.languages), tools(config, catalog), world(), language(config, catalog)];
    sections.push(limits(config));
    sections.extend(namespaces::block(catalog));
    // Every section has its own bound; this one is for whoever changes them.
    cut(sections.join("\n\n"), MAX_CONTROL_DESCRIPTION_BYTES)
}

fn program(languages: Languages) -> String {
    format!(
        "\
Runs one {} program, called a cell, and returns {{ status, value, output, telemetry }}; the status is \"completed\", \
\"waiting\" or \"failed\".
A cell is the body of an async function: `await` and `return` work at its top level. Only `return` passes a value \
back; a cell without it completes with the value null. `text(value)`, `json(value)` and `console.log(…)` add to \
`output` in order. Values have to be JSON.",
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
{number} can be found, read and called from inside the cell:
  const hits = await tools.search(\"read a file\");
  return await tools.call(hits[0].id, {{ path: \"README.md\" }}); // hits[0].signature says what it takes
`await tools.describe(id)` has the whole JSON Schema of its input, as `parameters`.
A search gives at most {default} tools, or {{ limit }} up to {max}. `ALL_TOOLS` has the id, name and description of \
every one. `tools.<name>(input)` calls a tool whose name is a plain identifier that no other has.
A call resolves to the tool's data where it has any, else to its text. A failed call rejects; catch it where the \
cell can go on. Start calls that do not need each other's results together, with Promise.all: {pending} run at once, \
the rest queue, and {outstanding} may be outstanding.",
        number = count(number, "tool"),
        default = config.search.default,
        max = config.search.max,
        pending = config.limits.pending_calls,
        outstanding = MAX_OUTSTANDING_CALLS,
    )
}

fn world() -> String {
    "\
There are no modules, `import` or `require`, no Node built-ins, files, network, processes or environment: the \
outside is reached through tools. There are setTimeout and clearTimeout (no setInterval), TextEncoder, TextDecoder, \
structuredClone, atob, btoa and URL. The clock stands still while code runs and moves when a call or a timer \
settles, so to let time pass, await a timer."
        .to_owned()
}

fn language(config: &CodeMode, catalog: &Catalog) -> String {
    let choice = match (config.languages.allow(Language::JavaScript), config.languages.allow(Language::TypeScript)) {
        (true, true) => "\"javascript\", the default, or \"typescript\", whose types are erased and not checked",
        (false, true) => "\"typescript\" and has to be given; types are erased and not checked",
        (true, false) | (false, false) => "\"javascript\"",
    };
    let shell = match catalog.get(SHELL) {
        Some(_) => format!("This is no shell; commands go through tools.call(\"{SHELL}\", input)."),
        None => "This is no shell and runs no commands.".to_owned(),
    };
    format!("`language` is {choice}. It is never \"bash\" or \"shell\". {shell}")
}

fn limits(config: &CodeMode) -> String {
    let limits = &config.limits;
    format!(
        "\
One `exec` takes at most {time}: code that still runs then fails with `timeout`; calls still pending then make the \
status \"waiting\", and `wait` with the result's `runId` goes on. `await yield_control(reason)` does the same at \
once, to show what there is so far. Memory: {memory}. Source: {source}. Value and output together: {output}, so \
return what you need and not all you have read. A failed cell's `error` says where, as line:column, and keeps the \
output made before.",
        time = time(limits.timeout_ms),
        memory = size(limits.memory_bytes),
        source = size(MAX_SOURCE_BYTES as u64),
        output = size(limits.output_bytes),
    )
}
