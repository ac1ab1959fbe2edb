//! `read`: lines of a text file, an image, or what kind of binary file it is.

use std::io::Read;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use contract::limits::{MAX_IMAGE_BYTES, MAX_READ_BYTES, MAX_READ_SCAN_BYTES};
use executor::ToolResult;
use rustix::io::Errno;
use serde_json::{Value, json};

use super::CancelFlag;
use super::failure::{Failure, refused};
use super::input::Input;
use super::open::{RegularFile, open_file};
use super::text::{BOM, SNIFFED_BYTES, first_lines, image_type, is_binary, is_utf16};
use crate::core::roots::{Place, Roots, shorten};

pub(super) fn read(roots: &Roots, input: &Input<'_>, cancel: &CancelFlag) -> Result<ToolResult, Failure> {
    let place = roots.locate(input.required_text("path")?)?;
    let (offset, limit) = (input.count("offset")?.unwrap_or(1), input.count("limit")?);
    let mut opened = open_file(roots, &place)?;
    let mut buffer = vec![0; 256 << 10];
    let first = fill(roots, &place, &mut opened, &mut buffer)?;
    let beginning = buffer.get(..first.min(SNIFFED_BYTES)).unwrap_or_default();
    let bytes = u64::try_from(opened.stat.st_size).unwrap_or(0);
    if let Some(media_type) = image_type(beginning) {
        return image(roots, &place, opened, buffer.get(..first).unwrap_or_default(), bytes, media_type, cancel);
    }
    if is_binary(beginning) {
        return Ok(binary(&place, beginning, bytes));
    }
    let mut lines = Selection::new(offset, limit);
    let mut count = first;
    while count > 0 && lines.scanned < MAX_READ_SCAN_BYTES {
        cancel.check()?;
        lines.take(buffer.get(..count).unwrap_or_default());
        count = fill(roots, &place, &mut opened, &mut buffer)?;
    }
    lines.is_counted = count == 0;
    lines.into_result(&place)
}

/// Reads some bytes; none at the end of the file.
fn fill(roots: &Roots, place: &Place, opened: &mut RegularFile, buffer: &mut [u8]) -> Result<usize, Failure> {
    loop {
        match opened.file.read(buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(refused(roots, place, Errno::from_io_error(&error).unwrap_or(Errno::IO))),
            Ok(count) => return Ok(count),
        }
    }
}

/// The lines that were asked for, collected while the file is scanned.
#[derive(Debug)]
struct Selection {
    first_line: u64,
    /// The line after the last one.
    end: u64,
    /// The line that the next byte belongs to.
    line: u64,
    text: Vec<u8>,
    is_full: bool,
    scanned: u64,
    /// The last byte that was scanned.
    last: Option<u8>,
    /// Whether the end of the file was reached, so that its lines are known.
    is_counted: bool,
    /// Whether the only line did not fit.
    is_cut_inside: bool,
}

impl Selection {
    fn new(offset: u64, limit: Option<u64>) -> Self {
        let end = limit.map_or(u64::MAX, |limit| offset.saturating_add(limit));
        Self {
            first_line: offset,
            end,
            line: 1,
            text: Vec::new(),
            is_full: false,
            scanned: 0,
            last: None,
            is_counted: false,
            is_cut_inside: false,
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.scanned += bytes.len() as u64;
        self.last = bytes.last().copied().or(self.last);
        if self.is_full || self.line >= self.end {
            // Only the number of lines is of interest.
            self.line += memchr::memchr_iter(b'\n', bytes).count() as u64;
            return;
        }
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if (self.first_line..self.end).contains(&self.line) && !self.is_full {
                let space = MAX_READ_BYTES - self.text.len();
                self.is_full = piece.len() > space;
                self.text.extend_from_slice(piece.get(..piece.len().min(space)).unwrap_or_default());
            }
            if piece.ends_with(b"\n") {
                self.line += 1;
            }
        }
    }

    /// Returns the number of lines that were scanned. A last line without a line break counts.
    fn total(&self) -> u64 {
        match self.last {
            None => 0,
            Some(b'\n') => self.line - 1,
            Some(_) => self.line,
        }
    }

    fn into_result(mut self, place: &Place) -> Result<ToolResult, Failure> {
        let total = self.total();
        if self.first_line > total.max(1) {
            let path = shorten(&place.shown);
            let known = if self.is_counted { "" } else { " in its scanned part" };
            return Err(Failure::new(format!(
                "`{path}` has {total} lines{known}; `offset` {} is after them",
                self.first_line
            )));
        }
        if self.is_full {
            self.drop_incomplete_line();
        }
        let has_bom = self.first_line == 1 && self.text.starts_with(BOM);
        let bytes = if has_bom { self.text.get(BOM.len()..).unwrap_or_default() } else { self.text.as_slice() };
        let text = String::from_utf8_lossy(bytes);
        let is_lossy = matches!(text, std::borrow::Cow::Owned(_));
        let breaks = text.bytes().filter(|byte| *byte == b'\n').count() as u64;
        let count = breaks + u64::from(!text.is_empty() && !text.ends_with('\n'));
        let end_line = (self.first_line + count).saturating_sub(1);
        let is_truncated = self.is_cut_inside || end_line < total || !self.is_counted;
        let next = (end_line < total || !self.is_counted).then_some(end_line + 1);
        let mut details = json!({
            "kind": "text",
            "path": place.shown,
            "text": text,
            "startLine": self.first_line,
            "endLine": end_line,
            "totalLines": self.is_counted.then_some(total),
            "truncated": is_truncated,
        });
        let mut add = |key: &str, value: Value| {
            if let Some(fields) = details.as_object_mut() {
                fields.insert(key.to_owned(), value);
            }
        };
        if let Some(next) = next {
            add("nextOffset", Value::from(next));
        }
        if is_lossy {
            add("lossy", Value::from(true));
        }
        if has_bom {
            add("bom", Value::from(true));
        }
        let mut notes = self.notes(&text, total);
        if is_lossy {
            notes.push("the file is not valid UTF-8; invalid bytes are shown as U+FFFD".to_owned());
        }
        let shown = first_lines(&text).0;
        let block = if notes.is_empty() { shown.to_owned() } else { format!("{shown}\n\n[{}]", notes.join(". ")) };
        Ok(ToolResult {
            content: vec![json!({"type": "text", "text": block})],
            details: Some(details),
            ..ToolResult::default()
        })
    }

    /// Removes the last line, which did not fit. If it is the only one, removes only what is left of its last character.
    fn drop_incomplete_line(&mut self) {
        if let Some(end) = self.text.iter().rposition(|byte| *byte == b'\n') {
            self.text.truncate(end + 1);
            return;
        }
        if let Err(error) = std::str::from_utf8(&self.text)
            && error.error_len().is_none()
        {
            self.text.truncate(error.valid_up_to());
        }
        self.is_cut_inside = true;
    }

    /// Returns what the text block says after the text. The model sees fewer lines than a cell.
    fn notes(&self, text: &str, total: u64) -> Vec<String> {
        let (shown, is_cut) = first_lines(text);
        let lines = shown.lines().count() as u64;
        let last = (self.first_line + lines).saturating_sub(1);
        let mut notes = Vec::new();
        let of = if self.is_counted { format!("of {total}") } else { format!("of more than {total}") };
        if self.is_cut_inside || (is_cut && lines <= 1) {
            notes.push(format!("line {} is too long, and only its beginning is shown", self.first_line));
        } else if last < total || !self.is_counted {
            notes.push(format!("lines {} to {last} {of}; continue with offset {}", self.first_line, last + 1));
        }
        notes
    }
}

fn binary(place: &Place, beginning: &[u8], bytes: u64) -> ToolResult {
    let path = shorten(&place.shown);
    let what = if is_utf16(beginning) { "text in UTF-16, which `read` does not decode" } else { "a binary file" };
    let details = json!({"kind": "binary", "path": place.shown, "bytes": bytes});
    let text = format!("`{path}` is {what}, {bytes} bytes");
    ToolResult { details: Some(details), ..ToolResult::text(text) }
}

/// Returns an image as a content block. Cells get only its type and size: they cannot show it.
fn image(
    roots: &Roots,
    place: &Place,
    mut opened: RegularFile,
    first: &[u8],
    bytes: u64,
    media_type: &str,
    cancel: &CancelFlag,
) -> Result<ToolResult, Failure> {
    let path = shorten(&place.shown);
    let details = json!({"kind": "image", "path": place.shown, "mimeType": media_type, "bytes": bytes});
    let mut content = first.to_vec();
    let mut buffer = vec![0; 256 << 10];
    loop {
        cancel.check()?;
        if content.len() > MAX_IMAGE_BYTES {
            let text =
                format!("`{path}` is an image ({media_type}) with more than {MAX_IMAGE_BYTES} bytes; it is not shown");
            return Ok(ToolResult { details: Some(details), ..ToolResult::text(text) });
        }
        match fill(roots, place, &mut opened, &mut buffer)? {
            0 => break,
            count => content.extend_from_slice(buffer.get(..count).unwrap_or_default()),
        }
    }
    let text = format!("`{path}` is an image ({media_type}, {} bytes)", content.len());
    let mut returned = ToolResult { details: Some(details), ..ToolResult::text(text) };
    returned.content.push(json!({"type": "image", "data": STANDARD.encode(&content), "mimeType": media_type}));
    Ok(returned)
}
