//! The last listing of a server as a file, so that its tools can be shown and searched without starting it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use contract::json::measure;
use contract::limits::MAX_LISTED_VALUES;
use contract::tool::{Operation, Repeat, ToolSpec};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::listing::{Listing, Millis};
use super::status::LastFailure;
use crate::client::{Limits, MAX_SHOWN_CHARS, Offer, ServerSpec, Transport, plain_url, shown};

/// A file of another version is as good as none; the next listing writes one of this.
const VERSION: u64 = 2;

/// What a file may have beside the tools themselves.
const OVERHEAD_BYTES: u64 = 64 << 10;

/// Those of the tools, and what a file has for each tool and for itself beside what the server said.
const MAX_FILE_VALUES: usize = MAX_LISTED_VALUES + 16_000;

/// A file about what went wrong has three.
const MAX_TROUBLE_VALUES: usize = 100;

/// Where one server's listing is kept.
#[derive(Clone, Debug)]
pub(crate) struct CatalogFile {
    path: PathBuf,
    identity: String,
    server: String,
    trusted: bool,
    limits: Limits,
}

/// Why a file that is there is not used. The next listing writes another.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unread {
    #[error("the remembered list of its tools cannot be read")]
    Io(#[from] io::Error),
    #[error("the remembered list of its tools is longer than {0} bytes")]
    TooLong(u64),
    #[error("the remembered list of its tools has more than {0} JSON values")]
    TooManyValues(usize),
    #[error("the remembered list of its tools is not one that we wrote for it")]
    Other,
}

impl CatalogFile {
    /// The name says which server it is and nothing of its secrets: values of variables and headers, and what an
    /// address has before its host and after its path, are left out. Arguments say which server `npx` is, so they
    /// count; a hash does not give them away.
    pub(crate) fn of(folder: &Path, spec: &ServerSpec) -> Self {
        let said = match &spec.transport {
            Transport::Stdio { command, args, cwd, .. } => json!(["stdio", spec.name, command, args, cwd]),
            Transport::Http { url, .. } => json!(["http", spec.name, plain_url(url)]),
        };
        let identity: String =
            Sha256::digest(said.to_string()).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Self {
            path: folder.join(format!("{identity}.json")),
            identity,
            server: spec.name.clone(),
            trusted: spec.trusted,
            limits: spec.limits,
        }
    }

    /// What was last listed, judged by today's limits and trust like a server's own words; none where nothing was.
    pub(crate) fn read(&self) -> Result<Option<Listing>, Unread> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // Written compactly, a listing is hardly longer than it was on the wire.
        let most = (self.limits.total_bytes as u64).saturating_mul(2).saturating_add(OVERHEAD_BYTES);
        let mut text = String::new();
        file.take(most.saturating_add(1)).read_to_string(&mut text)?;
        if text.len() as u64 > most {
            return Err(Unread::TooLong(most));
        }
        if measure(text.as_bytes()).values > MAX_FILE_VALUES {
            return Err(Unread::TooManyValues(MAX_FILE_VALUES));
        }
        let read = contract::json::read(&text).map_err(|_| Unread::Other)?;
        if read.get("version").and_then(Value::as_u64).is_some_and(|version| version != VERSION) {
            return Ok(None);
        }
        self.judge(&read).ok_or(Unread::Other).map(Some)
    }

    /// What went wrong with it last; none where it worked since.
    pub(crate) fn read_trouble(&self) -> Option<LastFailure> {
        let mut text = String::new();
        File::open(self.trouble_path()).ok()?.take(OVERHEAD_BYTES).read_to_string(&mut text).ok()?;
        let is_small = measure(text.as_bytes()).values <= MAX_TROUBLE_VALUES;
        let read = is_small.then(|| contract::json::read(&text).ok()).flatten()?;
        let message = shown(read.get("message")?.as_str()?, MAX_SHOWN_CHARS);
        Some(LastFailure { at: read.get("at")?.as_i64()?, message, stderr: String::new() })
    }

    /// Without what the server wrote to its standard error: that may hold secrets.
    pub(crate) fn write_trouble(&self, trouble: &LastFailure) -> io::Result<()> {
        let text = json!({"at": trouble.at, "message": trouble.message}).to_string();
        self.put(&self.trouble_path(), &text)
    }

    /// It works.
    pub(crate) fn forget_trouble(&self) {
        drop(fs::remove_file(self.trouble_path()));
    }

    fn trouble_path(&self) -> PathBuf {
        self.path.with_extension("trouble")
    }

    fn judge(&self, read: &Value) -> Option<Listing> {
        let ours = read.get("version") == Some(&json!(VERSION))
            && read.get("identity") == Some(&json!(self.identity))
            && read.get("server") == Some(&json!(self.server));
        if !ours {
            return None;
        }
        let about = read.get("about").and_then(Value::as_str).map(|about| shown(about, MAX_SHOWN_CHARS).into());
        let mut offer = Offer::new(&self.server, self.trusted, &self.limits).saying(about);
        for tool in read.get("tools")?.as_array()? {
            offer.tool(tool).ok()?;
        }
        if read.get("resources") == Some(&Value::Bool(true)) {
            offer.resources();
        }
        if read.get("prompts") == Some(&Value::Bool(true)) {
            offer.prompts();
        }
        let listed_at: Millis = read.get("listedAt")?.as_i64()?;
        let tools = offer.tools.into_values().collect();
        Some(Listing { tools, left_out: offer.left_out, listed_at, remembered: true })
    }

    pub(crate) fn write(&self, listing: &Listing) -> io::Result<()> {
        self.put(&self.path, &self.text(listing))
    }

    /// Whole or not at all: whoever reads meanwhile has the one before.
    fn put(&self, path: &Path, text: &str) -> io::Result<()> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let folder = path.parent().unwrap_or(Path::new("."));
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let half = self.path.with_extension(format!("{}-{number}.half", std::process::id()));
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&half)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .and_then(|()| fs::rename(&half, path));
        if written.is_err() {
            // The first error is the one to tell of.
            drop(fs::remove_file(&half));
        }
        written
    }

    /// Tools as servers list them, so that reading is judging them again.
    fn text(&self, listing: &Listing) -> String {
        let has = |wanted: [Operation; 2]| listing.tools.iter().any(|tool| wanted.contains(&tool.operation));
        let tools: Vec<Value> =
            listing.tools.iter().filter(|tool| tool.operation == Operation::Tool).map(listed).collect();
        // The same for all that have it.
        let about = listing.tools.iter().find_map(|tool| tool.about_owner.as_deref());
        json!({
            "version": VERSION,
            "identity": self.identity,
            "server": self.server,
            "listedAt": listing.listed_at,
            "about": about,
            "resources": has([Operation::ListResources, Operation::ReadResource]),
            "prompts": has([Operation::ListPrompts, Operation::GetPrompt]),
            "tools": tools,
        })
        .to_string()
    }
}

fn listed(tool: &ToolSpec) -> Value {
    let mut listed = json!({
        "name": tool.id.name(),
        "description": tool.description,
        "inputSchema": tool.parameters,
    });
    let reads = match tool.repeat {
        Repeat::Always => Some(json!({"readOnlyHint": true})),
        Repeat::Never | Repeat::WithKey => None,
    };
    let more =
        [("title", tool.label.clone().map(Value::from)), ("outputSchema", tool.output.clone()), ("annotations", reads)];
    if let Some(object) = listed.as_object_mut() {
        object.extend(more.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
    }
    listed
}

#[cfg(test)]
mod tests;
