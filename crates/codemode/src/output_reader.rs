//! Reads stored outputs for a run: the replies to the guest's `output` object, what tool calls refer to, and images that
//! are shown again.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use contract::cell::OutputItem;
use contract::frame::ReplyValue;
use contract::ids::{OutputHandle, RunId};
use contract::json;
use contract::limits::{
    Limits, MAX_BRIDGE_VALUE_BYTES, MAX_BRIDGE_VALUE_DEPTH, MAX_JSON_VALUES, MAX_LISTED_OUTPUTS, MAX_PAGE_UNITS,
};
use contract::scope::Scope;
use executor::{DataBudgetError, Journal, JournalFull, Reservation, RunDataBudget, internal_message};
use parking_lot::Mutex;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use store::{OutputKind, OutputPiece, OutputPosition, OutputRow, SessionKey, Store, StoreError};

use crate::bridge;
use crate::output::{
    Content, Grep, Lines, OutputRequest, Page, Selection, escaped_bytes, handles, media_of, not_shown, resolve,
};

/// What a run remembers of the outputs that it has read, so that it need not query the store for every page.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadCache(Arc<Mutex<CachedReads>>);

#[derive(Debug, Default)]
struct CachedReads {
    /// The ids of other runs whose outputs the run may read.
    readable: HashSet<RunId>,
    /// The output that was read last.
    row: Option<OutputRow>,
    /// The piece of a text that was read last. Pages are often smaller, and read in sequence.
    piece: Option<CachedPiece>,
}

#[derive(Debug)]
struct CachedPiece {
    handle: OutputHandle,
    piece: Arc<OutputPiece>,
    /// The position in the text after the piece, in UTF-16 units.
    end_unit: u64,
    _held: Reservation,
}

impl ReadCache {
    fn row(&self, handle: &OutputHandle) -> Option<OutputRow> {
        self.0.lock().row.as_ref().filter(|row| row.handle == *handle).cloned()
    }

    fn piece(&self, handle: &OutputHandle, position: OutputPosition) -> Option<Arc<OutputPiece>> {
        let remembered = self.0.lock();
        let last = remembered.piece.as_ref().filter(|last| last.handle == *handle)?;
        let is_inside = match position {
            OutputPosition::Unit(unit) => (last.piece.start_unit..last.end_unit).contains(&unit),
            OutputPosition::Byte(byte) => {
                byte.checked_sub(last.piece.start_byte).is_some_and(|byte| byte < last.piece.data.len() as u64)
            }
            OutputPosition::Line(_) => false,
        };
        is_inside.then(|| Arc::clone(&last.piece))
    }

    fn forget(&self) {
        let mut remembered = self.0.lock();
        (remembered.row, remembered.piece) = (None, None);
    }
}

/// Reads stored outputs for a run.
#[derive(Clone, Debug)]
pub(crate) struct OutputReader {
    pub(crate) journal: Arc<Journal>,
    pub(crate) scope: Arc<Scope>,
    pub(crate) cache: ReadCache,
    pub(crate) data: RunDataBudget,
}

/// Why an output cannot be read. The message is for the cell.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("there is no stored output `{0}` in this session; `await output.list()` lists those that there are")]
    Unknown(String),
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    TooLarge(String),
    #[error(transparent)]
    Memory(#[from] DataBudgetError),
    #[error(transparent)]
    Journal(#[from] JournalFull),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ReadError {
    pub(crate) fn reply(&self, target: &str) -> ReplyValue {
        let code = match self {
            Self::Unknown(_) => "unknown_output",
            Self::Invalid(_) => "invalid_input",
            Self::TooLarge(_) => "value_too_large",
            Self::Memory(refused) => refused.code(),
            Self::Journal(full) => full.code(),
            Self::Store(error) => {
                let message =
                    internal_message("read a stored output", error, "the store is unavailable; try again later");
                return bridge::reject_with_code("internal_error", &message, target);
            }
        };
        bridge::reject_with_code(code, &self.to_string(), target)
    }
}

/// Whether the arguments of a tool call may refer to stored outputs.
pub(crate) fn may_refer(payload: &[u8]) -> bool {
    memchr::memmem::find(payload, b"\"$handle\"").is_some()
}

impl OutputReader {
    fn store(&self) -> &Store {
        self.journal.store()
    }

    /// Returns an output that the run may read. Outputs of other sessions are like those that do not exist.
    async fn row(&self, handle: &OutputHandle) -> Result<OutputRow, ReadError> {
        let unknown = || ReadError::Unknown(handle.chars().take(MAX_SHOWN_CHARS).collect());
        let (run_id, _) = handle.parts().ok_or_else(unknown)?;
        if let Some(row) = self.cache.row(handle) {
            return Ok(row);
        }
        let is_own = run_id == *self.journal.run_id();
        if !is_own && !self.cache.0.lock().readable.contains(&run_id) {
            let row = self.store().run(&run_id).await?.ok_or_else(unknown)?;
            if row.scope.agent_id != self.scope.agent_id || row.scope.session_id != self.scope.session_id {
                return Err(unknown());
            }
            self.cache.0.lock().readable.insert(run_id);
        }
        let mut row = self.store().output(handle).await?;
        // An output of this run may be part of its next commit.
        if row.is_none() && is_own && self.journal.flush().await.is_ok() {
            row = self.store().output(handle).await?;
        }
        let row = row.ok_or_else(unknown)?;
        self.cache.0.lock().row = Some(row.clone());
        Ok(row)
    }

    /// Returns the piece of a text at this position, which must be inside the text.
    async fn text_piece(&self, row: &OutputRow, position: OutputPosition) -> Result<Arc<OutputPiece>, ReadError> {
        if let Some(piece) = self.cache.piece(&row.handle, position) {
            return Ok(piece);
        }
        let Some(piece) = self.store().output_piece(&row.handle, position).await? else {
            // It was removed after its row was read.
            self.cache.forget();
            return Err(ReadError::Unknown(row.handle.as_str().to_owned()));
        };
        let piece = Arc::new(piece);
        let text = text_of(&piece)?;
        let units = if text.is_ascii() { text.len() } else { text.chars().map(char::len_utf16).sum() } as u64;
        // Without memory for it, the piece is read again for the next page.
        let remembered = self.data.reserve(piece.data.len(), 0).ok().map(|held| CachedPiece {
            handle: row.handle.clone(),
            end_unit: piece.start_unit + units,
            piece: Arc::clone(&piece),
            _held: held,
        });
        self.cache.0.lock().piece = remembered;
        Ok(piece)
    }

    /// Loads the images and sounds that the cell output by their handles.
    pub(crate) async fn with_references(&self, mut output: Vec<OutputItem>, limits: Limits) -> Vec<OutputItem> {
        let (mut blocks, mut bytes) = (limits.media_blocks, limits.media_bytes);
        for item in &mut output {
            let Some(media) = media_of(item).filter(|media| media.is_reference()) else { continue };
            let Some(handle) = media.handle.clone() else { continue };
            let row = match self.row(&handle).await {
                Ok(row) if matches!(row.kind, OutputKind::Image | OutputKind::Audio) => row,
                Ok(_) => {
                    *item = OutputItem::Text {
                        text: format!("[`{handle}` is not an image or a sound, so it is not shown]"),
                    };
                    continue;
                }
                Err(error) => {
                    *item = OutputItem::Text { text: format!("[an image or a sound is not shown: {error}]") };
                    continue;
                }
            };
            let mime_type = row.mime_type.clone().unwrap_or_default();
            if blocks == 0 || row.bytes > bytes {
                *item = not_shown(row.kind.as_str(), &mime_type, row.bytes, handle);
                continue;
            }
            blocks -= 1;
            bytes -= row.bytes;
            match read_whole(self.store(), &handle).await {
                Ok(data) => (media.mime_type, media.data) = (mime_type, data.into()),
                Err(error) => {
                    tracing::warn!(%error, handle = handle.as_str(), "cannot load an image for a result");
                    *item = OutputItem::Text { text: format!("[`{handle}` could not be loaded; try again]") };
                }
            }
        }
        output
    }

    /// Carries out a call, and returns the reply as JSON with the reservation for its memory.
    pub(crate) async fn answer(&self, request: OutputRequest) -> Result<(Vec<u8>, Reservation), ReadError> {
        let reply = match request {
            OutputRequest::List => self.list().await?,
            OutputRequest::Of(handle, selection) => {
                let row = self.row(&handle).await?;
                let is_text = row.kind.is_text();
                match selection {
                    Selection::Page { offset, length } if is_text => to_json(&self.page(&row, offset, length).await?),
                    Selection::Page { offset, length } => to_json(&self.base64_page(&row, offset, length).await?),
                    Selection::Json if is_text => self.json(&row).await?,
                    Selection::Lines { from, count } if is_text => to_json(&self.lines(&row, from, count).await?),
                    Selection::Matches { pattern, case, limit } if is_text => {
                        let grep = Grep::new(&pattern, case, limit).map_err(ReadError::Invalid)?;
                        self.grep(&row, grep).await?
                    }
                    Selection::Json | Selection::Lines { .. } | Selection::Matches { .. } => {
                        let kind = row.kind.as_str();
                        let message = format!("`{handle}` is {kind} data, not text; output.read returns it as base64");
                        return Err(ReadError::Invalid(message));
                    }
                }
            }
        };
        if reply.len() > MAX_BRIDGE_VALUE_BYTES {
            let message = format!(
                "the result has {} bytes as JSON, but at most {MAX_BRIDGE_VALUE_BYTES} fit in a reply; read less at once",
                reply.len()
            );
            return Err(ReadError::TooLarge(message));
        }
        let held = self.data.reserve(reply.len(), 0)?;
        Ok((reply, held))
    }

    async fn list(&self) -> Result<Vec<u8>, ReadError> {
        let limit = u32::try_from(MAX_LISTED_OUTPUTS).unwrap_or(u32::MAX);
        let rows = self.store().outputs_of_session(&SessionKey::from(self.scope.as_ref()), limit).await?;
        Ok(to_json(&rows.iter().map(listed).collect::<Vec<_>>()))
    }

    async fn page(&self, row: &OutputRow, offset: u64, length: u64) -> Result<String, ReadError> {
        // A UTF-16 unit is at most three bytes of UTF-8.
        let _held = self.data.reserve(bounded(row, length.saturating_mul(3)), 0)?;
        let mut page = Page::new(offset, length);
        let (mut position, mut is_inside) = (OutputPosition::Unit(offset), offset < row.units);
        while is_inside && !page.is_complete() {
            let piece = self.text_piece(row, position).await?;
            page.push(piece.start_unit, text_of(&piece)?);
            let end = piece.start_byte + piece.data.len() as u64;
            (position, is_inside) = (OutputPosition::Byte(end), end < row.bytes);
        }
        Ok(page.into_text())
    }

    async fn base64_page(&self, row: &OutputRow, offset: u64, length: u64) -> Result<String, ReadError> {
        let _held = self.data.reserve(bounded(row, length), 0)?;
        let end = offset.saturating_add(length).min(row.bytes);
        let (mut data, mut at) = (Vec::new(), offset);
        while at < end {
            let Some(piece) = self.store().output_piece(&row.handle, OutputPosition::Byte(at)).await? else { break };
            let index = |byte: u64| usize::try_from(byte.saturating_sub(piece.start_byte)).unwrap_or(usize::MAX);
            data.extend_from_slice(piece.data.get(index(at)..index(end).min(piece.data.len())).unwrap_or_default());
            at = piece.start_byte + piece.data.len() as u64;
        }
        Ok(BASE64_STANDARD.encode(data))
    }

    async fn lines(&self, row: &OutputRow, from: u64, count: usize) -> Result<Vec<String>, ReadError> {
        let _held = self.data.reserve(bounded(row, MAX_PAGE_UNITS as u64), 0)?;
        let store = self.store();
        let mut next = store.output_piece(&row.handle, OutputPosition::Line(from)).await?;
        // The line may have begun in the piece before.
        while let Some(piece) = next.as_ref().filter(|piece| piece.start_line >= from && piece.start_byte > 0) {
            next = store.output_piece(&row.handle, OutputPosition::Byte(piece.start_byte - 1)).await?;
        }
        let Some(first) = &next else { return Ok(Vec::new()) };
        let mut lines = Lines::new(first.start_line, from, count);
        while let Some(piece) = next.filter(|_| !lines.is_complete()) {
            lines.push(text_of(&piece)?).map_err(|long| {
                ReadError::TooLarge(format!(
                    "the lines are longer than {MAX_PAGE_UNITS} bytes, from line {} on; ask for fewer lines, or for a part \
                     of the text with output.read",
                    long.line
                ))
            })?;
            next = store.output_piece(&row.handle, after(&piece)).await?;
        }
        Ok(lines.finish())
    }

    async fn json(&self, row: &OutputRow) -> Result<Vec<u8>, ReadError> {
        if row.bytes > MAX_BRIDGE_VALUE_BYTES as u64 {
            let message = format!(
                "`{}` has {} bytes, but at most {MAX_BRIDGE_VALUE_BYTES} are parsed at once; use output.read, output.lines or \
                 output.grep",
                row.handle, row.bytes
            );
            return Err(ReadError::TooLarge(message));
        }
        let _held = self.data.reserve(bounded(row, u64::MAX), 0)?;
        let text = String::from_utf8(read_whole(self.store(), &row.handle).await?).map_err(|_| not_text())?;
        let text = json::well_formed(&text).into_owned();
        // Reads no deeper than its own limit, but the guest's parser and ours read all that is well-formed.
        let is_json = row.kind == OutputKind::Json || serde_json::from_str::<IgnoredAny>(&text).is_ok();
        if !is_json {
            let message =
                format!("`{}` is not JSON; read it with output.read, output.lines or output.grep", row.handle);
            return Err(ReadError::Invalid(message));
        }
        if json::depth(text.as_bytes()) > MAX_BRIDGE_VALUE_DEPTH {
            let message =
                format!("`{}` nests deeper than {MAX_BRIDGE_VALUE_DEPTH} levels; use output.read", row.handle);
            return Err(ReadError::TooLarge(message));
        }
        Ok(text.into_bytes())
    }

    async fn grep(&self, row: &OutputRow, mut grep: Grep) -> Result<Vec<u8>, ReadError> {
        let mut position = OutputPosition::Byte(0);
        while !grep.is_complete() {
            let Some(piece) = self.store().output_piece(&row.handle, position).await? else { break };
            position = after(&piece);
            // A slow pattern must not block the other tasks of the host.
            let searched = tokio::task::spawn_blocking(move || {
                grep.push(text_of(&piece)?);
                Ok::<_, ReadError>(grep)
            });
            grep = searched.await.map_err(|_| not_text())??;
        }
        Ok(to_json(&grep.finish()))
    }

    /// Replaces the references in a tool's arguments. Returns the reservations for the memory of the contents.
    pub(crate) async fn fill(&self, input: &mut Value, payload_bytes: usize) -> Result<Vec<Reservation>, ReadError> {
        let references = handles(input);
        if references.len() > MAX_REFERENCES {
            let message = format!("the arguments refer to more than {MAX_REFERENCES} stored outputs; pass fewer");
            return Err(ReadError::Invalid(message));
        }
        let mut rows = Vec::with_capacity(references.len());
        let mut bytes = payload_bytes;
        for (handle, count) in references {
            let row = self.row(&handle).await?;
            let encoded = if row.kind.is_text() { row.bytes } else { row.bytes.div_ceil(3).saturating_mul(4) };
            let encoded = usize::try_from(encoded).unwrap_or(usize::MAX);
            bytes = bytes.saturating_add(encoded.saturating_mul(count));
            rows.push((row, count));
        }
        check_arguments(bytes)?;
        self.journal.check_room_for(bytes)?;
        let mut held = vec![self.data.reserve(bytes, 0)?];
        let depth = json::depth(input.to_string().as_bytes());
        let (mut bytes, mut values) = (payload_bytes, 0_usize);
        let mut contents = BTreeMap::new();
        for (row, count) in rows {
            let data = read_whole(self.store(), &row.handle).await?;
            let content = match row.kind {
                OutputKind::Json => {
                    let text = String::from_utf8(data).map_err(|_| not_text())?;
                    let measure = json::measure(text.as_bytes());
                    values = values.saturating_add(measure.values.saturating_mul(count));
                    if values > MAX_JSON_VALUES || depth + measure.depth > MAX_BRIDGE_VALUE_DEPTH {
                        let message = format!(
                            "the stored JSON has more than {MAX_JSON_VALUES} values or nests deeper than \
                             {MAX_BRIDGE_VALUE_DEPTH} levels in these arguments; pass a part of it"
                        );
                        return Err(ReadError::TooLarge(message));
                    }
                    held.push(self.data.reserve(0, measure.values.saturating_mul(count))?);
                    bytes = bytes.saturating_add(text.len().saturating_mul(count));
                    Content::Json(json::read(&text).map_err(|_| not_text())?)
                }
                OutputKind::Text => {
                    let text = String::from_utf8(data).map_err(|_| not_text())?;
                    bytes = bytes.saturating_add(escaped_bytes(&text).saturating_mul(count));
                    Content::Text(text)
                }
                OutputKind::Image | OutputKind::Audio | OutputKind::Binary => {
                    let text = BASE64_STANDARD.encode(data);
                    bytes = bytes.saturating_add(text.len().saturating_mul(count));
                    Content::Text(text)
                }
            };
            check_arguments(bytes)?;
            contents.insert(row.handle, content);
        }
        match resolve(input, &contents).pop_first() {
            None => Ok(held),
            Some(handle) => Err(ReadError::Unknown(handle.into_string())),
        }
    }
}

/// Stored outputs that the arguments of one call may refer to.
const MAX_REFERENCES: usize = 100;

/// Characters of an unknown handle in an error message.
const MAX_SHOWN_CHARS: usize = 100;

fn check_arguments(bytes: usize) -> Result<(), ReadError> {
    if bytes <= MAX_BRIDGE_VALUE_BYTES {
        return Ok(());
    }
    Err(ReadError::TooLarge(format!(
        "with the stored outputs that they refer to, the call's arguments have more than {MAX_BRIDGE_VALUE_BYTES} bytes; pass a \
         part of them, for example with output.read"
    )))
}

/// Reads the whole data of an output. The caller has checked who may see it.
pub(crate) async fn read_whole(store: &Store, handle: &OutputHandle) -> Result<Vec<u8>, StoreError> {
    let mut data = Vec::new();
    while let Some(piece) = store.output_piece(handle, OutputPosition::Byte(data.len() as u64)).await? {
        data.extend_from_slice(&piece.data);
        if piece.data.is_empty() {
            break;
        }
    }
    Ok(data)
}

/// Returns what `output.list()` shows of an output.
fn listed(row: &OutputRow) -> Value {
    let mut shown = json!({
        "handle": row.handle,
        "type": row.kind.as_str(),
        "bytes": row.bytes,
        "length": row.units,
        "createdAt": row.created_at,
    });
    if let Some(fields) = shown.as_object_mut() {
        if row.kind.is_text() {
            fields.insert("lines".to_owned(), json!(row.lines));
        }
        if let Some(mime_type) = &row.mime_type {
            fields.insert("mimeType".to_owned(), json!(mime_type));
        }
        if let Some((_, tool)) = &row.source {
            fields.insert("tool".to_owned(), json!(tool));
        }
    }
    shown
}

/// Returns how many bytes of an output are read at most.
fn bounded(row: &OutputRow, bytes: u64) -> usize {
    usize::try_from(row.bytes.min(bytes)).unwrap_or(usize::MAX)
}

fn text_of(piece: &OutputPiece) -> Result<&str, ReadError> {
    std::str::from_utf8(&piece.data).map_err(|_| not_text())
}

fn after(piece: &OutputPiece) -> OutputPosition {
    OutputPosition::Byte(piece.start_byte + piece.data.len() as u64)
}

fn not_text() -> ReadError {
    ReadError::Store(StoreError::Corrupt("the text of an output".to_owned()))
}

fn to_json(value: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}
