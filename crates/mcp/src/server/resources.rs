//! Stored outputs as MCP resources: `cellmate://out/<handle>`, and parts of them with `?offset=…&length=…`, in bytes.
//!
//! An output is visible to its principal, like its run. Unknown and foreign outputs are reported alike. The list has the
//! outputs of the calling client's own session only.

use contract::ids::OutputHandle;
use contract::limits::{MAX_LISTED_OUTPUTS, MAX_PAGE_RESOURCES, MAX_RESOURCE_READ_BYTES};
use store::{OutputKind, OutputPosition, OutputRow, SessionKey, Store, StoreError};

use super::client_key::ClientKey;
use super::principal::{Principal, PrincipalScope};

/// What the URI of every stored output begins with.
const PREFIX: &str = "cellmate://out/";

/// The template of the URIs. The last part is optional.
pub(crate) const TEMPLATE: &str = "cellmate://out/{handle}{?offset,length}";

/// The bytes of the longest URI: longer than any handle with both numbers.
const MAX_URI_BYTES: usize = 512;

/// The continuation bytes that the longest character has in UTF-8.
const MAX_CONTINUATION_BYTES: u64 = 3;

/// The address of a stored output, or of a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutputUri {
    pub(crate) handle: OutputHandle,
    /// `None` for the whole output.
    pub(crate) part: Option<Part>,
}

/// A range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// What a read returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutputPart {
    pub(crate) row: OutputRow,
    /// Where the data begins: a part of a text begins at a character.
    pub(crate) offset: u64,
    pub(crate) data: Data,
    /// Where the next part begins; `None` at the end.
    pub(crate) next: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    Text(String),
    Bytes(Vec<u8>),
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// There is no such output, or it belongs to another principal.
    #[error("there is no resource with this URI; `resources/list` lists the outputs of this session")]
    Unknown,
    #[error(
        "the output has {bytes} bytes, and one read returns at most {MAX_RESOURCE_READ_BYTES}: read it in parts, the first \
         is {first}"
    )]
    TooLarge { bytes: u64, first: String },
    #[error("`offset` and `length` are numbers of bytes, and `length` is at least 1: {TEMPLATE}")]
    BadPart,
    /// The message leaves out the store's error, which clients must not read.
    #[error("the store cannot be read; try again")]
    Store(#[from] StoreError),
}

impl OutputUri {
    /// Returns the URI of a whole output.
    pub(crate) fn whole(handle: &OutputHandle) -> String {
        format!("{PREFIX}{handle}")
    }

    fn of_part(handle: &OutputHandle, offset: u64) -> String {
        format!("{PREFIX}{handle}?offset={offset}&length={MAX_RESOURCE_READ_BYTES}")
    }

    pub(crate) fn parse(text: &str) -> Result<Self, ReadError> {
        let rest = text.strip_prefix(PREFIX).filter(|_| text.len() <= MAX_URI_BYTES).ok_or(ReadError::Unknown)?;
        let (handle, query) = rest.split_once('?').map_or((rest, None), |(handle, query)| (handle, Some(query)));
        let handle = OutputHandle::new(handle);
        handle.parts().ok_or(ReadError::Unknown)?;
        let part = query.map(Part::parse).transpose()?;
        Ok(Self { handle, part })
    }
}

impl Part {
    fn parse(query: &str) -> Result<Self, ReadError> {
        let (mut offset, mut length) = (None, None);
        for pair in query.split('&') {
            let (name, number) = pair.split_once('=').ok_or(ReadError::BadPart)?;
            let field = match name {
                "offset" => &mut offset,
                "length" => &mut length,
                _ => return Err(ReadError::BadPart),
            };
            let number: u64 = number.parse().map_err(|_| ReadError::BadPart)?;
            if field.replace(number).is_some() {
                return Err(ReadError::BadPart);
            }
        }
        match length {
            Some(0) => Err(ReadError::BadPart),
            length => Ok(Self {
                offset: offset.unwrap_or(0),
                length: length.unwrap_or(MAX_RESOURCE_READ_BYTES).min(MAX_RESOURCE_READ_BYTES),
            }),
        }
    }
}

impl OutputPart {
    /// Returns the URI of the next part.
    pub(crate) fn next_uri(&self) -> Option<String> {
        self.next.map(|offset| OutputUri::of_part(&self.row.handle, offset))
    }
}

/// Returns the media type of an output.
pub(crate) fn mime_type(row: &OutputRow) -> String {
    let known = row.mime_type.clone();
    known.unwrap_or_else(|| {
        let general = match row.kind {
            OutputKind::Text => "text/plain",
            OutputKind::Json => "application/json",
            OutputKind::Image | OutputKind::Audio | OutputKind::Binary => "application/octet-stream",
        };
        general.to_owned()
    })
}

/// Reads an output or a part of it for a principal.
pub(crate) async fn read(store: &Store, principal: &Principal, uri: &OutputUri) -> Result<OutputPart, ReadError> {
    let row = visible(store, principal, &uri.handle).await?.ok_or(ReadError::Unknown)?;
    let part = match uri.part {
        Some(part) => part,
        None if row.bytes <= MAX_RESOURCE_READ_BYTES => Part { offset: 0, length: MAX_RESOURCE_READ_BYTES },
        None => {
            return Err(ReadError::TooLarge { bytes: row.bytes, first: OutputUri::of_part(&row.handle, 0) });
        }
    };
    let is_text = matches!(row.kind, OutputKind::Text | OutputKind::Json);
    // The last character of a text may extend past the part.
    let more = if is_text { MAX_CONTINUATION_BYTES } else { 0 };
    let until = part.offset.saturating_add(part.length).saturating_add(more).min(row.bytes);
    let mut data = Vec::new();
    let mut at = part.offset;
    while at < until {
        let Some(piece) = store.output_piece(&row.handle, OutputPosition::Byte(at)).await? else { break };
        let skipped = usize::try_from(at.saturating_sub(piece.start_byte)).unwrap_or(usize::MAX);
        let wanted = usize::try_from(until - at).unwrap_or(usize::MAX);
        let rest = piece.data.get(skipped..).unwrap_or_default();
        let rest = rest.get(..wanted).unwrap_or(rest);
        if rest.is_empty() {
            break;
        }
        data.extend_from_slice(rest);
        at += rest.len() as u64;
    }
    Ok(cut(row, part, data))
}

/// Cuts the bytes from a part's beginning to at least its end to that part. A part of a text begins and ends between
/// characters: one across its beginning is left out, one across its end is included, so parts add up to the whole.
fn cut(row: OutputRow, part: Part, mut data: Vec<u8>) -> OutputPart {
    if matches!(row.kind, OutputKind::Image | OutputKind::Audio | OutputKind::Binary) {
        let next = part.offset.saturating_add(data.len() as u64);
        let next = (next < row.bytes && !data.is_empty()).then_some(next);
        return OutputPart { offset: part.offset, data: Data::Bytes(data), next, row };
    }
    let is_inside = |byte: &u8| byte & 0b1100_0000 == 0b1000_0000;
    let start = data.iter().take_while(|byte| is_inside(byte)).count();
    let mut end = usize::try_from(part.length).unwrap_or(usize::MAX).min(data.len());
    while data.get(end).is_some_and(is_inside) {
        end += 1;
    }
    data.truncate(end);
    data.drain(..start.min(end));
    let next = part.offset.saturating_add(end as u64);
    let next = (next < row.bytes && end > 0).then_some(next);
    // A text is stored as UTF-8, so nothing is replaced.
    let text = String::from_utf8(data).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    OutputPart { offset: part.offset.saturating_add(start as u64), data: Data::Text(text), next, row }
}

/// Returns an output if the principal may see it.
async fn visible(store: &Store, principal: &Principal, handle: &OutputHandle) -> Result<Option<OutputRow>, StoreError> {
    let Some((run_id, _)) = handle.parts() else { return Ok(None) };
    let run = store.run(&run_id).await?;
    if !run.is_some_and(|run| run.scope.admits(&principal.scope())) {
        return Ok(None);
    }
    store.output(handle).await
}

/// A page of a client's outputs, newest first, and the cursor of the next page.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) rows: Vec<OutputRow>,
    pub(crate) next: Option<String>,
}

/// Returns the page after a cursor. `None` if the cursor is invalid or outdated.
pub(crate) async fn list(
    store: &Store,
    (principal, client): (&Principal, &ClientKey),
    cursor: Option<&str>,
) -> Result<Option<Page>, StoreError> {
    let session = SessionKey::from(&client.scope(principal));
    let limit = u32::try_from(MAX_LISTED_OUTPUTS).unwrap_or(u32::MAX);
    Ok(page(store.outputs_of_session(&session, limit).await?, cursor))
}

/// Returns the page that begins after the output that the cursor names.
fn page(mut rows: Vec<OutputRow>, cursor: Option<&str>) -> Option<Page> {
    if let Some(cursor) = cursor {
        let last = rows.iter().position(|row| row.handle.as_str() == cursor)?;
        rows.drain(..=last);
    }
    let is_last = rows.len() <= MAX_PAGE_RESOURCES;
    rows.truncate(MAX_PAGE_RESOURCES);
    let next = rows.last().filter(|_| !is_last).map(|row| row.handle.as_str().to_owned());
    Some(Page { rows, next })
}

#[cfg(test)]
mod tests {
    use contract::ids::OutputHandle;
    use contract::limits::{MAX_PAGE_RESOURCES, MAX_RESOURCE_READ_BYTES};
    use proptest::prelude::*;
    use store::{OutputKind, OutputRow};

    use super::{Data, OutputUri, Part, cut, page};

    fn row(kind: OutputKind, name: &str, bytes: u64) -> OutputRow {
        let handle = OutputHandle::of(&"cm_1".into(), name);
        OutputRow { handle, kind, mime_type: None, source: None, bytes, units: bytes, lines: 1, created_at: 0 }
    }

    #[test]
    fn a_uri_names_an_output_or_a_part_of_it() {
        let part =
            |text: &str| OutputUri::parse(&format!("cellmate://out/out_cm_1_l1n0{text}")).ok().map(|uri| uri.part);
        assert_eq!(part(""), Some(None));
        let rest = MAX_RESOURCE_READ_BYTES;
        for (query, offset, length) in [
            ("?offset=5&length=7", 5, 7),
            ("?length=7", 0, 7),
            ("?offset=5", 5, rest),
            ("?length=99999999999", 0, rest),
        ] {
            assert_eq!(part(query), Some(Some(Part { offset, length })), "{query}");
        }
        for query in ["?", "?offset", "?offset=-1", "?length=0", "?offset=1&offset=2", "?other=1", "?offset=1e3", "/x"]
        {
            assert_eq!(part(query), None, "{query}");
        }
        for uri in ["", "file:///etc/passwd", "cellmate://out/", "cellmate://out/x", "CELLMATE://out/out_cm_1_l1n0"] {
            assert!(OutputUri::parse(uri).is_err(), "{uri}");
        }
        let long = format!("cellmate://out/out_{}_l1n0", "x".repeat(600));
        assert!(OutputUri::parse(&long).is_err());
        let handle = OutputHandle::of(&"cm_1".into(), "l1n0");
        assert_eq!(OutputUri::parse(&OutputUri::whole(&handle)).unwrap().handle, handle);
        assert_eq!(
            OutputUri::parse(&OutputUri::of_part(&handle, 9)).unwrap().part,
            Some(Part { offset: 9, length: rest })
        );
    }

    proptest! {
        #[test]
        fn parts_of_a_text_of_any_length_add_up_to_it(text in "[a\u{e9}\u{20ac}\u{1F600}]{0,40}", length in 1_u64..9) {
            let (mut whole, mut by_number, mut at) = (String::new(), String::new(), Some(0));
            let read = |offset: u64| {
                let from = usize::try_from(offset).unwrap();
                let until = text.len().min(from + usize::try_from(length).unwrap() + 3);
                let data = text.as_bytes().get(from..until).unwrap_or_default().to_vec();
                cut(row(OutputKind::Text, "a", text.len() as u64), Part { offset, length }, data)
            };
            while let Some(offset) = at {
                let part = read(offset);
                let Data::Text(more) = part.data else { unreachable!() };
                whole += &more;
                at = part.next;
            }
            prop_assert_eq!(&whole, &text);
            for offset in (0..text.len() as u64).step_by(usize::try_from(length).unwrap()) {
                let Data::Text(more) = read(offset).data else { unreachable!() };
                by_number += &more;
            }
            prop_assert_eq!(&by_number, &text);
        }
    }

    #[test]
    fn bytes_are_cut_anywhere_and_past_the_end_there_is_nothing() {
        let part = cut(row(OutputKind::Image, "a", 9), Part { offset: 4, length: 2 }, vec![0x80, 0x81]);
        assert_eq!((part.offset, &part.data, part.next), (4, &Data::Bytes(vec![0x80, 0x81]), Some(6)));
        assert_eq!(
            part.next_uri().unwrap(),
            format!("cellmate://out/out_cm_1_a?offset=6&length={MAX_RESOURCE_READ_BYTES}")
        );
        for kind in [OutputKind::Image, OutputKind::Text] {
            assert_eq!(cut(row(kind, "a", 9), Part { offset: 9, length: 2 }, Vec::new()).next, None);
        }
    }

    #[test]
    fn outputs_are_listed_in_pages_that_new_outputs_do_not_shift() {
        let rows = |numbers: std::ops::Range<usize>| -> Vec<OutputRow> {
            numbers.rev().map(|number| row(OutputKind::Text, &format!("n{number}"), 1)).collect()
        };
        let first = page(rows(0..MAX_PAGE_RESOURCES + 7), None).unwrap();
        assert_eq!((first.rows.len(), first.next.as_deref()), (MAX_PAGE_RESOURCES, Some("out_cm_1_n7")));
        let second = page(rows(0..MAX_PAGE_RESOURCES + 9), first.next.as_deref()).unwrap();
        assert_eq!((second.rows.len(), second.rows[0].handle.as_str(), &second.next), (7, "out_cm_1_n6", &None));
        assert!(page(rows(0..3), Some("out_cm_1_n7")).is_none());
        assert_eq!(page(rows(0..MAX_PAGE_RESOURCES), None).unwrap().next, None);
    }
}
