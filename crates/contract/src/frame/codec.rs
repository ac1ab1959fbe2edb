//! Encodes and decodes the fields of a frame, and splits a byte stream into frames.

use super::MAX_FRAME_BYTES;

/// Why a frame cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFrame {
    #[error("frame of {0} bytes is too long; at most {MAX_FRAME_BYTES} are allowed")]
    TooLong(usize),
    #[error("frame ends inside a field")]
    Cut,
    #[error("frame has {0} bytes after its last field")]
    Trailing(usize),
    #[error("frame has an invalid field: {0}")]
    Invalid(&'static str),
    #[error("frame contains text that is not UTF-8")]
    NotUtf8,
    #[error("frame contains text that is not JSON")]
    NotJson,
}

/// Builds one frame, length prefix included.
#[derive(Debug)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub fn new(kind: u8, cell: u64) -> Self {
        let mut bytes = Vec::with_capacity(128);
        bytes.extend_from_slice(&[0; 4]);
        bytes.push(kind);
        bytes.extend_from_slice(&cell.to_le_bytes());
        Self { bytes }
    }

    pub fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub fn array(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
    }

    /// Writes bytes with their length. The length fits a `u32`, because every producer limits what it sends.
    pub fn bytes(&mut self, value: &[u8]) {
        self.u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
        self.bytes.extend_from_slice(value);
    }

    pub fn finish(mut self) -> Vec<u8> {
        let length = u32::try_from(self.bytes.len() - 4).unwrap_or(u32::MAX).to_le_bytes();
        if let Some(prefix) = self.bytes.get_mut(..4) {
            prefix.copy_from_slice(&length);
        }
        self.bytes
    }
}

/// Reads the fields of one frame, without its length prefix.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(frame: &'a [u8]) -> Self {
        Self { rest: frame }
    }

    pub fn take(&mut self, count: usize) -> Result<&'a [u8], BadFrame> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(BadFrame::Cut)?;
        self.rest = rest;
        Ok(taken)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], BadFrame> {
        self.take(N)?.try_into().map_err(|_| BadFrame::Cut)
    }

    pub fn u8(&mut self) -> Result<u8, BadFrame> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub fn bool(&mut self) -> Result<bool, BadFrame> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(BadFrame::Invalid("flag")),
        }
    }

    pub fn u32(&mut self) -> Result<u32, BadFrame> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, BadFrame> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn bytes(&mut self) -> Result<&'a [u8], BadFrame> {
        let length = self.u32()?;
        self.take(length as usize)
    }

    pub fn text(&mut self) -> Result<String, BadFrame> {
        std::str::from_utf8(self.bytes()?).map(str::to_owned).map_err(|_| BadFrame::NotUtf8)
    }

    /// Reads a list with its count. Memory grows with the items that are read, because the count is not trusted.
    pub fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T, BadFrame>) -> Result<Vec<T>, BadFrame> {
        let count = self.u32()?;
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }

    pub fn finish(self) -> Result<(), BadFrame> {
        match self.rest.len() {
            0 => Ok(()),
            extra => Err(BadFrame::Trailing(extra)),
        }
    }
}

/// Splits a byte stream into frames. It holds only bytes that were received, whatever length a frame claims.
#[derive(Debug, Default)]
pub struct FrameBuffer {
    bytes: Vec<u8>,
    start: usize,
}

impl FrameBuffer {
    pub fn extend(&mut self, received: &[u8]) {
        if self.start > 0 && self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        }
        self.bytes.extend_from_slice(received);
    }

    /// Returns the next complete frame, without its length prefix.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, BadFrame> {
        let waiting = self.bytes.get(self.start..).unwrap_or_default();
        let Some(prefix) = waiting.first_chunk::<4>() else {
            self.compact();
            return Ok(None);
        };
        let length = u32::from_le_bytes(*prefix) as usize;
        if length > MAX_FRAME_BYTES {
            return Err(BadFrame::TooLong(length));
        }
        if waiting.len() < 4 + length {
            self.compact();
            return Ok(None);
        }
        let from = self.start + 4;
        self.start = from + length;
        Ok(self.bytes.get(from..from + length))
    }

    /// Moves the unread bytes to the front and frees the memory of a large frame.
    fn compact(&mut self) {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        if self.bytes.capacity() > KEEP_BYTES && self.bytes.len() < KEEP_BYTES / 2 {
            self.bytes.shrink_to(KEEP_BYTES / 2);
        }
    }
}

/// A buffer with a larger capacity is shrunk once it is mostly empty.
const KEEP_BYTES: usize = 1 << 20;
