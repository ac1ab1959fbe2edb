//! The guest's five imports: the only part of the host that a cell can reach.
//!
//! Every pointer, length and number comes from hostile code. Imports validate all of them; invalid input stops the cell
//! and never panics.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use contract::cell::{MediaKind, OutputItem};
use contract::frame::{BadFrame, HostCall, Method, Reader};
use contract::ids::CallId;
use contract::json;
use contract::limits::{
    MAX_BRIDGE_VALUE_BYTES, MAX_BRIDGE_VALUE_DEPTH, MAX_JSON_VALUES, MAX_OUTSTANDING_BYTES, MAX_OUTSTANDING_CALLS,
    MAX_TARGET_BYTES,
};
use serde_json::value::RawValue;
use wasmtime::{Caller, Error, Linker, ResourceLimiter, Result};

use crate::media::MediaTotals;
use crate::tables::Tables;
use crate::{explain, web_url};

/// The reason why the host stopped a cell; carried by the trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Stop {
    #[error("the cell ran out of time")]
    Deadline,
    #[error("the cell was dropped")]
    Dropped,
    #[error("the cell ran out of memory")]
    Memory,
    #[error("the cell's output far exceeded its limit")]
    Output,
    #[error("the cell violated the bridge protocol: {0}")]
    ProtocolViolation(&'static str),
}

/// The limit that a refused call exceeds. The guest receives the number; `guest/prelude/host.js` has the same list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Calls outstanding.
    Calls = 1,
    /// Bytes of this payload.
    PayloadBytes = 2,
    /// Nesting of this payload.
    Depth = 3,
    /// Bytes of this target.
    TargetBytes = 4,
    /// Bytes of all outstanding calls.
    OutstandingBytes = 5,
    /// JSON values in this payload.
    Values = 6,
}

const CLEAR_TIMER: i32 = 6;

/// Keys of `lookup` that are computed, not stored.
const EXPLAIN: &[u8] = b"explain/";
const MEANT: &[u8] = b"meant/";

/// The longest spelling of a name that is looked up; names in a catalog are shorter.
const MAX_SPELLING_BYTES: usize = 2 * MAX_TARGET_BYTES;

/// A cell whose output exceeds its budget by more bytes is stopped; below that, excess output is only counted.
const OUTPUT_OVERRUN_BYTES: u64 = 64 << 10;

/// The bytes that an item of output counts in addition to its text, as in `OutputItem::bytes`.
const EMPTY_ITEM_BYTES: usize = 16;

/// The host's state for one cell.
pub(crate) struct CellHost {
    pub(crate) tables: Option<Arc<Tables>>,
    pub(crate) outstanding: OutstandingCalls,
    pub(crate) calls: Vec<HostCall>,
    pub(crate) cleared: Vec<CallId>,
    pub(crate) output: Output,
    pub(crate) memory_limit: usize,
    answer: Answer,
}

/// The calls of a cell without a reply, and their total size. Part of a snapshot.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct OutstandingCalls {
    calls: BTreeMap<u32, OutstandingCall>,
    bytes: usize,
    /// The highest id so far. The guest counts upwards and never reuses an id.
    last_id: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OutstandingCall {
    method: Method,
    /// The length of its target and payload together.
    bytes: usize,
}

impl OutstandingCalls {
    /// The most bytes that [`OutstandingCalls::write`] writes.
    pub(crate) const MAX_BYTES: usize = 8 + 9 * MAX_OUTSTANDING_CALLS;

    fn insert(&mut self, id: u32, method: Method, bytes: usize) -> Result<(), Stop> {
        if id <= self.last_id {
            return Err(Stop::ProtocolViolation("a call id was reused"));
        }
        self.last_id = id;
        self.bytes += bytes;
        self.calls.insert(id, OutstandingCall { method, bytes });
        Ok(())
    }

    /// Removes a call; returns false if no such call is outstanding.
    pub(crate) fn remove(&mut self, id: u32) -> bool {
        let Some(call) = self.calls.remove(&id) else { return false };
        self.bytes = self.bytes.saturating_sub(call.bytes);
        true
    }

    pub(crate) fn write(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.last_id.to_le_bytes());
        into.extend_from_slice(&u32::try_from(self.calls.len()).unwrap_or(u32::MAX).to_le_bytes());
        for (id, call) in &self.calls {
            into.extend_from_slice(&id.to_le_bytes());
            into.push(call.method.number());
            into.extend_from_slice(&u32::try_from(call.bytes).unwrap_or(u32::MAX).to_le_bytes());
        }
    }

    /// Reads what [`OutstandingCalls::write`] wrote. A snapshot may be forged, so the values are validated like a
    /// guest's.
    pub(crate) fn read(from: &mut Reader<'_>) -> Result<Self, BadFrame> {
        let last_id = from.u32()?;
        let mut read = Self::default();
        for (id, method, bytes) in from.list(|from| Ok((from.u32()?, from.u8()?, from.u32()?)))? {
            let method = Method::from_number(method).ok_or(BadFrame::Invalid("method"))?;
            read.insert(id, method, bytes as usize).map_err(|_| BadFrame::Invalid("call"))?;
        }
        let allowed = read.calls.len() <= MAX_OUTSTANDING_CALLS && read.bytes <= MAX_OUTSTANDING_BYTES;
        if !allowed || read.last_id > last_id {
            return Err(BadFrame::Invalid("call"));
        }
        read.last_id = last_id;
        Ok(read)
    }
}

/// The output of a cell in this leg, and its limit.
#[derive(Default)]
pub(crate) struct Output {
    pub(crate) items: Vec<OutputItem>,
    pub(crate) budget: u64,
    pub(crate) total: u64,
    /// The number of JSON values that the cell has printed since it was started or thawed, because the host parses
    /// them.
    values: usize,
    media: MediaTotals,
}

impl Output {
    /// Starts a leg, in which the cell may output `budget` bytes.
    pub(crate) fn begin(&mut self, budget: u64) {
        self.budget = budget;
        self.total = 0;
        self.media = MediaTotals::default();
    }

    pub(crate) fn exceeded(&self) -> bool {
        self.total > self.budget
    }

    fn push(&mut self, item: OutputItem) -> Result<()> {
        let bytes = item.bytes() as u64;
        if self.has_room(bytes) {
            self.items.push(item);
        }
        self.count(bytes)
    }

    fn has_room(&self, bytes: u64) -> bool {
        self.total.saturating_add(bytes) <= self.budget
    }

    /// Counts output, whether or not it is kept.
    fn count(&mut self, bytes: u64) -> Result<()> {
        self.total = self.total.saturating_add(bytes);
        if self.total > self.budget.saturating_add(OUTPUT_OVERRUN_BYTES) {
            return Err(Error::new(Stop::Output));
        }
        Ok(())
    }

    /// Returns a JSON text as an item of output. If a reader would reject it as a value, or there are too many values
    /// to parse, the item is plain text.
    fn json_item(&mut self, text: String) -> Result<OutputItem> {
        let measure = json::measure(text.as_bytes());
        if measure.depth > MAX_BRIDGE_VALUE_DEPTH {
            let text = format!("[a value that nests deeper than {MAX_BRIDGE_VALUE_DEPTH} levels]");
            return Ok(OutputItem::Text { text });
        }
        let values = self.values.saturating_add(measure.values);
        if values > MAX_JSON_VALUES || !json::numbers_are_readable(text.as_bytes()) {
            return Ok(OutputItem::Text { text });
        }
        self.values = values;
        let value =
            RawValue::from_string(text).map_err(|_| Error::new(Stop::ProtocolViolation("output that is not JSON")))?;
        Ok(OutputItem::Json { value })
    }
}

/// An answer that waits until the guest has allocated memory for it.
enum Answer {
    None,
    Table(Range<usize>),
    Owned(Vec<u8>),
}

impl CellHost {
    pub(crate) fn idle() -> Self {
        Self {
            tables: None,
            outstanding: OutstandingCalls::default(),
            calls: Vec::new(),
            cleared: Vec::new(),
            output: Output::default(),
            memory_limit: usize::MAX,
            answer: Answer::None,
        }
    }

    fn accept(&mut self, id: u32, method: i32, target: &[u8], payload: &[u8]) -> Result<Option<Refusal>> {
        if method == CLEAR_TIMER {
            self.clear(id).map_err(Error::new)?;
            return Ok(None);
        }
        let method = u8::try_from(method)
            .ok()
            .and_then(Method::from_number)
            .ok_or(Stop::ProtocolViolation("unknown method"))
            .map_err(Error::new)?;
        // Check sizes first: nothing of a call that is too large is copied or scanned.
        if target.len() > MAX_TARGET_BYTES {
            return Ok(Some(Refusal::TargetBytes));
        }
        if payload.len() > MAX_BRIDGE_VALUE_BYTES {
            return Ok(Some(Refusal::PayloadBytes));
        }
        if self.outstanding.calls.len() >= MAX_OUTSTANDING_CALLS {
            return Ok(Some(Refusal::Calls));
        }
        let target = text_of(target);
        if target.len() > MAX_TARGET_BYTES {
            return Ok(Some(Refusal::TargetBytes));
        }
        let bytes = target.len() + payload.len();
        if self.outstanding.bytes.saturating_add(bytes) > MAX_OUTSTANDING_BYTES {
            return Ok(Some(Refusal::OutstandingBytes));
        }
        let measure = json::measure(payload);
        if measure.depth > MAX_BRIDGE_VALUE_DEPTH {
            return Ok(Some(Refusal::Depth));
        }
        if measure.values > MAX_JSON_VALUES {
            return Ok(Some(Refusal::Values));
        }
        self.outstanding.insert(id, method, bytes).map_err(Error::new)?;
        self.calls.push(HostCall { id: CallId(id), method, target, payload: payload.to_vec() });
        Ok(None)
    }

    /// Clears a timer. A timer that has fired is no longer outstanding, so this does nothing.
    fn clear(&mut self, id: u32) -> Result<(), Stop> {
        match self.outstanding.calls.get(&id).map(|call| call.method) {
            None => return Ok(()),
            Some(Method::Timer) => {}
            Some(_) => return Err(Stop::ProtocolViolation("a cleared call is not a timer")),
        }
        self.outstanding.remove(id);
        // Calls are sorted by id.
        match self.calls.binary_search_by_key(&id, |call| call.id.0) {
            // Set and cleared in the same leg, so the host never sees the timer.
            Ok(position) => drop(self.calls.remove(position)),
            Err(_) => self.cleared.push(CallId(id)),
        }
        Ok(())
    }

    fn answer_bytes(&self) -> &[u8] {
        match &self.answer {
            Answer::None => &[],
            Answer::Table(range) => {
                self.tables.as_deref().and_then(|tables| tables.slice(range.clone())).unwrap_or_default()
            }
            Answer::Owned(bytes) => bytes,
        }
    }

    /// Stores the answer and returns its length for the guest, or -1 if there is no answer.
    fn offer(&mut self, answer: Answer) -> i32 {
        self.answer = answer;
        match &self.answer {
            Answer::None => -1,
            Answer::Table(_) | Answer::Owned(_) => i32::try_from(self.answer_bytes().len()).unwrap_or(-1),
        }
    }
}

impl ResourceLimiter for CellHost {
    /// Stops the cell instead of letting it see a failed allocation: a guest that catches its own out-of-memory error
    /// would continue in an untested state.
    fn memory_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> Result<bool> {
        if desired > self.memory_limit {
            return Err(Error::new(Stop::Memory));
        }
        Ok(true)
    }

    /// The system refused the memory because the worker reached its own limit. For the cell, this is the same as its
    /// own limit.
    fn memory_grow_failed(&mut self, _error: Error) -> Result<()> {
        Err(Error::new(Stop::Memory))
    }

    /// The image's table never grows; the build has verified that.
    fn table_growing(&mut self, _current: usize, _desired: usize, _maximum: Option<usize>) -> Result<bool> {
        Ok(true)
    }
}

pub(crate) fn link(linker: &mut Linker<CellHost>) -> Result<()> {
    linker.func_wrap("cellmate", "call", call)?;
    linker.func_wrap("cellmate", "output", output)?;
    linker.func_wrap("cellmate", "lookup", lookup)?;
    linker.func_wrap("cellmate", "url", url)?;
    linker.func_wrap("cellmate", "take", take)?;
    Ok(())
}

fn call(
    mut caller: Caller<'_, CellHost>,
    id: u32,
    method: i32,
    target: u32,
    target_length: u32,
    payload: u32,
    payload_length: u32,
) -> Result<i32> {
    let (memory, host) = memory(&mut caller)?;
    let target = slice(memory, target, target_length)?;
    let payload = slice(memory, payload, payload_length)?;
    let refused = host.accept(id, method, target, payload)?;
    Ok(refused.map_or(0, |refusal| refusal as i32))
}

/// Adds an item to the output. Returns -1, or the length of the reason why an image or a sound is refused, which the
/// guest then takes.
fn output(
    mut caller: Caller<'_, CellHost>,
    kind: i32,
    text: u32,
    length: u32,
    mime_type: u32,
    mime_type_length: u32,
) -> Result<i32> {
    let (memory, host) = memory(&mut caller)?;
    let text = slice(memory, text, length)?;
    let output = &mut host.output;
    let item = match kind {
        0 | 1 => {
            // Output over the limit is not copied.
            let bytes = (text.len() + EMPTY_ITEM_BYTES) as u64;
            if !output.has_room(bytes) {
                output.count(bytes)?;
                return Ok(host.offer(Answer::None));
            }
            let text = text_of(text);
            if kind == 0 { OutputItem::Text { text } } else { output.json_item(text)? }
        }
        2..=5 => {
            let mime_type = slice(memory, mime_type, mime_type_length)?;
            let media_kind = if kind % 2 == 0 { MediaKind::Image } else { MediaKind::Audio };
            let media = if kind < 4 {
                output.media.decode(media_kind, mime_type, text, output.budget)
            } else {
                output.media.add_reference(text, output.budget)
            };
            match media {
                Ok(media) => media_kind.item(media),
                Err(refused) => return Ok(host.offer(Answer::Owned(refused.guest_error().into_bytes()))),
            }
        }
        _ => return Err(Error::new(Stop::ProtocolViolation("unknown kind of output"))),
    };
    output.push(item)?;
    Ok(host.offer(Answer::None))
}

fn lookup(mut caller: Caller<'_, CellHost>, key: u32, length: u32) -> Result<i32> {
    let (memory, host) = memory(&mut caller)?;
    let key = slice(memory, key, length)?;
    let Some(tables) = host.tables.clone() else { return Ok(host.offer(Answer::None)) };
    let answer = if let Some(request) = key.strip_prefix(EXPLAIN) {
        explain::answer(&tables, request).map(|text| Answer::Owned(text.into_bytes()))
    } else if let Some(spelling) = key.strip_prefix(MEANT) {
        meant(&tables, spelling).map(|name| Answer::Owned(name.into_bytes()))
    } else {
        tables.find(key).map(Answer::Table)
    };
    Ok(host.offer(answer.unwrap_or(Answer::None)))
}

/// Returns the listed name for `<server>/<spelling>`; an empty server stands for the list of servers.
fn meant(tables: &Tables, spelling: &[u8]) -> Option<String> {
    let spelling = std::str::from_utf8(spelling).ok().filter(|spelling| spelling.len() <= MAX_SPELLING_BYTES)?;
    let (server, name) = spelling.split_once('/')?;
    tables.meant(server, name)
}

fn url(mut caller: Caller<'_, CellHost>, request: u32, length: u32) -> Result<i32> {
    let (memory, host) = memory(&mut caller)?;
    let answer = web_url::answer(slice(memory, request, length)?);
    Ok(host.offer(answer.map_or(Answer::None, Answer::Owned)))
}

fn take(mut caller: Caller<'_, CellHost>, into: u32) -> Result<()> {
    let (memory, host) = memory(&mut caller)?;
    let answer = host.answer_bytes();
    memory
        .get_mut(into as usize..)
        .and_then(|rest| rest.get_mut(..answer.len()))
        .ok_or_else(out_of_bounds)?
        .copy_from_slice(answer);
    host.answer = Answer::None;
    Ok(())
}

fn memory<'a>(caller: &'a mut Caller<'_, CellHost>) -> Result<(&'a mut [u8], &'a mut CellHost)> {
    let memory = caller
        .get_export("memory")
        .and_then(wasmtime::Extern::into_memory)
        .ok_or_else(|| Error::new(Stop::ProtocolViolation("no memory")))?;
    Ok(memory.data_and_store_mut(caller))
}

fn slice(memory: &[u8], pointer: u32, length: u32) -> Result<&[u8]> {
    memory.get(pointer as usize..).and_then(|rest| rest.get(..length as usize)).ok_or_else(out_of_bounds)
}

/// QuickJS writes a lone surrogate as three bytes that are not valid UTF-8; they become one replacement character.
fn text_of(bytes: &[u8]) -> String {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return text.to_owned();
    }
    let mut mended = bytes.to_vec();
    let mut rest = mended.as_mut_slice();
    while let Some(at) = rest.windows(2).position(|pair| matches!(pair, [0xED, 0xA0..=0xFF])) {
        rest = rest.get_mut(at..).unwrap_or_default();
        let (half, after) = rest.split_at_mut(rest.len().min(3));
        half.copy_from_slice("\u{fffd}".as_bytes().get(..half.len()).unwrap_or_default());
        rest = after;
    }
    String::from_utf8_lossy(&mended).into_owned()
}

fn out_of_bounds() -> Error {
    Error::new(Stop::ProtocolViolation("a pointer outside of memory"))
}

#[cfg(test)]
mod tests;
