//! Reads a message with large texts: writes the texts to an unnamed temporary file, and keeps the rest of the message in
//! memory.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use contract::limits::{
    LARGE_TEXT_BYTES, MAX_LARGE_MESSAGE_BYTES, MAX_LARGE_MESSAGE_SECONDS, MAX_SERVER_MESSAGE_BYTES, MAX_SPOOL_BYTES,
    MAX_SPOOL_WAIT_SECONDS, MAX_STORED_RESULT_BYTES,
};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::bounds::REMEDY;
use crate::large_texts::{LargeTexts, ScanLimits, TextSink, marker};

/// How many bytes of a file one permit of `SPOOLS` stands for.
const PERMIT_BYTES: usize = 1 << 10;

/// How many bytes are scanned or written at once.
const STEP_BYTES: usize = 256 << 10;

/// The budget for the temporary files of this process.
static SPOOLS: Semaphore = Semaphore::const_new(MAX_SPOOL_BYTES / PERMIT_BYTES);

/// Held by tests that use the budget of the process, so that they run one after the other.
#[cfg(test)]
pub(crate) static BUDGET_LOCK: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// A message with large texts that has been read whole.
#[derive(Debug)]
pub struct LargeMessage {
    /// The message, with a marker in the place of each large text.
    pub skeleton: Vec<u8>,
    /// The texts in their order, or why they were dropped and what to do.
    pub texts: Result<Vec<SpooledText>, String>,
}

/// A large text in a temporary file. The file is deleted when its last text is dropped or the process ends.
#[derive(Clone, Debug)]
pub struct SpooledText {
    marker: String,
    spool: Arc<Spool>,
    /// The offset of the text in the file.
    start: u64,
    bytes: u64,
    /// How many bytes longer the text is in JSON, because of escapes.
    escaped: u64,
}

/// The temporary file with the texts of one message, and its part of the budget.
#[derive(Debug)]
struct Spool {
    file: Arc<File>,
    _permit: SemaphorePermit<'static>,
}

impl SpooledText {
    /// Returns the text that stands for this one in the message.
    pub fn marker(&self) -> &str {
        &self.marker
    }

    /// Returns the length of the text in UTF-8.
    pub fn len(&self) -> u64 {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns the length of the text as JSON, without its quotation marks.
    pub fn json_len(&self) -> u64 {
        self.bytes + self.escaped
    }

    /// Reads a part of the text. Returns the number of bytes, which is 0 at the end. It blocks on the disk.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let left = usize::try_from(self.bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
        let max = buffer.len().min(left);
        match buffer.get_mut(..max) {
            Some(part) if max > 0 => self.spool.file.read_at(part, self.start + offset),
            _ => Ok(0),
        }
    }
}

/// The error that a message is too long, with or without its large texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageTooLong;

/// Reads a message with large texts. Its methods are cancel safe: a future may be dropped and the method called again.
pub struct LargeMessageReader {
    /// Bytes that have arrived and are not scanned yet, from `at`.
    incoming: Vec<u8>,
    at: usize,
    received: usize,
    scanner: LargeTexts,
    prefix: String,
    texts: Texts,
    reserving: Option<ReservationFuture>,
    permit: Option<SemaphorePermit<'static>>,
    file: Option<Arc<File>>,
    writing: Option<WriteTask>,
    /// When the message must have arrived. After that, its texts are dropped.
    until: Instant,
}

/// A write that is in progress. It returns the file and the empty buffer.
type WriteTask = JoinHandle<io::Result<(Arc<File>, Vec<u8>)>>;

/// A reservation that is in progress. It returns `None` if there was no room in time.
type ReservationFuture = Pin<Box<dyn Future<Output = Option<SemaphorePermit<'static>>> + Send + Sync>>;

impl fmt::Debug for LargeMessageReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LargeMessageReader").field("received", &self.received).finish_non_exhaustive()
    }
}

impl LargeMessageReader {
    /// Creates a reader for a message whose first bytes have arrived. `None` if the system's randomness, from
    /// which its markers are made, cannot be read.
    pub fn new(arrived: Vec<u8>) -> Option<Self> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).ok()?;
        let prefix = format!("cellmate-text-{:032x}", u128::from_ne_bytes(random));
        let limits = ScanLimits { text: LARGE_TEXT_BYTES, skeleton: MAX_SERVER_MESSAGE_BYTES };
        let all = u32::try_from(MAX_STORED_RESULT_BYTES.div_ceil(PERMIT_BYTES)).ok()?;
        let wait = Duration::from_secs(MAX_SPOOL_WAIT_SECONDS);
        Some(Self {
            received: arrived.len(),
            incoming: arrived,
            at: 0,
            scanner: LargeTexts::new(prefix.clone(), limits),
            prefix,
            texts: Texts::default(),
            // Reserved for the largest result at once: messages that each wait for a little more could wait for each
            // other.
            reserving: Some(Box::pin(
                async move { tokio::time::timeout(wait, SPOOLS.acquire_many(all)).await.ok()?.ok() },
            )),
            permit: None,
            file: None,
            writing: None,
            until: Instant::now() + Duration::from_secs(MAX_LARGE_MESSAGE_SECONDS),
        })
    }

    /// Adds bytes. [`Self::process`] must be called before the next ones are read.
    pub fn push(&mut self, bytes: &[u8]) {
        self.received = self.received.saturating_add(bytes.len());
        self.incoming.extend_from_slice(bytes);
    }

    /// Returns how many bytes are kept in memory.
    pub fn held(&self) -> usize {
        self.incoming.len() + self.scanner.held() + self.texts.buffer.len()
    }

    /// Waits for `read`, which returns more of the message. If the message takes too long, its texts are dropped, which
    /// frees their part of the budget, and the message is read on without them.
    pub async fn wait_for_more<T>(&mut self, read: impl Future<Output = T>) -> T {
        let mut read = pin!(read);
        if self.texts.dropped.is_none() {
            match tokio::time::timeout_at(self.until, &mut read).await {
                Ok(read) => return read,
                Err(_) => self.drop_texts(format!(
                    "its response was not complete within {MAX_LARGE_MESSAGE_SECONDS} seconds, so it was dropped; the \
                     call may have taken effect"
                )),
            }
        }
        read.await
    }

    /// Scans what has arrived, and writes the texts in it to the file.
    pub async fn process(&mut self) -> Result<(), MessageTooLong> {
        if self.received > MAX_LARGE_MESSAGE_BYTES {
            return Err(MessageTooLong);
        }
        self.reserve().await;
        // If the future of an earlier call was dropped during a write, the buffer comes back with that write.
        self.finish_write().await;
        while let Some(rest) = self.incoming.get(self.at..).filter(|rest| !rest.is_empty()) {
            let part = rest.get(..STEP_BYTES).unwrap_or(rest);
            self.scanner.push(part, &mut self.texts).map_err(|_| MessageTooLong)?;
            self.at += part.len();
            if self.texts.is_over_limit() {
                self.drop_texts(format!(
                    "the texts in its response have more than {MAX_STORED_RESULT_BYTES} bytes, so it was dropped; {REMEDY}"
                ));
            }
            self.write(STEP_BYTES).await;
        }
        self.at = 0;
        self.incoming.clear();
        self.incoming.shrink_to(STEP_BYTES);
        Ok(())
    }

    /// Processes the last bytes of the message and writes what is buffered. [`Self::into_message`] then returns the
    /// message.
    pub async fn finish(&mut self) -> Result<(), MessageTooLong> {
        self.process().await?;
        self.write(1).await;
        Ok(())
    }

    pub fn into_message(self) -> LargeMessage {
        let (skeleton, is_valid) = self.scanner.finish();
        let texts = match (self.texts.dropped, self.file, self.permit) {
            (Some(why), _, _) => Err(why),
            (None, _, _) if !is_valid => {
                Err("its response is not valid JSON; the call may have taken effect".to_owned())
            }
            (None, Some(file), Some(mut permit)) => {
                let used: u64 = self.texts.ranges.iter().map(|range| range.bytes).sum();
                let used = usize::try_from(used).unwrap_or(usize::MAX).div_ceil(PERMIT_BYTES);
                drop(permit.split(permit.num_permits().saturating_sub(used)));
                let spool = Arc::new(Spool { file, _permit: permit });
                let spooled = |(index, range): (usize, &TextRange)| SpooledText {
                    marker: marker(&self.prefix, index),
                    spool: Arc::clone(&spool),
                    start: range.start,
                    bytes: range.bytes,
                    escaped: range.escaped,
                };
                Ok(self.texts.ranges.iter().enumerate().map(spooled).collect())
            }
            // There are no texts.
            (None, _, _) => Ok(Vec::new()),
        };
        LargeMessage { skeleton, texts }
    }

    /// Waits for the reservation. If there was no room in time, the texts are dropped.
    async fn reserve(&mut self) {
        let Some(reserving) = &mut self.reserving else { return };
        let permit = reserving.await;
        self.reserving = None;
        match permit {
            Some(permit) => self.permit = Some(permit),
            None => self.drop_texts(
                "the host already receives as many large results as it can hold, so this one was dropped; call again \
                 later, or ask for less at once; the call may have taken effect"
                    .to_owned(),
            ),
        }
    }

    /// Writes the buffer to the file if it has at least `min_bytes`.
    async fn write(&mut self, min_bytes: usize) {
        if self.texts.buffer.len() >= min_bytes {
            let (data, file) = (std::mem::take(&mut self.texts.buffer), self.file.clone());
            self.writing = Some(tokio::task::spawn_blocking(move || append(file, data)));
            self.finish_write().await;
        }
    }

    /// Waits for the write in progress, if there is one.
    async fn finish_write(&mut self) {
        let Some(writing) = &mut self.writing else { return };
        let written = writing.await;
        self.writing = None;
        match written.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok((file, buffer)) => {
                self.file = Some(file).filter(|_| self.texts.dropped.is_none());
                self.texts.buffer = buffer;
            }
            Err(error) => {
                tracing::warn!(%error, "a large result of an MCP server cannot be written to a temporary file");
                self.drop_texts(
                    "the host cannot write its large result to a temporary file, so it was dropped; the call may have \
                     taken effect"
                        .to_owned(),
                );
            }
        }
    }

    /// Drops the texts and frees what they take. Only the skeleton is kept from now on.
    fn drop_texts(&mut self, why: String) {
        self.texts = Texts { dropped: Some(why), ..Texts::default() };
        (self.reserving, self.permit, self.file) = (None, None, None);
    }
}

/// Appends data to the file, or to a new one. Returns the file and the empty buffer. It blocks on the disk.
fn append(file: Option<Arc<File>>, mut data: Vec<u8>) -> io::Result<(Arc<File>, Vec<u8>)> {
    let file = match file {
        Some(file) => file,
        None => Arc::new(unnamed_file()?),
    };
    (&*file).write_all(&data)?;
    data.clear();
    Ok((file, data))
}

/// Creates a file that is in no folder, so that nothing is left of it if the process is killed.
fn unnamed_file() -> io::Result<File> {
    // Unlike `/tmp`, `/var/tmp` is not in memory on common systems.
    let folder = match std::env::var_os("TMPDIR") {
        Some(folder) if !folder.is_empty() => PathBuf::from(folder),
        _ => PathBuf::from("/var/tmp"),
    };
    tempfile::tempfile_in(folder).or_else(|_| tempfile::tempfile())
}

/// The texts of a message as the scanner finds them.
#[derive(Debug, Default)]
struct Texts {
    /// The bytes that are not written yet.
    buffer: Vec<u8>,
    /// The size of all texts so far.
    bytes: u64,
    ranges: Vec<TextRange>,
    /// Why the texts were dropped; `None` while they are kept.
    dropped: Option<String>,
}

/// The position of a text in the file; see the fields of `SpooledText`.
#[derive(Debug)]
struct TextRange {
    start: u64,
    bytes: u64,
    escaped: u64,
}

impl Texts {
    fn is_over_limit(&self) -> bool {
        self.bytes > MAX_STORED_RESULT_BYTES as u64
    }
}

impl TextSink for Texts {
    fn begin(&mut self) {
        self.ranges.push(TextRange { start: self.bytes, bytes: 0, escaped: 0 });
    }

    fn text(&mut self, part: &[u8]) {
        if self.dropped.is_some() {
            return;
        }
        self.buffer.extend_from_slice(part);
        self.bytes += part.len() as u64;
        if let Some(current) = self.ranges.last_mut() {
            current.bytes += part.len() as u64;
        }
    }

    fn end(&mut self, escaped: u64) {
        if let Some(current) = self.ranges.last_mut() {
            current.escaped = escaped;
        }
    }
}

#[cfg(test)]
mod tests;
