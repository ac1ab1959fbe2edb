//! Images and sounds of a result: they are moved out of JSON, stored, and shown as far as the result's budget allows.

use std::sync::Arc;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use contract::cell::{Media, MediaKind, OutputItem, Preview};
use contract::ids::OutputHandle;
use contract::limits::{Limits, MAX_JSON_VALUES};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use store::{NewOutput, OutputKind};

use super::Names;

/// Base64 as MCP servers write it, with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

fn stored_kind(kind: MediaKind) -> OutputKind {
    match kind {
        MediaKind::Image => OutputKind::Image,
        MediaKind::Audio => OutputKind::Audio,
    }
}

/// Returns the image or sound of an item.
pub(crate) fn media_of(item: &mut OutputItem) -> Option<&mut Media> {
    match item {
        OutputItem::Image(media) | OutputItem::Audio(media) => Some(media),
        OutputItem::Text { .. } | OutputItem::Json { .. } | OutputItem::Stored(_) => None,
    }
}

/// Stores the images and sounds of a result, and moves those inside JSON out of it. Those over the result's budget are
/// not shown.
pub(crate) fn take_media(
    value: &mut Option<Box<RawValue>>,
    output: &mut Vec<OutputItem>,
    limits: &Limits,
    names: &mut Names,
) -> Vec<NewOutput> {
    let has_media = |item: &OutputItem| match item {
        OutputItem::Image(_) | OutputItem::Audio(_) => true,
        OutputItem::Json { value } => may_have_blocks(value),
        OutputItem::Text { .. } | OutputItem::Stored(_) => false,
    };
    let value_has = value.as_deref().is_some_and(may_have_blocks);
    if !value_has && !output.iter().any(has_media) {
        return Vec::new();
    }
    let mut taken = MediaExtraction {
        names,
        known: Vec::new(),
        stored: Vec::new(),
        shown: Vec::with_capacity(output.len()),
        blocks: limits.media_blocks,
        bytes: limits.media_bytes,
    };
    for item in std::mem::take(output) {
        match item {
            OutputItem::Image(media) => taken.show(MediaKind::Image, media),
            OutputItem::Audio(media) => taken.show(MediaKind::Audio, media),
            OutputItem::Json { value } if may_have_blocks(&value) => {
                // The JSON comes before its images, as in a tool's result.
                let index = taken.shown.len();
                let value = taken.out_of(value);
                taken.shown.insert(index, OutputItem::Json { value });
            }
            item => taken.shown.push(item),
        }
    }
    if value_has {
        *value = value.take().map(|value| taken.out_of(value));
    }
    *output = taken.shown;
    taken.stored
}

/// Whether a JSON text may contain a block with data: a quick check, so that other values are not parsed.
fn may_have_blocks(value: &RawValue) -> bool {
    let text = value.get();
    text.contains("\"mimeType\"")
        && text.contains("\"data\"")
        && contract::json::measure(text.as_bytes()).values <= MAX_JSON_VALUES
}

/// The images and sounds of a result that were found so far.
struct MediaExtraction<'a> {
    names: &'a mut Names,
    known: Vec<(Media, OutputHandle)>,
    stored: Vec<NewOutput>,
    shown: Vec<OutputItem>,
    /// What is left of the budget.
    blocks: u64,
    bytes: u64,
}

impl MediaExtraction<'_> {
    /// Moves the blocks of a JSON value out of it.
    fn out_of(&mut self, value: Box<RawValue>) -> Box<RawValue> {
        let Ok(mut tree) = contract::json::read(value.get()) else { return value };
        if !self.walk(&mut tree) {
            return value;
        }
        RawValue::from_string(tree.to_string()).unwrap_or(value)
    }

    /// Replaces the data of all blocks by handles. Returns whether there was any.
    fn walk(&mut self, value: &mut Value) -> bool {
        match value {
            Value::Array(items) => items.iter_mut().fold(false, |found, item| self.walk(item) | found),
            Value::Object(fields) => {
                let Some((kind, media)) = block(fields) else {
                    return fields.values_mut().fold(false, |found, field| self.walk(field) | found);
                };
                let bytes = media.data.len();
                let handle = match self.handle_of(&media) {
                    // The same data is shown once.
                    Some(handle) => handle,
                    None => {
                        let handle = self.store(kind, &media);
                        self.show_stored(kind, media, handle.clone());
                        handle
                    }
                };
                fields.shift_remove("data");
                fields.insert("bytes".to_owned(), json!(bytes));
                fields.insert("handle".to_owned(), json!(handle));
                true
            }
            _ => false,
        }
    }

    fn show(&mut self, kind: MediaKind, media: Media) {
        let known = media.handle.clone().or_else(|| self.handle_of(&media));
        let handle = known.unwrap_or_else(|| self.store(kind, &media));
        self.show_stored(kind, media, handle);
    }

    fn handle_of(&self, media: &Media) -> Option<OutputHandle> {
        let same = |(other, _): &&(Media, OutputHandle)| other.mime_type == media.mime_type && other.data == media.data;
        self.known.iter().find(same).map(|(_, handle)| handle.clone())
    }

    fn store(&mut self, kind: MediaKind, media: &Media) -> OutputHandle {
        let (name, handle) = self.names.next();
        let (mime_type, data) = (Some(media.mime_type.clone()), media.data.to_vec());
        self.stored.push(NewOutput { name, kind: stored_kind(kind), mime_type, source: None, data });
        handle
    }

    fn show_stored(&mut self, kind: MediaKind, media: Media, handle: OutputHandle) {
        self.known.push((media.clone(), handle.clone()));
        let bytes = media.data.len() as u64;
        if self.blocks > 0 && bytes <= self.bytes {
            self.blocks -= 1;
            self.bytes -= bytes;
            self.shown.push(kind.item(Media { handle: Some(handle), ..media }));
        } else {
            self.shown.push(not_shown(kind.as_str(), &media.mime_type, bytes, handle));
        }
    }
}

/// The item for an image or a sound that is stored but over the budget of the result.
pub(crate) fn not_shown(of: &str, mime_type: &str, bytes: u64, handle: OutputHandle) -> OutputItem {
    let shape =
        format!("{mime_type}, not shown: this result already has all that it may show; show it in another cell");
    OutputItem::Stored(Preview {
        handle,
        of: of.to_owned(),
        bytes,
        shape: Some(shape),
        first: String::new(),
        last: String::new(),
    })
}

/// Reads an image or sound block in MCP's format.
fn block(fields: &serde_json::Map<String, Value>) -> Option<(MediaKind, Media)> {
    let text = |name: &str| fields.get(name).and_then(Value::as_str);
    let kind = [MediaKind::Image, MediaKind::Audio].into_iter().find(|kind| Some(kind.as_str()) == text("type"))?;
    let mime_type = text("mimeType").filter(|mime_type| Media::is_mime_type(mime_type))?;
    let data: Arc<[u8]> = BASE64.decode(text("data")?).ok()?.into();
    Some((kind, Media { mime_type: mime_type.to_owned(), data, handle: None }))
}

#[cfg(test)]
mod tests {
    use contract::cell::{Media, OutputItem};
    use contract::ids::{OutputHandle, RunId};
    use contract::limits::Limits;
    use serde_json::value::RawValue;
    use serde_json::{Value, json};
    use store::{NewOutput, OutputKind};

    use super::super::Names;
    use super::take_media;

    fn raw(value: &Value) -> Box<RawValue> {
        RawValue::from_string(value.to_string()).unwrap()
    }

    fn image(data: &[u8]) -> OutputItem {
        OutputItem::Image(Media { mime_type: "image/png".to_owned(), data: data.into(), handle: None })
    }

    fn taken(value: &Value, mut output: Vec<OutputItem>, limits: Limits) -> (Value, Value, Vec<NewOutput>) {
        let mut value = Some(raw(value));
        let stored = take_media(&mut value, &mut output, &limits, &mut Names::new(RunId::new("cm_1"), 0));
        (json!(value), json!(output), stored)
    }

    #[test]
    fn blocks_in_the_value_and_in_json_output_become_items() {
        let value = json!({"content": [
            {"type": "text", "text": "a chart"},
            {"type": "image", "data": "AAEC", "mimeType": "image/png", "annotations": {"priority": 1}},
        ]});
        let sound = json!([{"type": "audio", "data": "/+8", "mimeType": "audio/wav"}]);
        let output = vec![OutputItem::Json { value: raw(&sound) }, OutputItem::Text { text: "t".to_owned() }];
        let (value, output, stored) = taken(&value, output, Limits::DEFAULT);
        assert_eq!(
            value["content"][1],
            json!({
                "type": "image", "mimeType": "image/png", "annotations": {"priority": 1}, "bytes": 3, "handle": "out_cm_1_l0n1",
            })
        );
        let audio = json!({"type": "audio", "mimeType": "audio/wav", "bytes": 2, "handle": "out_cm_1_l0n0"});
        let image = json!({"type": "image", "mimeType": "image/png", "bytes": 3, "handle": "out_cm_1_l0n1"});
        assert_eq!(output, json!([{"type": "json", "value": [audio]}, audio, {"type": "text", "text": "t"}, image]));
        let stored: Vec<_> = stored
            .iter()
            .map(|one| (one.name.as_str(), one.kind, one.mime_type.as_deref(), one.data.as_slice()))
            .collect();
        assert_eq!(
            stored,
            [
                ("l0n0", OutputKind::Audio, Some("audio/wav"), &[255, 239][..]),
                ("l0n1", OutputKind::Image, Some("image/png"), &[0, 1, 2][..]),
            ]
        );
    }

    #[test]
    fn other_objects_with_data_stay_as_they_are() {
        for value in [
            json!({"type": "image", "data": "no base64!", "mimeType": "image/png"}),
            json!({"type": "image", "data": "AAEC", "mimeType": "png"}),
            json!({"type": "file", "data": "AAEC", "mimeType": "image/png"}),
            json!({"type": "image", "data": [1], "mimeType": "image/png"}),
        ] {
            let (after, output, stored) = taken(&value, Vec::new(), Limits::DEFAULT);
            assert_eq!((after, output, stored.len()), (value, json!([]), 0));
        }
    }

    #[test]
    fn what_exceeds_the_budget_is_stored_and_not_shown() {
        let limits = Limits { media_blocks: 2, media_bytes: 10, ..Limits::DEFAULT };
        let items = vec![image(&[1; 6]), image(&[2; 5]), image(&[3; 4]), image(&[4; 0])];
        let (_, output, stored) = taken(&Value::Null, items, limits);
        let types: Vec<&str> = output.as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
        assert_eq!(types, ["image", "stored", "image", "stored"]);
        assert_eq!(stored.len(), 4);
        assert_eq!(
            (&output[1]["of"], &output[1]["bytes"], &output[1]["handle"]),
            (&json!("image"), &json!(5), &json!("out_cm_1_l0n1"))
        );
        assert!(output[1]["shape"].as_str().unwrap().starts_with("image/png, not shown"), "{output}");
    }

    #[test]
    fn data_that_is_shown_or_stored_already_is_not_stored_again() {
        let known = OutputHandle::new("out_cm_0_l1n1");
        let reference =
            OutputItem::Image(Media { mime_type: "image/png".to_owned(), data: [9].into(), handle: Some(known) });
        let value = json!([{"type": "image", "data": "AAEC", "mimeType": "image/png"}]);
        let (value, output, stored) = taken(&value, vec![image(&[0, 1, 2]), reference], Limits::DEFAULT);
        assert_eq!(value[0]["handle"], "out_cm_1_l0n0");
        assert_eq!(
            (output.as_array().unwrap().len(), &output[1]["handle"], stored.len()),
            (2, &json!("out_cm_0_l1n1"), 1)
        );
    }
}
