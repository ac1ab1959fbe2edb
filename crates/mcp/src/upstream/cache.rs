//! The file cache of a server's last tool list and last failure, so that its tools can be shown and searched without
//! starting the server.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use contract::json::measure;
use contract::limits::MAX_LISTED_VALUES;
use contract::tool::{Operation, Repeat, ToolHash, ToolId, ToolSpec};
use executor::ToolSource;
use executor::clock::now_ms;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use telemetry::{LogIgnored, Redactor};

use crate::client::{
    ConnectError, ConnectFailure, HintTrust, LeftOutTool, Limits, MAX_SHOWN_CHARS, Offer, Server, ServerSpec,
    Transport, plain_url, shown,
};

/// Unix time in milliseconds.
pub(crate) type Millis = i64;

/// The version of the file format. A file of another version is ignored and replaced by the next listing.
const VERSION: u64 = 3;

/// The maximum number of bytes that a file has in addition to the tools themselves.
const OVERHEAD_BYTES: u64 = 64 << 10;

/// The maximum number of JSON values in a file: those of the tools, and those that the format adds to them.
const MAX_FILE_VALUES: usize = MAX_LISTED_VALUES + 16_000;

/// The maximum number of JSON values in a failure file, which normally has four.
const MAX_FAILURE_VALUES: usize = 100;

/// The number of bytes of the hash that names a file.
const IDENTITY_BYTES: usize = 16;

/// The maximum number of lines of a server's standard error that `servers list --json` shows.
const STDERR_LINES: usize = 20;

/// A server's last tool listing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Listing {
    pub(crate) tools: Vec<ToolSpec>,
    pub(crate) left_out: Vec<LeftOutTool>,
    pub(crate) listed_at: Millis,
    /// Whether the listing was read from the cache file: this process has not received one from the server yet.
    pub(crate) remembered: bool,
}

impl Listing {
    /// Returns the hash of a tool's definition.
    pub(crate) fn definition_hash(&self, id: &ToolId) -> Option<ToolHash> {
        self.tools.iter().find(|tool| tool.id == *id).map(ToolSpec::hash)
    }
}

/// The last failure of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastFailure {
    pub at: Millis,
    pub message: String,
    /// The end of the server's standard error. It may contain the server's secrets and must never reach a cell.
    pub stderr: String,
    /// Whether the server was not ready in time. Such a failure takes long to find out again.
    pub timed_out: bool,
}

impl LastFailure {
    pub(super) fn new(message: String) -> Self {
        Self { at: now_ms(), message, stderr: String::new(), timed_out: false }
    }

    /// Describes a failed attempt to connect. The message does not contain the server's standard error.
    pub(super) fn of_connecting(error: &ConnectError) -> Self {
        let timed_out = matches!(error.why, ConnectFailure::Deadline(_));
        // Cells read it, and an invalid address in it may contain a secret.
        let message = Redactor::global().redact(&error.reason()).into_owned();
        Self { timed_out, stderr: error.stderr.clone(), ..Self::new(message) }
    }

    /// Returns the last lines of the server's standard error, without control characters.
    pub(super) fn last_lines(&self) -> Vec<String> {
        let lines: Vec<&str> = self.stderr.lines().collect();
        let skipped = lines.len().saturating_sub(STDERR_LINES);
        lines.into_iter().skip(skipped).map(|line| shown(line, MAX_SHOWN_CHARS)).collect()
    }
}

/// Caches the result of an attempt to connect (the tool list or the failure) for later commands that do not connect. The
/// caller has removed secrets from the error's standard error, whose end is stored with the failure. Errors are only
/// logged: without the cache, the next command connects to the server itself.
pub fn remember(folder: &Path, spec: &ServerSpec, connected: &Result<Arc<Server>, ConnectError>) {
    let file = CacheFile::of(folder, spec);
    match connected {
        Ok(server) => {
            let (tools, left_out) = (server.tools(), server.left_out());
            let listing = Listing { tools, left_out, listed_at: now_ms(), remembered: false };
            file.write(&listing).log_ignored("cache a server's tool list");
            file.remove_failure();
        }
        Err(error) => {
            file.write_failure(&LastFailure::of_connecting(error)).log_ignored("store a server's failure");
        }
    }
}

/// The cache file of one server, and beside it the file with its last failure.
#[derive(Clone, Debug)]
pub(crate) struct CacheFile {
    path: PathBuf,
    identity: String,
    server: String,
    hints: HintTrust,
    limits: Limits,
}

/// Why an existing file is not used. The next listing replaces it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CacheError {
    #[error("the cached tool list cannot be read")]
    Io(#[from] io::Error),
    #[error("the cached tool list is longer than {0} bytes")]
    TooLong(u64),
    #[error("the cached tool list has more than {0} JSON values")]
    TooManyValues(usize),
    #[error("the cached tool list is invalid or was written for another server")]
    Other,
}

impl CacheFile {
    /// Returns the cache file of a server. Its name is a hash that identifies the server. Secrets are left out of the
    /// hash: values of variables and headers, and the user and query parts of a URL. Arguments are included, because
    /// they tell which server `npx` starts; the hash does not reveal them.
    pub(crate) fn of(folder: &Path, spec: &ServerSpec) -> Self {
        let parts = match &spec.transport {
            Transport::Stdio { command, args, cwd, .. } => json!(["stdio", spec.name, command, args, cwd]),
            Transport::Http { url, .. } => json!(["http", spec.name, plain_url(url)]),
        };
        let hash = Sha256::digest(parts.to_string());
        let identity = hex::encode(hash.get(..IDENTITY_BYTES).unwrap_or(&hash));
        Self {
            path: folder.join(format!("{identity}.json")),
            identity,
            server: spec.name.clone(),
            hints: spec.hint_trust(),
            limits: spec.limits,
        }
    }

    /// Reads the last listing and validates it like one from the server, with the current limits and trust. Returns
    /// `None` if there is no file, or its format has another version.
    pub(crate) fn read(&self) -> Result<Option<Listing>, CacheError> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // The limit applies to the tools as the server lists them. In the file they are about as long, because both are
        // compact JSON; the factor of two leaves room for differences.
        let max = (self.limits.total_bytes as u64).saturating_mul(2).saturating_add(OVERHEAD_BYTES);
        let mut text = String::new();
        file.take(max.saturating_add(1)).read_to_string(&mut text)?;
        if text.len() as u64 > max {
            return Err(CacheError::TooLong(max));
        }
        if measure(text.as_bytes()).values > MAX_FILE_VALUES {
            return Err(CacheError::TooManyValues(MAX_FILE_VALUES));
        }
        let read = contract::json::read(&text).map_err(|_| CacheError::Other)?;
        if read.get("version").and_then(Value::as_u64).is_some_and(|version| version != VERSION) {
            return Ok(None);
        }
        self.validate(&read).ok_or(CacheError::Other).map(Some)
    }

    /// Returns the server's last failure, or `None` if it has worked since.
    pub(crate) fn read_failure(&self) -> Option<LastFailure> {
        let mut text = String::new();
        File::open(self.failure_path()).ok()?.take(OVERHEAD_BYTES).read_to_string(&mut text).ok()?;
        let is_small = measure(text.as_bytes()).values <= MAX_FAILURE_VALUES;
        let read = is_small.then(|| contract::json::read(&text).ok()).flatten()?;
        let message = shown(read.get("message")?.as_str()?, MAX_SHOWN_CHARS);
        let timed_out = read.get("timedOut").and_then(Value::as_bool).unwrap_or(false);
        let stderr = read.get("stderr").and_then(Value::as_str).unwrap_or_default();
        let stderr = process::excerpt(stderr).join("\n");
        Some(LastFailure { at: read.get("at")?.as_i64()?, message, stderr, timed_out })
    }

    /// Stores the last failure, with the end of the server's standard error. The caller has removed secrets from it, or
    /// leaves it out.
    pub(crate) fn write_failure(&self, failure: &LastFailure) -> io::Result<()> {
        let LastFailure { at, message, stderr, timed_out } = failure;
        let stderr = process::excerpt(stderr).join("\n");
        let text = json!({"at": at, "message": message, "timedOut": timed_out, "stderr": stderr}).to_string();
        self.put(&self.failure_path(), &text)
    }

    /// Deletes the stored failure, because the server works again.
    pub(crate) fn remove_failure(&self) {
        remove_if_present(&self.failure_path());
    }

    fn failure_path(&self) -> PathBuf {
        self.path.with_extension("trouble")
    }

    fn validate(&self, read: &Value) -> Option<Listing> {
        let header_matches = read.get("version") == Some(&json!(VERSION))
            && read.get("identity") == Some(&json!(self.identity))
            && read.get("server") == Some(&json!(self.server));
        if !header_matches {
            return None;
        }
        let about = read.get("about").and_then(Value::as_str).map(|about| shown(about, MAX_SHOWN_CHARS).into());
        let mut offer = Offer::new(&self.server, self.hints, &self.limits).with_instructions(about);
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
        let temporary = self.path.with_extension(format!("{}-{number}.half", std::process::id()));
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .and_then(|()| fs::rename(&temporary, path));
        if written.is_err() {
            // An error here is only logged: the caller gets the first one.
            remove_if_present(&temporary);
        }
        written
    }

    /// Returns the file's content. Tools are written as in a response to `tools/list`, so that [`CacheFile::read`] can
    /// validate them with the same code.
    fn text(&self, listing: &Listing) -> String {
        let has = |wanted: [Operation; 2]| listing.tools.iter().any(|tool| wanted.contains(&tool.operation));
        let tools: Vec<Value> =
            listing.tools.iter().filter(|tool| tool.operation == Operation::Tool).map(listed).collect();
        // The server's instructions: the same text in every tool that has one.
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

/// Deletes a file that may not exist. Any other error is logged.
fn remove_if_present(path: &Path) {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        removed => removed.log_ignored("delete a cache file"),
    }
}

/// Returns a tool as in a response to `tools/list`.
fn listed(tool: &ToolSpec) -> Value {
    let mut listed = json!({
        "name": tool.id.name(),
        "description": tool.description,
        "inputSchema": tool.parameters,
    });
    // The declaration is kept even if it is not believed: the user may trust the server later.
    let annotations = match tool.declared_repeat {
        Repeat::Always => Some(json!({"readOnlyHint": true})),
        Repeat::Additive => Some(json!({"idempotentHint": true, "destructiveHint": false})),
        Repeat::Never | Repeat::WithKey => None,
    };
    let more = [
        ("title", tool.label.clone().map(Value::from)),
        ("outputSchema", tool.output.clone()),
        ("annotations", annotations),
    ];
    if let Some(object) = listed.as_object_mut() {
        object.extend(more.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
    }
    listed
}

#[cfg(test)]
mod tests;
