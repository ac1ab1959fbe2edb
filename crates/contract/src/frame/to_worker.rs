//! Frames from the host to a worker.

use super::codec::{BadFrame, Reader, Writer};
use crate::cell::Language;
use crate::config::Languages;
use crate::ids::{CallId, CatalogHash, CellId};

/// A frame from the host to a worker.
#[derive(Clone, Debug, PartialEq)]
pub enum ToWorker {
    /// Store these catalog tables; cells refer to them by their hash.
    Catalog { hash: CatalogHash, tables: Vec<u8> },
    /// Remove these catalog tables once no cell uses them; no new cell will.
    Forget { hash: CatalogHash },
    /// Start a cell and run its first leg.
    Start(CellId, Start),
    /// Deliver replies to a suspended cell and run its next leg.
    Deliver(CellId, Deliver),
    /// Take a snapshot of a suspended cell and remove the cell from the worker. If the snapshot is longer than `max_bytes`,
    /// the worker reports an error instead of it.
    Freeze { cell: CellId, max_bytes: u64 },
    /// Restore a cell from its snapshot, deliver replies to it and run its next leg.
    Thaw(CellId, Thaw),
    /// Stop the cell, even while it runs, and remove it. The worker sends no reply.
    Drop(CellId),
}

/// The limits of one leg, and the time that the guest sees while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// How long the leg may run.
    pub run_ms: u64,
    /// How much memory the cell may use in addition to the guest image.
    pub memory_bytes: u64,
    /// How much output the leg may produce.
    pub output_bytes: u64,
    /// The guest's clock, in microseconds since the Unix epoch. It does not advance within a leg.
    pub clock_us: u64,
}

/// A new cell and the budget of its first leg.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    pub budget: Budget,
    pub catalog: CatalogHash,
    /// The seed of the guest's random numbers.
    pub seed: u64,
    /// The language of `source`.
    pub language: Language,
    /// The languages that the run allows. A JavaScript cell may contain types if TypeScript is one of them.
    pub languages: Languages,
    pub source: String,
}

/// The replies for a suspended cell and the budget of its next leg.
#[derive(Clone, Debug, PartialEq)]
pub struct Deliver {
    pub budget: Budget,
    pub replies: Vec<Reply>,
}

/// A frozen cell, the replies for it and the budget of its next leg.
#[derive(Clone, Debug, PartialEq)]
pub struct Thaw {
    pub catalog: CatalogHash,
    pub snapshot: Vec<u8>,
    pub deliver: Deliver,
}

/// The reply to one host call.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    pub call: CallId,
    pub value: ReplyValue,
}

/// How a host call settled. The bytes are JSON.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplyValue {
    /// The call returned this value.
    Resolved(Vec<u8>),
    /// The call failed: `{"message": …, "code"?: …, "tool"?: …}`.
    Rejected(Vec<u8>),
}

// The kinds of frames, which are the first byte of each.
const CATALOG: u8 = 1;
const FORGET: u8 = 2;
const START: u8 = 3;
const DELIVER: u8 = 4;
const FREEZE: u8 = 5;
const THAW: u8 = 6;
const DROP: u8 = 7;

impl ToWorker {
    pub fn encode(&self) -> Vec<u8> {
        let mut out;
        match self {
            Self::Catalog { hash, tables } => {
                out = Writer::new(CATALOG, 0);
                out.array(&hash.0);
                out.bytes(tables);
            }
            Self::Forget { hash } => {
                out = Writer::new(FORGET, 0);
                out.array(&hash.0);
            }
            Self::Start(cell, start) => {
                out = Writer::new(START, cell.0);
                write_budget(&mut out, start.budget);
                out.array(&start.catalog.0);
                out.u64(start.seed);
                out.u8(match start.language {
                    Language::JavaScript => 0,
                    Language::TypeScript => 1,
                });
                out.u8(u8::from(start.languages.allow(Language::JavaScript)));
                out.u8(u8::from(start.languages.allow(Language::TypeScript)));
                out.bytes(start.source.as_bytes());
            }
            Self::Deliver(cell, deliver) => {
                out = Writer::new(DELIVER, cell.0);
                write_deliver(&mut out, deliver);
            }
            Self::Freeze { cell, max_bytes } => {
                out = Writer::new(FREEZE, cell.0);
                out.u64(*max_bytes);
            }
            Self::Thaw(cell, thaw) => {
                out = Writer::new(THAW, cell.0);
                out.array(&thaw.catalog.0);
                out.bytes(&thaw.snapshot);
                write_deliver(&mut out, &thaw.deliver);
            }
            Self::Drop(cell) => out = Writer::new(DROP, cell.0),
        }
        out.finish()
    }

    pub fn decode(frame: &[u8]) -> Result<Self, BadFrame> {
        let mut from = Reader::new(frame);
        let kind = from.u8()?;
        let cell = CellId(from.u64()?);
        let decoded = match kind {
            // These frames concern no cell, so their cell id is 0.
            CATALOG | FORGET if cell.0 != 0 => return Err(BadFrame::Invalid("cell")),
            CATALOG => Self::Catalog { hash: CatalogHash(from.array()?), tables: from.bytes()?.to_vec() },
            FORGET => Self::Forget { hash: CatalogHash(from.array()?) },
            START => Self::Start(
                cell,
                Start {
                    budget: read_budget(&mut from)?,
                    catalog: CatalogHash(from.array()?),
                    seed: from.u64()?,
                    language: read_language(&mut from)?,
                    languages: read_languages(&mut from)?,
                    source: from.text()?,
                },
            ),
            DELIVER => Self::Deliver(cell, read_deliver(&mut from)?),
            FREEZE => Self::Freeze { cell, max_bytes: from.u64()? },
            THAW => Self::Thaw(
                cell,
                Thaw {
                    catalog: CatalogHash(from.array()?),
                    snapshot: from.bytes()?.to_vec(),
                    deliver: read_deliver(&mut from)?,
                },
            ),
            DROP => Self::Drop(cell),
            _ => return Err(BadFrame::Invalid("kind")),
        };
        from.finish()?;
        Ok(decoded)
    }
}

fn write_budget(out: &mut Writer, budget: Budget) {
    out.u64(budget.run_ms);
    out.u64(budget.memory_bytes);
    out.u64(budget.output_bytes);
    out.u64(budget.clock_us);
}

fn read_budget(from: &mut Reader<'_>) -> Result<Budget, BadFrame> {
    Ok(Budget { run_ms: from.u64()?, memory_bytes: from.u64()?, output_bytes: from.u64()?, clock_us: from.u64()? })
}

fn read_language(from: &mut Reader<'_>) -> Result<Language, BadFrame> {
    match from.u8()? {
        0 => Ok(Language::JavaScript),
        1 => Ok(Language::TypeScript),
        _ => Err(BadFrame::Invalid("language")),
    }
}

fn read_languages(from: &mut Reader<'_>) -> Result<Languages, BadFrame> {
    let mut languages = Vec::new();
    for language in [Language::JavaScript, Language::TypeScript] {
        if from.bool()? {
            languages.push(language);
        }
    }
    Languages::of(&languages).ok_or(BadFrame::Invalid("languages"))
}

fn write_deliver(out: &mut Writer, deliver: &Deliver) {
    write_budget(out, deliver.budget);
    out.u32(u32::try_from(deliver.replies.len()).unwrap_or(u32::MAX));
    for reply in &deliver.replies {
        out.u32(reply.call.0);
        match &reply.value {
            ReplyValue::Resolved(json) => {
                out.u8(0);
                out.bytes(json);
            }
            ReplyValue::Rejected(json) => {
                out.u8(1);
                out.bytes(json);
            }
        }
    }
}

fn read_deliver(from: &mut Reader<'_>) -> Result<Deliver, BadFrame> {
    let budget = read_budget(from)?;
    let replies = from.list(|from| {
        let call = CallId(from.u32()?);
        let value = match from.u8()? {
            0 => ReplyValue::Resolved(from.bytes()?.to_vec()),
            1 => ReplyValue::Rejected(from.bytes()?.to_vec()),
            _ => return Err(BadFrame::Invalid("reply")),
        };
        Ok(Reply { call, value })
    })?;
    Ok(Deliver { budget, replies })
}
