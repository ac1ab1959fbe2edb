//! Stores the texts of a result that are too large for the cell, and gives the cell handles of them.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use contract::ids::{CallId, OutputHandle};
use contract::limits::{MAX_RUN_STORED_RESULT_BYTES, OUTPUT_PIECE_BYTES, STORED_RESULT_FIRST_CHARS};
use store::{CommitError, NewOutput, OutputKind, StoreError};
use telemetry::IncidentId;

use crate::journal::Journal;
use crate::large::{LargeText, StoredText, refer_to_stored};
use crate::outcome::{DropCause, Outcome, ToolResult};

/// The bytes that the first or last characters of a text have at most.
const MAX_EDGE_BYTES: usize = STORED_RESULT_FIRST_CHARS * 4;

/// The call that a result belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResultOf<'a> {
    pub(crate) journal: &'a Journal,
    pub(crate) call: CallId,
    /// The tool's id.
    pub(crate) tool: &'a str,
}

/// Stores the large texts of an outcome. If one cannot be stored, the outcome is a failure that says so: the tool was
/// called.
pub(crate) async fn store_large_texts(of: ResultOf<'_>, outcome: Outcome) -> Outcome {
    let mut returned = match outcome {
        Outcome::Returned(returned) if !returned.large.is_empty() => returned,
        other => return other,
    };
    let large = std::mem::take(&mut returned.large);
    let bytes = large.iter().map(|text| text.bytes).sum::<u64>();
    match Box::pin(store_all(of, &large, bytes)).await {
        Ok(stored) => {
            refer(&mut returned, &large, &stored);
            Outcome::Returned(returned)
        }
        Err(why) => Outcome::dropped(why.cause(), format_args!("`{}` returned {bytes} bytes: {why}", of.tool)),
    }
}

/// Puts the handles into a result.
fn refer(returned: &mut ToolResult, large: &[LargeText], stored: &HashMap<String, StoredText>) {
    // A result that is only a text is for the cell that text, or what stands for it.
    if let (None, [block], [text]) = (&returned.details, returned.content.as_slice(), large)
        && block.get("text").and_then(serde_json::Value::as_str) == Some(&text.marker)
    {
        returned.details = stored.get(&text.marker).map(StoredText::preview);
    }
    for value in returned.content.iter_mut().chain(&mut returned.details) {
        refer_to_stored(value, stored);
    }
}

/// Why texts were not stored.
#[derive(Debug, thiserror::Error)]
enum NotStored {
    #[error(
        "one run may store {MAX_RUN_STORED_RESULT_BYTES} bytes of results; ask the tool for less at once, or continue in \
         another cell"
    )]
    RunLimit,
    #[error("{0}")]
    Quota(Box<store::QuotaExceeded>),
    #[error("{public} (incident {incident}); check whether the call took effect before you repeat it")]
    Store { public: &'static str, incident: IncidentId },
    #[error("this process no longer holds the run")]
    Stopped,
    #[error("the host cannot read it from its temporary file; check whether the call took effect before you repeat it")]
    Read,
}

impl NotStored {
    fn cause(&self) -> DropCause {
        match self {
            Self::RunLimit | Self::Quota(_) => DropCause::TooLarge,
            Self::Store { .. } | Self::Stopped | Self::Read => DropCause::Unavailable,
        }
    }
}

impl From<CommitError> for NotStored {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Quota(exceeded) => Self::Quota(exceeded),
            CommitError::Store(error) => error.into(),
            _ => Self::Stopped,
        }
    }
}

impl From<StoreError> for NotStored {
    fn from(error: StoreError) -> Self {
        Self::Store { public: error.public(), incident: IncidentId::log("store a large result", &error) }
    }
}

async fn store_all(
    of: ResultOf<'_>,
    large: &[LargeText],
    bytes: u64,
) -> Result<HashMap<String, StoredText>, NotStored> {
    if !of.journal.reserve_stored_result(bytes, MAX_RUN_STORED_RESULT_BYTES as u64).await? {
        return Err(NotStored::RunLimit);
    }
    let written = write_all(of, large).await;
    if written.is_err() {
        of.journal.release_stored_result(bytes).await;
    }
    written
}

async fn write_all(of: ResultOf<'_>, large: &[LargeText]) -> Result<HashMap<String, StoredText>, NotStored> {
    let mut stored = HashMap::new();
    let mut names = Vec::with_capacity(large.len());
    for (index, text) in large.iter().enumerate() {
        let name = output_name(of.call, index);
        stored.insert(text.marker.clone(), write(of, &name, text).await?);
        names.push(name);
    }
    // Before the outcome is written, so that a stored outcome never names an output that is not visible.
    of.journal.finish_outputs(names).await?;
    Ok(stored)
}

/// Returns the name of a part of a call's result within its run. It is the same if the call is repeated after a crash.
fn output_name(call: CallId, index: usize) -> String {
    format!("c{}n{index}", call.0)
}

async fn write(of: ResultOf<'_>, name: &str, text: &LargeText) -> Result<StoredText, NotStored> {
    let output = NewOutput {
        name: name.to_owned(),
        kind: OutputKind::Text,
        mime_type: None,
        source: Some((of.call, of.tool.to_owned())),
        data: Vec::new(),
    };
    let mut writer = of.journal.output_writer(&output).await?;
    let mut edges = Edges::default();
    let mut offset = 0;
    loop {
        let source = Arc::clone(&text.source);
        let read = tokio::task::spawn_blocking(move || read_piece(source.as_ref(), offset)).await;
        let piece = read.map_err(io::Error::other).flatten().map_err(|error| {
            tracing::warn!(%error, "the temporary file of a large result cannot be read");
            NotStored::Read
        })?;
        if piece.is_empty() {
            break;
        }
        edges.add(&piece);
        writer.write(&piece).await?;
        offset += piece.len() as u64;
    }
    if offset != text.bytes {
        return Err(NotStored::Read);
    }
    writer.finish().await?;
    let handle = OutputHandle::of(of.journal.run_id(), name);
    Ok(StoredText { handle, bytes: text.bytes, first: edges.first(), last: edges.last() })
}

fn read_piece(source: &dyn crate::large::LargeSource, offset: u64) -> io::Result<Vec<u8>> {
    let mut piece = vec![0; OUTPUT_PIECE_BYTES];
    let mut filled = 0;
    while let Some(rest) = piece.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match source.read_at(rest, offset + filled as u64)? {
            0 => break,
            read => filled += read,
        }
    }
    piece.truncate(filled);
    Ok(piece)
}

/// The beginning and the end of a text that is read in pieces.
#[derive(Debug, Default)]
struct Edges {
    beginning: Vec<u8>,
    end: Vec<u8>,
}

impl Edges {
    fn add(&mut self, piece: &[u8]) {
        let room = MAX_EDGE_BYTES.saturating_sub(self.beginning.len());
        self.beginning.extend_from_slice(piece.get(..room).unwrap_or(piece));
        self.end.extend_from_slice(piece.get(piece.len().saturating_sub(MAX_EDGE_BYTES)..).unwrap_or_default());
        self.end.drain(..self.end.len().saturating_sub(MAX_EDGE_BYTES));
    }

    /// Returns the first characters. One that is cut at the end of `beginning` is not among them: characters have at most
    /// four bytes.
    fn first(&self) -> String {
        String::from_utf8_lossy(&self.beginning).chars().take(STORED_RESULT_FIRST_CHARS).collect()
    }

    fn last(&self) -> String {
        let text = String::from_utf8_lossy(&self.end);
        text.chars().skip(text.chars().count().saturating_sub(STORED_RESULT_FIRST_CHARS)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::io;
    use std::sync::Arc;

    use contract::ids::{CallId, OutputHandle};
    use serde_json::json;

    use super::{Edges, output_name, read_piece, refer};
    use crate::large::{LargeSource, LargeText, StoredText};
    use crate::outcome::ToolResult;

    /// Returns at most seven bytes at a time.
    #[derive(Debug)]
    struct Slow(Vec<u8>);

    impl LargeSource for Slow {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            let rest = self.0.get(usize::try_from(offset).unwrap()..).unwrap_or_default();
            let count = rest.len().min(buffer.len()).min(7);
            buffer.get_mut(..count).unwrap().copy_from_slice(rest.get(..count).unwrap());
            Ok(count)
        }
    }

    #[test]
    fn the_edges_of_a_text_are_whole_characters_whatever_its_pieces_are() {
        for text in ["", "short", &"\u{1F980}\u{e4}x".repeat(1_000), &"\u{20ac}".repeat(501), &"y".repeat(3_000)] {
            for size in [1, 3, 1_999, 10_000] {
                let mut edges = Edges::default();
                text.as_bytes().chunks(size).for_each(|piece| edges.add(piece));
                let all: Vec<char> = text.chars().collect();
                assert_eq!(edges.first(), all.iter().take(500).collect::<String>());
                assert_eq!(edges.last(), all.iter().skip(all.len().saturating_sub(500)).collect::<String>());
            }
        }
    }

    #[test]
    fn a_piece_is_read_whole_and_a_name_is_valid_in_a_handle() {
        let source = Slow(b"0123456789abcdef".to_vec());
        assert_eq!(read_piece(&source, 3).unwrap(), b"3456789abcdef");
        assert_eq!(read_piece(&source, 16).unwrap(), b"");
        let name = output_name(CallId(u32::MAX), 999);
        assert!(OutputHandle::of(&"cm_1".into(), &name).parts().is_some(), "{name}");
    }

    #[test]
    fn a_result_that_is_one_large_text_is_its_preview_for_the_cell() {
        let text = LargeText { marker: "m:0".to_owned(), bytes: 3, source: Arc::new(Slow(b"abc".to_vec())) };
        let stored = StoredText {
            handle: OutputHandle::new("out_r_c1n0"),
            bytes: 3,
            first: "abc".to_owned(),
            last: "abc".to_owned(),
        };
        let stored = HashMap::from([("m:0".to_owned(), stored)]);
        let mut plain = ToolResult::text("m:0");
        refer(&mut plain, std::slice::from_ref(&text), &stored);
        let preview = json!({"handle": "out_r_c1n0", "of": "text", "bytes": 3, "first": "abc", "last": "abc"});
        assert_eq!(plain.to_cell_value(), preview);
        let block = json!({"type": "text", "handle": "out_r_c1n0", "bytes": 3, "first": "abc"});
        assert_eq!(plain.content, std::slice::from_ref(&block));
        let mut whole = ToolResult { details: Some(json!({"content": [{"type": "text", "text": "m:0"}]})), ..plain };
        refer(&mut whole, &[text], &stored);
        assert_eq!(whole.to_cell_value(), json!({"content": [block]}));
    }
}
