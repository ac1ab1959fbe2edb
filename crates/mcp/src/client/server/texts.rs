//! The long texts of a result, which were taken out of it while it was read.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use executor::{LargeSource, LargeText, insert_texts};
use process::{ArrivedTexts, SpooledText};
use serde_json::Value;

/// A long text, as the executor reads it.
#[derive(Debug)]
struct Spooled(SpooledText);

impl LargeSource for Spooled {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }
}

/// Puts the texts back into the result if there is memory for them; otherwise returns them for the executor.
pub(super) async fn put_back(result: &mut Value, arrived: ArrivedTexts) -> io::Result<Vec<LargeText>> {
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
    LargeText { marker: text.marker().to_owned(), bytes: text.len(), source: Arc::new(Spooled(text)) }
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
