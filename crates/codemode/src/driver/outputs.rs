//! Stored outputs: a cell's calls that read them, tool calls that refer to them, and what a result stores.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use contract::cell::{CellResult, OutputItem, Preview, StoredOutputs};
use contract::error::ErrorCode;
use contract::frame::{Failure, HostCall, ReplyValue};
use contract::ids::{OutputHandle, RunId};
use contract::json;
use contract::limits::{
    Limits, MAX_BRIDGE_VALUE_BYTES, MAX_BRIDGE_VALUE_DEPTH, MAX_JSON_VALUES, MAX_LISTED_OUTPUTS, MAX_PAGE_UNITS,
    MAX_RUN_OUTPUTS,
};
use contract::scope::Scope;
use executor::{CallRequest, DataBudgetError, Journal, JournalFull, Reservation, RunDataBudget};
use parking_lot::Mutex;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use store::{NewOutput, OutputKind, OutputPiece, OutputPosition, OutputRow, SessionKey, Store, StoreError};
use tokio::time::Instant;

use super::Driver;
use super::calls::{TaskDone, TaskResult, ended};
use crate::bridge;
use crate::cell::Answer;
use crate::failure::{failure, internal_message};
use crate::output::{
    Content, Grep, Lines, Names, OutputRequest, Page, Selection, escaped_bytes, fit, handles, media_of, not_shown,
    not_stored, resolve, take_media,
};

/// Output of a leg up to this size needs no reservation until a result shows it.
const SMALL_OUTPUT_BYTES: usize = 64 << 10;

/// The runs whose outputs a run may read, as far as it has asked.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadableRuns(Arc<Mutex<HashSet<RunId>>>);

/// Reads stored outputs for a run.
#[derive(Clone, Debug)]
struct OutputReader {
    journal: Arc<Journal>,
    scope: Arc<Scope>,
    readable: ReadableRuns,
    data: RunDataBudget,
}

/// Why an output cannot be read. The message is for the cell.
#[derive(Debug, thiserror::Error)]
enum ReadError {
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
    fn reply(&self, target: &str) -> ReplyValue {
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

impl Driver {
    /// Answers a call of the guest's `output` object from the store.
    pub(super) fn read_output(&mut self, call: &HostCall) {
        let request = OutputRequest::read(&call.target, &call.payload);
        let (id, target, reader) = (call.id, call.target.clone(), self.output_reader());
        self.spawn(async move {
            let read = match request {
                Ok(request) => reader.answer(request).await,
                Err(bad) => Err(ReadError::Invalid(bad.0)),
            };
            let what = match read {
                Ok((reply, held)) => TaskResult::OutputRead { reply: ReplyValue::Resolved(reply), held: Some(held) },
                Err(error) => TaskResult::OutputRead { reply: error.reply(&target), held: None },
            };
            TaskDone::instant(id, what)
        });
    }

    /// Makes a tool call after its references to stored outputs are replaced by their contents.
    pub(super) fn spawn_call_with_outputs(&mut self, request: CallRequest, payload_bytes: usize) {
        let (executor, journal) = (self.run.executor.clone(), Arc::clone(&self.run.journal));
        let (call, data, reader) = (request.call, self.run.data.clone(), self.output_reader());
        let began = Instant::now();
        self.under_way.insert(call, began);
        self.spawn(async move {
            let mut request = request;
            let what = match reader.fill(&mut request.input, payload_bytes).await {
                // The memory is reserved until the call has ended.
                Ok(_held) => ended(Some(executor.call(&journal, &request).await), &request.id, &data),
                Err(error) => TaskResult::Replied { reply: error.reply(&request.id), held: None },
            };
            TaskDone { call, what, elapsed: began.elapsed() }
        });
    }

    fn output_reader(&self) -> OutputReader {
        OutputReader {
            journal: Arc::clone(&self.run.journal),
            scope: Arc::clone(self.run.executor.scope()),
            readable: self.readable.clone(),
            data: self.run.data.clone(),
        }
    }

    /// Reserves memory for a leg's output until a result shows or stores it.
    pub(super) fn hold_output(&mut self, output: &[OutputItem]) -> Result<(), Failure> {
        let data = |item: &OutputItem| match item {
            OutputItem::Image(media) | OutputItem::Audio(media) => media.data.len(),
            OutputItem::Text { .. } | OutputItem::Json { .. } | OutputItem::Stored(_) => 0,
        };
        let bytes: usize = output.iter().map(|item| size_of::<OutputItem>() + item.bytes() + data(item)).sum();
        if bytes <= SMALL_OUTPUT_BYTES {
            return Ok(());
        }
        match self.run.data.reserve(bytes, 0) {
            Ok(held) => {
                self.held_output.push(held);
                Ok(())
            }
            Err(refused) => {
                let message = format!("the cell waits with {bytes} bytes of output that cannot be kept: {refused}");
                Err(failure(ErrorCode::RuntimeUnavailable, message))
            }
        }
    }

    /// Selects what of an answer is stored, and replaces it in the answer.
    pub(super) async fn store_outputs(&mut self, mut answer: Answer) -> (Answer, Vec<NewOutput>) {
        self.held_output.clear();
        let (value, output) = match &mut answer {
            Answer::Completed { value, output } => (Some(value), output),
            Answer::Waiting { output, .. } | Answer::Failed { output, .. } => (None, output),
        };
        let taken =
            value.as_ref().map_or(0, |value| value.get().len()) + output.iter().map(OutputItem::bytes).sum::<usize>();
        let whole_value = value.map(|value| std::mem::replace(value, RawValue::NULL.to_owned()));
        let (limits, names) = (self.run.definition.limits, Names::new(self.run.id.clone(), self.leg));
        let mut whole_output = std::mem::take(output);
        if whole_output.iter_mut().any(|item| media_of(item).is_some()) {
            whole_output = self.output_reader().with_references(whole_output, limits).await;
        }
        let select = move || selected(whole_value, whole_output, &limits, names);
        let (mut shown_value, mut shown_output, mut stored) = if taken > MAX_INLINE_BYTES {
            match tokio::task::spawn_blocking(select).await {
                Ok(selected) => selected,
                Err(error) => {
                    // Only a panic ends the task early.
                    tracing::error!(%error, "cannot select what of a result is stored");
                    (None, Vec::new(), Vec::new())
                }
            }
        } else {
            select()
        };
        let bytes: u64 = stored.iter().map(|output| output.data.len() as u64).sum();
        let before = self.telemetry.stored_outputs;
        self.stored_before = before;
        let totals = StoredOutputs { count: before.count + stored.len() as u64, bytes: before.bytes + bytes };
        if totals.count > MAX_RUN_OUTPUTS as u64 {
            let handles: Vec<OutputHandle> =
                stored.drain(..).map(|output| OutputHandle::of(&self.run.id, &output.name)).collect();
            let why = format!("this run has stored {} outputs, and one run may store {MAX_RUN_OUTPUTS}", before.count);
            shown_output = unstored(shown_output, &handles, &why);
            shown_value = shown_value.map(|value| unstored_value(value, &handles, &why));
        } else {
            self.telemetry.stored_outputs = totals;
            self.cell.add_stored_output(bytes);
        }
        let answer = match answer {
            Answer::Completed { value, .. } => {
                Answer::Completed { value: shown_value.unwrap_or(value), output: shown_output }
            }
            Answer::Waiting { reason, pending, .. } => Answer::Waiting { reason, pending, output: shown_output },
            Answer::Failed { failure, .. } => Answer::Failed { failure, output: shown_output },
        };
        (answer, stored)
    }

    /// Returns a result that refers to none of the outputs that could not be stored. What is small in it is kept, also
    /// the value, because the result of a failed run has none.
    pub(super) fn without_outputs(&mut self, result: CellResult, handles: &[OutputHandle]) -> CellResult {
        if handles.is_empty() {
            return result;
        }
        self.telemetry.stored_outputs = self.stored_before;
        let why = "the store has no space for it";
        match result {
            CellResult::Completed { value, output, telemetry } => {
                let mut output = unstored(output, handles, why);
                let value = unstored_value(value, handles, why);
                output.push(OutputItem::Json { value });
                CellResult::Completed { value: RawValue::NULL.to_owned(), output, telemetry }
            }
            CellResult::Waiting { run_id, reason, pending_tool_calls, output, telemetry } => {
                let output = unstored(output, handles, why);
                CellResult::Waiting { run_id, reason, pending_tool_calls, output, telemetry }
            }
            CellResult::Failed { error, code, output, effects, telemetry } => {
                let output = unstored(output, handles, why);
                CellResult::Failed { error, code, output, effects, telemetry }
            }
        }
    }
}

/// Results up to this size are divided on the driver's own task.
const MAX_INLINE_BYTES: usize = 1 << 20;

type Selected = (Option<Box<RawValue>>, Vec<OutputItem>, Vec<NewOutput>);

fn selected(
    mut value: Option<Box<RawValue>>,
    mut output: Vec<OutputItem>,
    limits: &Limits,
    mut names: Names,
) -> Selected {
    let mut stored = take_media(&mut value, &mut output, limits, &mut names);
    let limit = usize::try_from(limits.output_bytes).unwrap_or(usize::MAX);
    let fitted = fit(value, output, limit, &mut names);
    stored.extend(fitted.stored);
    (fitted.value, fitted.output, stored)
}

/// Replaces the previews of outputs that were not stored.
fn unstored(output: Vec<OutputItem>, handles: &[OutputHandle], why: &str) -> Vec<OutputItem> {
    let replace = |mut item: OutputItem| {
        if let Some(media) = media_of(&mut item) {
            media.handle.take_if(|handle| handles.contains(handle));
        }
        match item {
            OutputItem::Stored(preview) if handles.contains(&preview.handle) => {
                OutputItem::Text { text: not_stored(&preview, why) }
            }
            item => item,
        }
    };
    output.into_iter().map(replace).collect()
}

fn unstored_value(value: Box<RawValue>, handles: &[OutputHandle], why: &str) -> Box<RawValue> {
    let preview = serde_json::from_str::<Preview>(value.get()).ok();
    match preview.filter(|preview| handles.contains(&preview.handle)) {
        Some(preview) => serde_json::value::to_raw_value(&not_stored(&preview, why)).unwrap_or(value),
        None => value,
    }
}

/// Whether the arguments of a tool call may refer to stored outputs.
pub(super) fn may_refer(payload: &[u8]) -> bool {
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
        let is_own = run_id == *self.journal.run_id();
        if !is_own && !self.readable.0.lock().contains(&run_id) {
            let row = self.store().run(&run_id).await?.ok_or_else(unknown)?;
            if row.scope.agent_id != self.scope.agent_id || row.scope.session_id != self.scope.session_id {
                return Err(unknown());
            }
            self.readable.0.lock().insert(run_id);
        }
        if let Some(row) = self.store().output(handle).await? {
            return Ok(row);
        }
        // An output of this run may be part of its next commit.
        if is_own && self.journal.flush().await.is_ok() {
            return self.store().output(handle).await?.ok_or_else(unknown);
        }
        Err(unknown())
    }

    /// Loads the images and sounds that the cell output by their handles.
    async fn with_references(&self, mut output: Vec<OutputItem>, limits: Limits) -> Vec<OutputItem> {
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
    async fn answer(&self, request: OutputRequest) -> Result<(Vec<u8>, Reservation), ReadError> {
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
                    Selection::Matches { pattern, ignore_case, limit } if is_text => {
                        let grep = Grep::new(&pattern, ignore_case, limit).map_err(ReadError::Invalid)?;
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
        let mut position = OutputPosition::Unit(offset);
        while !page.is_complete() {
            let Some(piece) = self.store().output_piece(&row.handle, position).await? else { break };
            page.push(piece.start_unit, text_of(&piece)?);
            position = after(&piece);
        }
        Ok(page.into_text())
    }

    async fn base64_page(&self, row: &OutputRow, offset: u64, length: u64) -> Result<String, ReadError> {
        let _held = self.data.reserve(bounded(row, length), 0)?;
        let end = offset.saturating_add(length).min(row.bytes);
        let (mut data, mut at) = (Vec::new(), offset);
        while at < end {
            let Some(piece) = self.store().output_piece(&row.handle, OutputPosition::Byte(at)).await? else { break };
            let place = |byte: u64| usize::try_from(byte.saturating_sub(piece.start_byte)).unwrap_or(usize::MAX);
            data.extend_from_slice(piece.data.get(place(at)..place(end).min(piece.data.len())).unwrap_or_default());
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
    async fn fill(&self, input: &mut Value, payload_bytes: usize) -> Result<Vec<Reservation>, ReadError> {
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
        self.journal.has_room_for(bytes)?;
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
