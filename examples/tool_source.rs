//! A source of tools that are not known in advance: each file of a folder becomes a tool that returns its text.
//!
//! ```text
//! tool_source FOLDER
//! ```

use std::path::PathBuf;

use cellmate::source::{
    AuthorizedCall, CallFuture, Dispatch, Outcome, Repeat, ToolId, ToolResult, ToolSource, ToolSpec,
};
use cellmate::{Cellmate, Error, Scope, json};

/// The cell, which a model would write.
const CELL: &str = r#"
const notes = await tools.search("note")
const texts = await Promise.all(notes.map((note) => tools.call(note.id, {})))
return texts.sort()
"#;

/// The files of a folder, as tools.
#[derive(Debug)]
struct Notes {
    folder: PathBuf,
}

impl ToolSource for Notes {
    /// Called for each agent run, so the tools are those of that moment.
    fn tools(&self) -> Vec<ToolSpec> {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let spec = |entry: std::fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            // A file whose name cannot be part of an id is left out.
            let id = ToolId::parse(&format!("plugin:notes:{name}")).ok()?;
            let schema = json!({"type": "object", "properties": {}, "additionalProperties": false});
            let spec = ToolSpec::new(id, format!("Returns the text of the note {name}."), schema);
            Some(ToolSpec { repeat: Repeat::Always, declared_repeat: Repeat::Always, ..spec })
        };
        entries.filter_map(spec).collect()
    }

    fn call(&self, call: AuthorizedCall) -> CallFuture<'_> {
        Box::pin(async move {
            Dispatch::Settled(match std::fs::read_to_string(self.folder.join(call.id().name())) {
                Ok(text) => Outcome::Returned(ToolResult::text(text)),
                // The model reads this message, so it does not contain the path.
                Err(_) => Outcome::Failed("the note cannot be read; search again for those that exist".to_owned()),
            })
        })
    }
}

fn main() -> cellmate::Result<()> {
    cellmate::worker_main();
    let folder = std::env::args_os().nth(1).ok_or_else(|| Error::other("tool_source FOLDER"))?;
    cellmate::block_on(async {
        let host = Cellmate::builder().source(Notes { folder: folder.into() }).build().await?;
        let result = host.run(Scope::agent("reader").session("notes"))?.exec("call-1", CELL).await;
        println!("{}", serde_json::to_string(&result)?);
        host.shut_down().await
    })
}
