//! Frames from a worker to the host. A worker is not trusted, so decoding checks the structure and every value; only
//! the payloads of calls are checked later, when they are used.

use serde_json::value::RawValue;

use super::codec::{BadFrame, Reader, Writer};
use crate::cell::{Media, MediaKind, OutputItem};
use crate::error::ErrorCode;
use crate::ids::{CallId, CellId, ImageId, OutputHandle};
use crate::json::well_formed;
use crate::limits::{MAX_LEG_MEDIA_BLOCKS, MAX_LEG_MEDIA_BYTES};

/// A frame from a worker to the host.
#[derive(Clone, Debug)]
pub enum FromWorker {
    /// The first frame of every worker: it has loaded the guest image, entered the jail and is ready.
    Hello(Hello),
    /// Sent instead of `Hello` by a worker that cannot run on this system.
    Unfit { reason: String },
    /// A leg has ended.
    Leg(CellId, Leg),
    /// A snapshot was taken of the cell, which is no longer in the worker.
    Frozen { cell: CellId, snapshot: Vec<u8> },
    /// No snapshot could be taken; the cell is no longer in the worker.
    NotFrozen { cell: CellId, failure: Failure },
}

/// The properties of a worker that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The guest image that the worker has loaded.
    pub image: ImageId,
    /// The size of the guest image in a cell's memory. `memoryLimitBytes` counts what is beyond it.
    pub image_bytes: u64,
    pub jail: Jail,
    /// How many cells the worker can hold at a time.
    pub slots: u32,
    /// Whether the kernel reports which pages a cell changed. Without it, the worker compares all of the cell's memory
    /// with the guest image to take a snapshot.
    pub page_scan: bool,
}

/// Which parts of the jail are in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Jail {
    /// Neither Landlock nor seccomp; the WebAssembly sandbox is the only barrier.
    None,
    /// Seccomp filters system calls. Landlock is not available, or the kernel enforces only a part of it.
    Seccomp,
    /// Landlock and seccomp.
    Full,
}

/// The result of one leg: guest code that ran until the cell suspended or ended.
#[derive(Clone, Debug)]
pub struct Leg {
    pub end: LegEnd,
    pub output: Vec<OutputItem>,
    /// How long the leg ran.
    pub run_us: u64,
    /// The size of the cell's memory at the end of the leg.
    pub memory_bytes: u64,
}

/// How a leg ended.
#[derive(Clone, Debug)]
pub enum LegEnd {
    /// The cell has completed and is no longer in the worker. The value may have more than
    /// [`MAX_JSON_VALUES`](crate::limits::MAX_JSON_VALUES) values; then it is stored as text and must not be parsed.
    Completed { value: Box<RawValue> },
    /// The cell waits in the worker for replies. `calls` are the calls that the leg made, `cleared` the timers of
    /// earlier legs that it cancelled.
    Suspended { calls: Vec<HostCall>, cleared: Vec<CallId> },
    /// The cell has failed and is no longer in the worker.
    Failed(Failure),
}

/// A call that a cell makes to its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostCall {
    pub id: CallId,
    pub method: Method,
    /// A tool's id, a namespace's name, or the operation of `Output` and `State`; otherwise empty.
    pub target: String,
    /// The arguments as JSON. Decoding does not check them.
    pub payload: Vec<u8>,
}

/// The kind of a host call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// Searches the catalog.
    Search,
    /// Describes a tool; the target is its id.
    Describe,
    /// Calls a tool; the target is its id.
    Call,
    /// Calls a function of a plugin's namespace; the target is the namespace's name.
    Namespace,
    /// Suspends the run and returns its output so far.
    Yield,
    /// Replies after a time.
    Timer,
    /// Reads stored outputs: the target is `list`, `read`, `lines`, `json` or `grep`, the payload an array of arguments.
    Output,
    /// Reads and writes the session's values: the target is `store`, `load`, `forget` or `keys`, the payload an array of
    /// arguments.
    State,
}

/// Why a cell failed, and the position in its source, if known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// `None` if the cell's own code failed, for example with an exception that it did not catch.
    pub code: Option<ErrorCode>,
    pub message: String,
    pub position: Option<SourcePosition>,
}

/// A position in the cell's source, counting from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourcePosition {
    pub line: u32,
    pub column: u32,
}

impl Method {
    pub const ALL: [Self; 8] = [
        Self::Search,
        Self::Describe,
        Self::Call,
        Self::Namespace,
        Self::Yield,
        Self::Timer,
        Self::Output,
        Self::State,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Search => "search",
            Self::Describe => "describe",
            Self::Call => "call",
            Self::Namespace => "namespace",
            Self::Yield => "yield",
            Self::Timer => "timer",
            Self::Output => "output",
            Self::State => "state",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.as_str() == text)
    }

    /// Returns the number that the guest and the frames use; `guest/prelude/host.js` has the same list.
    pub fn number(self) -> u8 {
        match self {
            Self::Search => 0,
            Self::Describe => 1,
            Self::Call => 2,
            Self::Namespace => 3,
            Self::Yield => 4,
            Self::Timer => 5,
            // The guest uses 6 to clear a timer.
            Self::Output => 7,
            Self::State => 8,
        }
    }

    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.number() == number)
    }
}

const HELLO: u8 = 101;
const LEG: u8 = 102;
const FROZEN: u8 = 103;
const NOT_FROZEN: u8 = 104;
const UNFIT: u8 = 105;

impl FromWorker {
    pub fn encode(&self) -> Vec<u8> {
        let mut out;
        match self {
            Self::Hello(hello) => {
                out = Writer::new(HELLO, 0);
                out.array(&hello.image.0);
                out.u64(hello.image_bytes);
                out.u8(hello.jail as u8);
                out.u32(hello.slots);
                out.u8(u8::from(hello.page_scan));
            }
            Self::Unfit { reason } => {
                out = Writer::new(UNFIT, 0);
                out.bytes(reason.as_bytes());
            }
            Self::Leg(cell, leg) => {
                out = Writer::new(LEG, cell.0);
                write_leg(&mut out, leg);
            }
            Self::Frozen { cell, snapshot } => {
                out = Writer::new(FROZEN, cell.0);
                out.bytes(snapshot);
            }
            Self::NotFrozen { cell, failure } => {
                out = Writer::new(NOT_FROZEN, cell.0);
                write_failure(&mut out, failure);
            }
        }
        out.finish()
    }

    pub fn decode(frame: &[u8]) -> Result<Self, BadFrame> {
        let mut from = Reader::new(frame);
        let kind = from.u8()?;
        let cell = CellId(from.u64()?);
        let decoded = match kind {
            // These frames concern no cell, so their cell id is 0.
            HELLO | UNFIT if cell.0 != 0 => return Err(BadFrame::Invalid("cell")),
            HELLO => Self::Hello(Hello {
                image: ImageId(from.array()?),
                image_bytes: from.u64()?,
                jail: match from.u8()? {
                    0 => Jail::None,
                    1 => Jail::Seccomp,
                    2 => Jail::Full,
                    _ => return Err(BadFrame::Invalid("jail")),
                },
                slots: from.u32()?,
                page_scan: from.bool()?,
            }),
            UNFIT => Self::Unfit { reason: from.text()? },
            LEG => Self::Leg(cell, read_leg(&mut from)?),
            FROZEN => Self::Frozen { cell, snapshot: from.bytes()?.to_vec() },
            NOT_FROZEN => Self::NotFrozen { cell, failure: read_failure(&mut from)? },
            _ => return Err(BadFrame::Invalid("kind")),
        };
        from.finish()?;
        Ok(decoded)
    }
}

fn write_leg(out: &mut Writer, leg: &Leg) {
    out.u64(leg.run_us);
    out.u64(leg.memory_bytes);
    write_count(out, leg.output.len());
    for item in &leg.output {
        match item {
            OutputItem::Text { text } => {
                out.u8(0);
                out.bytes(text.as_bytes());
            }
            OutputItem::Json { value } => {
                out.u8(1);
                out.bytes(value.get().as_bytes());
            }
            OutputItem::Image(media) => write_media(out, 2, media),
            OutputItem::Audio(media) => write_media(out, 3, media),
            // Only the host stores output. A reader rejects this number.
            OutputItem::Stored(_) => out.u8(4),
        }
    }
    match &leg.end {
        LegEnd::Completed { value } => {
            out.u8(0);
            out.bytes(value.get().as_bytes());
        }
        LegEnd::Suspended { calls, cleared } => {
            out.u8(1);
            write_count(out, calls.len());
            for call in calls {
                out.u32(call.id.0);
                out.u8(call.method.number());
                out.bytes(call.target.as_bytes());
                out.bytes(&call.payload);
            }
            write_count(out, cleared.len());
            cleared.iter().for_each(|call| out.u32(call.0));
        }
        LegEnd::Failed(failure) => {
            out.u8(2);
            write_failure(out, failure);
        }
    }
}

fn read_leg(from: &mut Reader<'_>) -> Result<Leg, BadFrame> {
    let run_us = from.u64()?;
    let memory_bytes = from.u64()?;
    let (mut blocks, mut bytes) = (0, 0);
    let mut media = |from: &mut Reader<'_>, kind: MediaKind| {
        let media = read_media(from, kind)?;
        blocks += 1;
        bytes += media.data.len();
        let fits = blocks <= MAX_LEG_MEDIA_BLOCKS && bytes <= MAX_LEG_MEDIA_BYTES;
        if fits { Ok(kind.item(media)) } else { Err(BadFrame::Invalid("amount of media")) }
    };
    let output = from.list(|from| match from.u8()? {
        0 => Ok(OutputItem::Text { text: from.text()? }),
        1 => Ok(OutputItem::Json { value: read_json(from)? }),
        2 => media(from, MediaKind::Image),
        3 => media(from, MediaKind::Audio),
        _ => Err(BadFrame::Invalid("output")),
    })?;
    let end = match from.u8()? {
        0 => LegEnd::Completed { value: read_json(from)? },
        1 => LegEnd::Suspended { calls: from.list(read_call)?, cleared: from.list(|from| from.u32().map(CallId))? },
        2 => LegEnd::Failed(read_failure(from)?),
        _ => return Err(BadFrame::Invalid("end")),
    };
    Ok(Leg { end, output, run_us, memory_bytes })
}

fn write_media(out: &mut Writer, kind: u8, media: &Media) {
    out.u8(kind);
    out.bytes(media.mime_type.as_bytes());
    out.bytes(&media.data);
    out.bytes(media.handle.as_ref().map_or("", OutputHandle::as_str).as_bytes());
}

/// Reads an image or a sound: its data, or a reference.
fn read_media(from: &mut Reader<'_>, kind: MediaKind) -> Result<Media, BadFrame> {
    let (mime_type, data, handle) = (from.text()?, from.bytes()?, from.text()?);
    if handle.is_empty() {
        return match kind.has(&mime_type) {
            true if data.is_empty() => Err(BadFrame::Invalid("empty media")),
            true => Ok(Media { mime_type, data: data.into(), handle: None }),
            false => Err(BadFrame::Invalid("media type")),
        };
    }
    let handle = OutputHandle::new(handle);
    let is_handle = handle.as_str().len() <= OutputHandle::MAX_BYTES && handle.parts().is_some();
    if !is_handle || !mime_type.is_empty() || !data.is_empty() {
        return Err(BadFrame::Invalid("reference to media"));
    }
    Ok(Media::reference(handle))
}

fn read_call(from: &mut Reader<'_>) -> Result<HostCall, BadFrame> {
    Ok(HostCall {
        id: CallId(from.u32()?),
        method: Method::from_number(from.u8()?).ok_or(BadFrame::Invalid("method"))?,
        target: from.text()?,
        payload: from.bytes()?.to_vec(),
    })
}

/// Reads a JSON value and checks its syntax. Unpaired surrogates are replaced, because most JSON parsers reject them.
fn read_json(from: &mut Reader<'_>) -> Result<Box<RawValue>, BadFrame> {
    RawValue::from_string(well_formed(&from.text()?).into_owned()).map_err(|_| BadFrame::NotJson)
}

fn write_failure(out: &mut Writer, failure: &Failure) {
    out.bytes(failure.code.map_or("", ErrorCode::as_str).as_bytes());
    out.bytes(failure.message.as_bytes());
    // Lines count from 1, so line 0 means that there is none.
    let position = failure.position.unwrap_or(SourcePosition { line: 0, column: 0 });
    out.u32(position.line);
    out.u32(position.column);
}

fn read_failure(from: &mut Reader<'_>) -> Result<Failure, BadFrame> {
    let code = match from.text()?.as_str() {
        "" => None,
        text => Some(ErrorCode::parse(text).ok_or(BadFrame::Invalid("error code"))?),
    };
    let message = from.text()?;
    let position = SourcePosition { line: from.u32()?, column: from.u32()? };
    Ok(Failure { code, message, position: (position.line > 0).then_some(position) })
}

fn write_count(out: &mut Writer, count: usize) {
    out.u32(u32::try_from(count).unwrap_or(u32::MAX));
}
