//! The embedding table, as `scripts/embedding/make.py` writes it.

use std::collections::HashMap;
use std::sync::OnceLock;

use super::vector::Vector;

const MAGIC: &[u8; 8] = b"CMEANING";
const VERSION: u32 = 2;

/// The maximum number of pieces of a text that count.
const MAX_PIECES: usize = 256;

/// The embedding table: a vector for each piece of a word.
#[derive(Debug)]
pub struct EmbeddingTable {
    pieces: HashMap<&'static str, u32>,
    scales: Vec<f32>,
    /// Five bits for each number; `make.py` describes their order.
    rows: &'static [u8],
    /// The number of dimensions, divided by eight.
    eighth: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MeaningError {
    #[error("not an embedding table, or of another version; rebuild it with `make setup`")]
    Foreign,
    #[error("the embedding table is damaged; rebuild it with `make setup`")]
    Damaged,
}

/// The table that the build embedded; empty if there was none.
static SHIPPED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/meaning.bin"));

impl EmbeddingTable {
    /// Returns the embedded table, read on first use; `None` if the build had none.
    pub fn shipped() -> Option<&'static Self> {
        static READ: OnceLock<Option<EmbeddingTable>> = OnceLock::new();
        READ.get_or_init(|| Self::read(SHIPPED).ok()).as_ref()
    }

    pub fn read(bytes: &'static [u8]) -> Result<Self, MeaningError> {
        let (magic, rest) = bytes.split_first_chunk::<8>().ok_or(MeaningError::Foreign)?;
        let mut rest = Rest(rest);
        if magic != MAGIC || rest.number()? != VERSION {
            return Err(MeaningError::Foreign);
        }
        let (count, dimensions, _) = (rest.number()?, rest.number()? as usize, rest.number()?);
        let mut pieces = HashMap::with_capacity(count.min(1 << 20) as usize);
        for number in 0..count {
            let length = rest.take(1)?.first().copied().unwrap_or_default();
            let piece = std::str::from_utf8(rest.take(usize::from(length))?).map_err(|_| MeaningError::Damaged)?;
            pieces.insert(piece, number);
        }
        let scales = rest.take(count as usize * 4)?;
        let scales = scales.chunks_exact(4).filter_map(|bytes| bytes.try_into().ok()).map(f32::from_le_bytes).collect();
        let eighth = dimensions / 8;
        let rows = rest.take(count as usize * eighth * 5)?;
        if !rest.0.is_empty() || dimensions == 0 || !dimensions.is_multiple_of(8) {
            return Err(MeaningError::Damaged);
        }
        Ok(Self { pieces, scales, rows, eighth })
    }

    pub(super) fn piece(&self, piece: &str) -> Option<u32> {
        self.pieces.get(piece).copied()
    }

    /// Returns the text's vector; `None` if it has no known word.
    pub(crate) fn of(&self, text: &str) -> Option<Vector> {
        self.of_parts(&[(text, 1.0)])
    }

    /// Combines weighted texts into one vector, independent of their lengths.
    pub(crate) fn of_parts(&self, texts: &[(&str, f32)]) -> Option<Vector> {
        let mut whole = vec![0.0_f32; self.eighth * 8];
        for (text, weight) in texts {
            let mut sum = vec![0.0_f32; self.eighth * 8];
            let mut count = 0;
            self.pieces_of(text, |piece| {
                count += 1;
                if count <= MAX_PIECES {
                    self.add(piece, &mut sum);
                }
            });
            let length = sum.iter().map(|value| value * value).sum::<f32>().sqrt();
            if length > f32::EPSILON {
                whole.iter_mut().zip(sum).for_each(|(whole, value)| *whole += weight * value / length);
            }
        }
        Vector::unit(&whole)
    }

    /// Adds a piece's vector. Written so that the compiler vectorises it.
    fn add(&self, piece: u32, sum: &mut [f32]) {
        let from = piece as usize * self.eighth * 5;
        let row = self.rows.get(from..from + self.eighth * 5).and_then(|row| row.split_at_checked(self.eighth * 4));
        let (Some((low, top)), Some(scale)) = (row, self.scales.get(piece as usize)) else { return };
        // The low bits are in four eighths of the row, twice: first in the low halves of the bytes, then in the high.
        let low = low.chunks_exact(self.eighth);
        let eighths = sum.chunks_exact_mut(self.eighth).zip(low.clone().chain(low)).enumerate();
        for (number, (sum, low)) in eighths {
            let shift = if number < 4 { 0 } else { 4 };
            for ((total, low), top) in sum.iter_mut().zip(low).zip(top) {
                *total += number_of(low >> shift & 15 | (top >> number & 1) << 4) * scale;
            }
        }
    }
}

/// Returns the number that a level from 0 to 31 stands for; the inverse of `quantise` in `make.py`.
fn number_of(level: u8) -> f32 {
    let k = f32::from(level) - 15.5;
    k * (0.14 + 0.0006 * k * k)
}

struct Rest(&'static [u8]);

impl Rest {
    fn take(&mut self, count: usize) -> Result<&'static [u8], MeaningError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(MeaningError::Damaged)?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u32, MeaningError> {
        let bytes = self.take(4)?.try_into().map_err(|_| MeaningError::Damaged)?;
        Ok(u32::from_le_bytes(bytes))
    }
}
