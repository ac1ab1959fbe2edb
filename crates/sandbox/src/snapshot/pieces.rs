//! The body of a snapshot in pieces, which two threads compress or decompress: the thread that takes or restores the
//! snapshot, and a spare thread of the process if it is idle. The first thread never waits for a piece that it can convert
//! itself.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe;

use crate::spare_thread::SpareThread;

/// The size from which a piece is complete. The compressor finds repetitions within this distance in any case.
pub(super) const PIECE_BYTES: usize = 512 << 10;

const COMPRESSION_LEVEL: i32 = 1;

/// How many pieces of a body are in memory without being converted, or were converted before they are needed. The bodies of
/// the largest cells have hundreds of pieces.
const MAX_AHEAD: usize = 4;

/// Bytes to compress or to decompress.
pub(super) struct Piece {
    bytes: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        self.bytes.get(self.range.clone()).unwrap_or_default()
    }
}

impl From<Vec<u8>> for Piece {
    fn from(bytes: Vec<u8>) -> Self {
        Self { range: 0..bytes.len(), bytes: Arc::new(bytes) }
    }
}

/// Splits compressed bytes into frames, each of which is a piece. `bodies` is what the frames hold together when they
/// are decompressed; `None` if they do not.
pub(super) fn split_frames(bytes: &Arc<Vec<u8>>, mut rest: Range<usize>, bodies: usize) -> Option<Vec<Piece>> {
    let mut pieces = Vec::new();
    let mut left = bodies;
    while !rest.is_empty() {
        let frames = bytes.get(rest.clone())?;
        let content = content_size(frames)?;
        // Frames without content could be many more than the limits of a body allow.
        left = left.checked_sub(content).filter(|_| content > 0)?;
        let end = rest.start.checked_add(zstd_safe::find_frame_compressed_size(frames).ok()?)?;
        pieces.push(Piece { bytes: Arc::clone(bytes), range: rest.start..end });
        rest.start = end;
    }
    (left == 0).then_some(pieces)
}

/// Returns the size that the first of these frames declares for its content.
fn content_size(frames: &[u8]) -> Option<usize> {
    usize::try_from(zstd_safe::get_frame_content_size(frames).ok()??).ok()
}

/// What is done with each piece.
type Convert = fn(&[u8]) -> io::Result<Vec<u8>>;

/// Pieces in order, which are converted by this thread and by a spare one.
pub(super) struct Pieces {
    shared: Arc<Shared>,
    /// Pieces that were not passed to `shared` yet.
    later: VecDeque<Piece>,
    pushed: usize,
    taken: usize,
}

struct Shared {
    convert: Convert,
    state: Mutex<State>,
    /// Notified when a piece was added or converted, and at the end.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<(usize, Piece)>,
    converted: BTreeMap<usize, io::Result<Vec<u8>>>,
    /// Whether no more pieces are added.
    complete: bool,
}

impl Pieces {
    pub(super) fn to_compress() -> Self {
        Self::converted_by(compress)
    }

    pub(super) fn to_decompress(pieces: Vec<Piece>, spare: &SpareThread) -> Self {
        let mut decompressed = Self::converted_by(decompress);
        decompressed.later = pieces.into();
        decompressed.pass_on();
        decompressed.share_with(spare);
        decompressed
    }

    fn converted_by(convert: Convert) -> Self {
        let shared = Shared { convert, state: Mutex::default(), changed: Condvar::new() };
        Self { shared: Arc::new(shared), later: VecDeque::new(), pushed: 0, taken: 0 }
    }

    /// Adds a piece. If many wait already, converts one of them.
    pub(super) fn push(&mut self, piece: Piece, spare: &SpareThread) {
        self.shared.leave_waiting(MAX_AHEAD);
        self.add(piece);
        if self.pushed == 2 {
            self.share_with(spare);
        }
    }

    /// Declares that all pieces were added.
    pub(super) fn complete(&self) {
        self.shared.lock().complete = true;
        self.shared.changed.notify_all();
    }

    /// Returns the next piece, converted; `None` after the last.
    pub(super) fn next(&mut self) -> Option<io::Result<Vec<u8>>> {
        if self.taken == self.pushed {
            return None;
        }
        let converted = self.shared.wait_for(self.taken);
        self.taken += 1;
        if !self.later.is_empty() {
            self.pass_on();
        }
        Some(converted)
    }

    /// Adds pieces until enough are ahead of the next one that is taken.
    fn pass_on(&mut self) {
        while self.pushed <= self.taken + MAX_AHEAD
            && let Some(piece) = self.later.pop_front()
        {
            self.add(piece);
        }
        if self.later.is_empty() {
            self.complete();
        }
    }

    fn add(&mut self, piece: Piece) {
        self.shared.lock().waiting.push_back((self.pushed, piece));
        self.shared.changed.notify_all();
        self.pushed += 1;
    }

    /// Lets the spare thread convert pieces, if there are several. A single one is converted by this thread, because waking
    /// another takes about as long.
    fn share_with(&self, spare: &SpareThread) {
        if self.pushed > 1 {
            let shared = Arc::clone(&self.shared);
            spare.offer(move || shared.convert_until_complete());
        }
    }
}

impl Drop for Pieces {
    /// Ends the work on pieces whose results are not wanted any more.
    fn drop(&mut self) {
        self.shared.lock().waiting.clear();
        self.complete();
    }
}

impl Shared {
    /// Returns a converted piece. Until the spare thread has converted it, this thread converts others.
    fn wait_for(&self, number: usize) -> io::Result<Vec<u8>> {
        let mut state = self.lock();
        loop {
            if let Some(converted) = state.converted.remove(&number) {
                return converted;
            }
            state = match state.waiting.pop_front() {
                Some(piece) => {
                    drop(state);
                    self.convert(piece)
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Converts waiting pieces until fewer than this many are left.
    fn leave_waiting(&self, fewer_than: usize) {
        let mut state = self.lock();
        while state.waiting.len() >= fewer_than
            && let Some(piece) = state.waiting.pop_front()
        {
            drop(state);
            state = self.convert(piece);
        }
    }

    fn convert_until_complete(&self) {
        let mut state = self.lock();
        loop {
            state = match state.waiting.pop_front() {
                Some(piece) => {
                    drop(state);
                    self.convert(piece)
                }
                None if state.complete => return,
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn convert(&self, (number, piece): (usize, Piece)) -> MutexGuard<'_, State> {
        let converted = (self.convert)(piece.bytes());
        let mut state = self.lock();
        state.converted.insert(number, converted);
        self.changed.notify_all();
        state
    }

    /// Locks the state. Never held while a piece is converted.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

thread_local! {
    // Creating a context costs several times as much as compressing a small cell, so each thread keeps one.
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

fn compress(body: &[u8]) -> io::Result<Vec<u8>> {
    COMPRESSOR.with_borrow_mut(|compressor| match compressor {
        Some(compressor) => compressor.compress(body),
        None => compressor.insert(Compressor::new(COMPRESSION_LEVEL)?).compress(body),
    })
}

/// Decompresses one frame. [`split_frames`] has checked the size that it declares.
fn decompress(frame: &[u8]) -> io::Result<Vec<u8>> {
    let size = content_size(frame).ok_or(io::ErrorKind::InvalidData)?;
    let body = DECOMPRESSOR.with_borrow_mut(|decompressor| match decompressor {
        Some(decompressor) => decompressor.decompress(frame, size),
        None => decompressor.insert(Decompressor::new()?).decompress(frame, size),
    })?;
    if body.len() == size { Ok(body) } else { Err(io::ErrorKind::InvalidData.into()) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::{MAX_AHEAD, PIECE_BYTES, Piece, Pieces, split_frames};
    use crate::spare_thread::SpareThread;

    fn body(piece: usize) -> Vec<u8> {
        (0..PIECE_BYTES + piece).map(|at| (at * piece / 7) as u8).collect()
    }

    fn round_trip(pieces: usize, spare: &SpareThread) {
        let mut compressed = Pieces::to_compress();
        for piece in 0..pieces {
            compressed.push(body(piece).into(), spare);
            assert!(compressed.shared.lock().waiting.len() <= MAX_AHEAD);
        }
        compressed.complete();
        let frames: Vec<Vec<u8>> = std::iter::from_fn(|| compressed.next()).map(Result::unwrap).collect();
        assert_eq!(frames.len(), pieces);

        let bytes = Arc::new(frames.concat());
        let whole = (0..pieces).map(|piece| body(piece).len()).sum();
        let split = split_frames(&bytes, 0..bytes.len(), whole).unwrap();
        let mut decompressed = Pieces::to_decompress(split, spare);
        for piece in 0..pieces {
            assert!(decompressed.next().unwrap().unwrap() == body(piece), "{piece}");
            let state = decompressed.shared.lock();
            assert!(state.waiting.len() + state.converted.len() <= MAX_AHEAD + 1);
        }
        assert!(decompressed.next().is_none());
    }

    #[test]
    fn pieces_keep_their_order_with_and_without_a_spare_thread() {
        let spare = Arc::new(SpareThread::default());
        round_trip(16, &spare);
        let thread = Arc::clone(&spare);
        thread::spawn(move || thread.run());
        for pieces in [0, 1, 2, 3, 16] {
            for _ in 0..10 {
                round_trip(pieces, &spare);
            }
        }
    }

    #[test]
    fn a_spare_thread_is_free_again_after_pieces_were_dropped() {
        let spare = Arc::new(SpareThread::default());
        let thread = Arc::clone(&spare);
        thread::spawn(move || thread.run());
        for _ in 0..100 {
            let mut dropped = Pieces::to_compress();
            dropped.push(body(1).into(), &spare);
            dropped.push(body(2).into(), &spare);
        }
        while !spare.offer(|| ()) {
            thread::yield_now();
        }
    }

    #[test]
    fn frames_that_declare_another_size_are_refused() {
        let compress = |bytes: &[u8]| super::compress(bytes).unwrap();
        let split = |bytes: Vec<u8>, bodies: usize| {
            let end = bytes.len();
            split_frames(&Arc::new(bytes), 0..end, bodies).map(|pieces: Vec<Piece>| pieces.len())
        };
        let two = [compress(b"one"), compress(b"four")].concat();
        assert_eq!(split(two.clone(), 7), Some(2));
        assert_eq!(split(two.clone(), 6), None);
        assert_eq!(split(two.clone(), 8), None);
        assert_eq!(split(two[..two.len() - 1].to_vec(), 7), None);
        assert_eq!(split([&two[..], &compress(b"")].concat(), 7), None, "a frame without content");
        assert_eq!(split([&two[..], b"tail"].concat(), 7), None, "bytes that are no frame");
        assert_eq!(split(Vec::new(), 0), Some(0));
    }
}
