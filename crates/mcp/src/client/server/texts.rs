//! The long texts of a result, which were written to a file while the result was read.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use executor::{LargeSource, LargeText, insert_texts};
use process::{ArrivedTexts, SpooledText};
use serde_json::Value;

/// A long text, as the executor reads it.
#[derive(Debug)]
struct SpooledSource(SpooledText);

impl LargeSource for SpooledSource {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }
}

/// Inserts the texts into the result if memory is reserved for them; otherwise returns them, and the executor stores
/// them.
pub(super) async fn insert_or_return(result: &mut Value, arrived: ArrivedTexts) -> io::Result<Vec<LargeText>> {
    let ArrivedTexts { texts, is_reserved } = arrived;
    if !is_reserved {
        return Ok(texts.into_iter().map(for_executor).collect());
    }
    let read = move || texts.iter().map(|text| Ok((text.marker().to_owned(), read(text)?))).collect();
    let whole: io::Result<HashMap<String, String>> =
        tokio::task::spawn_blocking(read).await.unwrap_or_else(|error| Err(io::Error::other(error)));
    insert_texts(result, &mut whole?);
    Ok(Vec::new())
}

fn for_executor(text: SpooledText) -> LargeText {
    LargeText { marker: text.marker().to_owned(), bytes: text.len(), source: Arc::new(SpooledSource(text)) }
}

fn read(text: &SpooledText) -> io::Result<String> {
    let mut whole = vec![0; usize::try_from(text.len()).map_err(io::Error::other)?];
    let mut filled = 0;
    while let Some(rest) = whole.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match text.read_at(rest, filled as u64)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => filled += count,
        }
    }
    String::from_utf8(whole).map_err(io::Error::other)
}
