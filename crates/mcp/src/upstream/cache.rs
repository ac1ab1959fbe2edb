//! Caches a server's last tool listing in a file, so that its tools can be shown and searched without starting it.

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

/// The version of the file format. A file of another version is ignored and replaced by the next listing.
const VERSION: u64 = 2;

/// The size that a file may have beyond the tools themselves.
const OVERHEAD_BYTES: u64 = 64 << 10;

/// The maximum number of JSON values in a file: those of the tools, and those that the format adds to them.
const MAX_FILE_VALUES: usize = MAX_LISTED_VALUES + 16_000;

/// The maximum number of JSON values in a failure file, which normally has three.
const MAX_TROUBLE_VALUES: usize = 100;

/// The cache file of one server.
#[derive(Clone, Debug)]
pub(crate) struct CatalogFile {
    path: PathBuf,
    identity: String,
    server: String,
    trusted: bool,
    limits: Limits,
}

/// Why an existing file is not used. The next listing replaces it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unread {
    #[error("the cached tool list cannot be read")]
    Io(#[from] io::Error),
    #[error("the cached tool list is longer than {0} bytes")]
    TooLong(u64),
    #[error("the cached tool list has more than {0} JSON values")]
    TooManyValues(usize),
    #[error("the cached tool list is invalid or was written for another server")]
    Other,
}

impl CatalogFile {
    /// Returns the cache file of a server. Its name is a hash that identifies the server. Secrets are left out of the
    /// hash: values of variables and headers, and the user and query parts of a URL. Arguments are included, because
    /// they tell which server `npx` starts; the hash does not reveal them.
    pub(crate) fn of(folder: &Path, spec: &ServerSpec) -> Self {
        let parts = match &spec.transport {
            Transport::Stdio { command, args, cwd, .. } => json!(["stdio", spec.name, command, args, cwd]),
            Transport::Http { url, .. } => json!(["http", spec.name, plain_url(url)]),
        };
        let identity: String =
            Sha256::digest(parts.to_string()).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Self {
            path: folder.join(format!("{identity}.json")),
            identity,
            server: spec.name.clone(),
            trusted: spec.trusted,
            limits: spec.limits,
        }
    }

    /// Reads the last listing and checks it against the current limits and trust, like a listing from the server.
    /// Returns `None` if there is no file of this version.
    pub(crate) fn read(&self) -> Result<Option<Listing>, Unread> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // A listing is written compactly, so it is hardly longer than it was on the wire.
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

    /// Returns the server's last failure, or `None` if it has worked since.
    pub(crate) fn read_trouble(&self) -> Option<LastFailure> {
        let mut text = String::new();
        File::open(self.trouble_path()).ok()?.take(OVERHEAD_BYTES).read_to_string(&mut text).ok()?;
        let is_small = measure(text.as_bytes()).values <= MAX_TROUBLE_VALUES;
        let read = is_small.then(|| contract::json::read(&text).ok()).flatten()?;
        let message = shown(read.get("message")?.as_str()?, MAX_SHOWN_CHARS);
        Some(LastFailure { at: read.get("at")?.as_i64()?, message, stderr: String::new() })
    }

    /// Stores the last failure without the server's standard error, which may contain secrets.
    pub(crate) fn write_trouble(&self, trouble: &LastFailure) -> io::Result<()> {
        let text = json!({"at": trouble.at, "message": trouble.message}).to_string();
        self.put(&self.trouble_path(), &text)
    }

    /// Deletes the stored failure, because the server works again.
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

    /// Replaces a file atomically: a concurrent reader sees the old content or the new one.
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
            // The first error is the one that is reported.
            drop(fs::remove_file(&half));
        }
        written
    }

    /// Returns the file's content. It has the tools in the form in which servers list them, so that reading the file
    /// applies the same checks.
    fn text(&self, listing: &Listing) -> String {
        let has = |wanted: [Operation; 2]| listing.tools.iter().any(|tool| wanted.contains(&tool.operation));
        let tools: Vec<Value> =
            listing.tools.iter().filter(|tool| tool.operation == Operation::Tool).map(listed).collect();
        // All tools that have it share one text.
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
