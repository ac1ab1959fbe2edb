//! `cellmate tools show`: shows how a tool is called.

use std::process::ExitCode;

use clap::Args;
use client_config::{ServerEntry, display};
use contract::text;
use contract::tool::{Repeat, Source, ToolId, ToolSpec};
use serde_json::{Value, json};

use super::names::{self, NamedOwner, short_name};
use super::run::{ListSource, Ready, RunArguments, RunOptions};
use crate::render;

/// The longest title and line of text that is printed.
const MAX_LINE_CHARS: usize = 1_000;

#[derive(Debug, Args)]
pub(super) struct ShowArguments {
    /// Tool to show: `SERVER.TOOL`, `MCP.SERVER.TOOL`, its id (`mcp:SERVER:TOOL`, `plugin:PLUGIN:TOOL`,
    /// `openclaw:core:TOOL`), or its own name if only one tool has it.
    tool: String,
    #[command(flatten)]
    lists: ListSource,
    #[command(flatten)]
    run: RunArguments,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(arguments: &ShowArguments) -> Result<ExitCode, String> {
    let loaded = arguments.run.loaded()?;
    let owner = names::named_owner(&loaded, &arguments.tool, &arguments.run.places())?;
    let servers: Vec<ServerEntry> = match owner {
        NamedOwner::Server(server) => vec![server.clone()],
        NamedOwner::Local | NamedOwner::NoServer(_) => Vec::new(),
        NamedOwner::Any => loaded.servers.iter().filter(|server| server.enabled).cloned().collect(),
    };
    let ready = arguments.run.ready(&loaded, servers, arguments.lists, RunOptions::default()).await?;
    ready.note_provider();
    let tool = match (ready.find(&arguments.tool, &arguments.run.places()), owner) {
        (Ok(tool), _) => tool,
        (Err(_), NamedOwner::NoServer(message)) => return Err(message),
        (Err(message), _) => {
            ready.report();
            return if ready.all_started() { Err(message) } else { Ok(render::failed(&message)) };
        }
    };
    let shown = ShownTool::of(&ready, tool);
    if arguments.json {
        render::print_json(&shown.to_json())
    } else {
        render::print(&shown.readable())
    }
    ready.report();
    Ok(ExitCode::SUCCESS)
}

/// Everything that helps to call a tool.
struct ShownTool<'a> {
    tool: &'a ToolSpec,
    /// The expression that calls the tool in a cell.
    call: Option<String>,
    signature: String,
    /// The tool's TypeScript declaration.
    declaration: Option<String>,
    asks: bool,
    read_only: ReadOnly,
}

/// Whether the tool's source declares that it only reads, and whether that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadOnly {
    /// The source declares it, and is trusted.
    Yes,
    /// The source declares it, but is not trusted.
    Declared,
    /// The tool adds something and destroys nothing, as its source declares, which is trusted.
    Adds,
    No,
}

impl ReadOnly {
    fn of(tool: &ToolSpec) -> Self {
        match (tool.repeat, tool.declared_repeat) {
            (Repeat::Always, _) => Self::Yes,
            (Repeat::Additive, _) => Self::Adds,
            (_, Repeat::Always) => Self::Declared,
            (Repeat::Never | Repeat::WithKey, _) => Self::No,
        }
    }

    fn text(self, source: Source) -> &'static str {
        match (self, source) {
            (Self::Yes, Source::Mcp) => "yes, as its trusted server declares",
            (Self::Yes, Source::Plugin) => "yes, as its plugin declares",
            (Self::Yes, Source::Openclaw) => "yes, as Cellmate declares",
            (Self::Yes, Source::Client) => "yes, as its client declares",
            (Self::Declared, Source::Mcp) => "its server declares it, but is not trusted",
            (Self::Declared, Source::Plugin | Source::Openclaw | Source::Client) => {
                "its source declares it, but is not trusted"
            }
            (Self::Adds, _) => "no, but it adds something once and destroys nothing, as its source declares",
            (Self::No, _) => "no",
        }
    }
}

/// Returns the line that says whose tool it is.
fn source_line(id: &ToolId) -> String {
    let owner = display::plain(id.owner());
    match id.source() {
        Source::Mcp => format!("server     {owner}"),
        Source::Plugin => format!("source     plugin {owner}"),
        Source::Openclaw => format!("source     {owner}"),
        Source::Client => format!("source     client {owner}"),
    }
}

impl<'a> ShownTool<'a> {
    fn of(ready: &Ready, tool: &'a ToolSpec) -> Self {
        let call = ready.catalog().called(tool);
        // The expression is `MCP.<server>.<path>`; the declaration is found by both parts.
        let parts = call.as_deref().and_then(|call| call.strip_prefix("MCP.")?.split_once('.'));
        let api = parts.and_then(|(server, path)| {
            ready.catalog().mcp_server_api(server, Some(path), catalog::ApiSchemas::Omitted)
        });
        let declaration = api.and_then(|api| api.get("header")?.as_str().map(str::to_owned));
        Self {
            tool,
            declaration,
            signature: ready.catalog().signature(tool),
            asks: ready.asks_about(&tool.id),
            read_only: ReadOnly::of(tool),
            call,
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "id": self.tool.id.as_str(),
            "source": self.tool.id.source().as_str(),
            "server": (self.tool.id.source() == Source::Mcp).then(|| self.tool.id.owner()),
            "name": self.tool.id.name(),
            "label": self.tool.label,
            "description": self.tool.description,
            "call": self.call,
            "signature": self.signature,
            "declaration": self.declaration,
            "asks": self.asks,
            "readOnly": self.read_only == ReadOnly::Yes,
            "readOnlyHint": matches!(self.read_only, ReadOnly::Yes | ReadOnly::Declared),
            "parameters": self.tool.parameters,
            "output": self.tool.output,
        })
    }

    fn readable(&self) -> String {
        let line = |text: &str| text::line(text, MAX_LINE_CHARS);
        let name = short_name(&self.tool.id);
        let title = self.tool.label.as_deref().map(|label| format!("  ({})", line(label))).unwrap_or_default();
        let mut text = format!("{name}{title}\n");
        for row in self.tool.description.lines() {
            text += &format!("  {}\n", render::printable(row));
        }
        text += &format!("\nid         {}\n", display::plain(self.tool.id.as_str()));
        text += &format!("{}\n", source_line(&self.tool.id));
        text += &format!("asks       {}\n", if self.asks { "yes, before each call" } else { "no" });
        text += &format!("read-only  {}\n", self.read_only.text(self.tool.id.source()));
        let named = display::for_shell(&name);
        text += &format!("call       cellmate tools call {named} NAME=VALUE…\n");
        if let Some(call) = &self.call {
            text += &format!("in a cell  await {}({})\n", display::plain(call), line(&self.signature));
        }
        if let Some(declaration) = &self.declaration {
            text += &section("declaration", declaration);
        }
        text += &section("input schema", &render::pretty(&self.tool.parameters.to_string()));
        if let Some(output) = &self.tool.output {
            text += &section("output schema", &render::pretty(&output.to_string()));
        }
        text
    }
}

/// Returns text under a heading, indented, so that it cannot pass for a heading.
fn section(heading: &str, text: &str) -> String {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let lines: String = lines.map(|line| format!("  {}\n", render::printable(line))).collect();
    format!("\n{heading}:\n{lines}")
}

#[cfg(test)]
mod tests {
    use contract::tool::{Repeat, ToolId, ToolSpec};
    use serde_json::json;

    use super::ReadOnly;

    #[test]
    fn a_read_only_declaration_counts_only_from_a_trusted_server() {
        let tool = |repeat, declared_repeat| {
            let id = ToolId::parse("mcp:s:t").unwrap();
            ReadOnly::of(&ToolSpec { repeat, declared_repeat, ..ToolSpec::new(id, "", json!({})) })
        };
        assert_eq!(tool(Repeat::Always, Repeat::Always), ReadOnly::Yes);
        assert_eq!(tool(Repeat::Never, Repeat::Always), ReadOnly::Declared);
        assert_eq!(tool(Repeat::Additive, Repeat::Additive), ReadOnly::Adds);
        assert_eq!(tool(Repeat::Never, Repeat::Additive), ReadOnly::No);
        assert_eq!(tool(Repeat::Never, Repeat::Never), ReadOnly::No);
    }
}
