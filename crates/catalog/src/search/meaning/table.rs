//! The embedding table, as `scripts/embedding/make.py` writes it.

use std::collections::HashMap;
use std::sync::OnceLock;

use super::vector::Vector;

const MAGIC: &[u8; 8] = b"CMEANING";
const VERSION: u32 = 1;

/// The maximum number of pieces of a text that count.
const MAX_PIECES: usize = 256;

/// The embedding table: a vector for each piece of a word.
#[derive(Debug)]
pub struct Meaning {
    pieces: HashMap<&'static str, u32>,
    scales: Vec<f32>,
    rows: &'static [u8],
    dimensions: usize,
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

impl Meaning {
    /// Returns the embedded table, read on first use; `None` if the build had none.
    pub fn shipped() -> Option<&'static Self> {
        static READ: OnceLock<Option<Meaning>> = OnceLock::new();
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
        let rows = rest.take(count as usize * dimensions)?;
        if !rest.0.is_empty() || dimensions == 0 {
            return Err(MeaningError::Damaged);
        }
        Ok(Self { pieces, scales, rows, dimensions })
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
        let mut whole = vec![0.0_f32; self.dimensions];
        for (text, weight) in texts {
            let mut sum = vec![0.0_f32; self.dimensions];
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

    fn add(&self, piece: u32, sum: &mut [f32]) {
        let from = piece as usize * self.dimensions;
        let (Some(row), Some(scale)) = (self.rows.get(from..from + self.dimensions), self.scales.get(piece as usize))
        else {
            return;
        };
        for (total, value) in sum.iter_mut().zip(row) {
            *total += f32::from(value.cast_signed()) * scale;
        }
    }
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
