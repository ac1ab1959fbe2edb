//! The parts of a result that are sent beside its JSON: images, sounds, and links to stored outputs.
//!
//! Their data is never part of a text: clients count text in tokens, and a model cannot see an image in it.

use std::sync::Arc;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use contract::cell::{CellResult, Media, MediaKind, OutputItem, Preview};
use contract::ids::OutputHandle;
use contract::limits::{Limits, MAX_RESULT_LINKS};
use serde_json::{Map, Value, json};

/// Base64 as MCP servers write it, with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// An image or sound that is sent after a result's JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaBlock {
    pub kind: MediaKind,
    pub mime_type: String,
    pub data: Arc<[u8]>,
}

/// A stored output that a result mentions and does not contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputLink {
    pub handle: OutputHandle,
    /// `None` if the result does not contain it.
    pub mime_type: Option<String>,
    pub bytes: u64,
}

/// How many images and sounds a result may still show, and how many bytes of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MediaBudget {
    pub(crate) blocks: u64,
    pub(crate) bytes: u64,
}

impl Default for MediaBudget {
    fn default() -> Self {
        Self::of(&Limits::DEFAULT)
    }
}

impl MediaBudget {
    /// Returns the budget of one result.
    pub(crate) fn of(limits: &Limits) -> Self {
        Self { blocks: limits.media_blocks, bytes: limits.media_bytes }
    }

    /// Takes room for data of this size. Returns false if there is none; smaller data may still fit.
    fn take(&mut self, bytes: usize) -> bool {
        let bytes = bytes as u64;
        if self.blocks == 0 || bytes > self.bytes {
            return false;
        }
        self.blocks -= 1;
        self.bytes -= bytes;
        true
    }
}

/// What a result sends beside its JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attachments {
    pub(crate) media: Vec<MediaBlock>,
    pub(crate) links: Vec<OutputLink>,
    /// The positions in the output of images and sounds that are not in `media`: their data is missing, or there is no
    /// room for it.
    pub(crate) left_out: Vec<usize>,
}

impl Attachments {
    /// Collects the attachments of a result: the images and sounds for which there is room, in their order, and links
    /// to what is stored, the value included.
    pub(crate) fn of(result: &CellResult, mut budget: MediaBudget) -> Self {
        let mut attachments = Self::of_output(result.output(), &mut budget);
        if let CellResult::Completed { value, .. } = result {
            attachments.add_value_link(value.get());
        }
        attachments
    }

    /// Collects the attachments of an output, without those of a value.
    pub(crate) fn of_output(output: &[OutputItem], budget: &mut MediaBudget) -> Self {
        let mut attachments = Self::default();
        for (at, item) in output.iter().enumerate() {
            match item {
                OutputItem::Image(media) => attachments.add_media(at, MediaKind::Image, media, budget),
                OutputItem::Audio(media) => attachments.add_media(at, MediaKind::Audio, media, budget),
                OutputItem::Stored(preview) => attachments.add_link(link_of(preview)),
                OutputItem::Text { .. } | OutputItem::Json { .. } => {}
            }
        }
        attachments
    }

    fn add_media(&mut self, at: usize, kind: MediaKind, media: &Media, budget: &mut MediaBudget) {
        let Media { mime_type, data, handle } = media;
        // An item without data only names a stored output.
        if !data.is_empty() && budget.take(data.len()) {
            self.media.push(MediaBlock { kind, mime_type: mime_type.clone(), data: Arc::clone(data) });
            return;
        }
        self.left_out.push(at);
        if let Some(handle) = handle {
            let (handle, mime_type) = (handle.clone(), Some(mime_type.clone()));
            self.add_link(OutputLink { handle, mime_type, bytes: data.len() as u64 });
        }
    }

    /// Adds a link if a value is the preview of a stored value. A cell may return an object of this form itself; reading
    /// the link then fails, because the output does not exist.
    fn add_value_link(&mut self, value: &str) {
        if !value.starts_with('{') || !value.contains("\"handle\"") {
            return;
        }
        let Ok(preview) = serde_json::from_str::<Preview>(value) else { return };
        if preview.handle.parts().is_some() {
            self.add_link(link_of(&preview));
        }
    }

    fn add_link(&mut self, link: OutputLink) {
        if self.links.len() < MAX_RESULT_LINKS && self.links.iter().all(|other| other.handle != link.handle) {
            self.links.push(link);
        }
    }
}

fn link_of(preview: &Preview) -> OutputLink {
    let mime_type = match preview.of.as_str() {
        "text" | "string" => Some("text/plain"),
        "image" | "audio" | "binary" => None,
        _ => Some("application/json"),
    };
    OutputLink { handle: preview.handle.clone(), mime_type: mime_type.map(str::to_owned), bytes: preview.bytes }
}

/// Removes the data of images and sounds from a tool's result, at every depth, and adds it to `media` as far as there is
/// room. Blocks that cannot be decoded stay as they are. The depth of the recursion is bounded, because parsers of
/// results limit their depth.
pub(crate) fn take_media(result: &mut Value, budget: &mut MediaBudget, media: &mut Vec<MediaBlock>) {
    match result {
        Value::Array(items) => items.iter_mut().for_each(|item| take_media(item, budget, media)),
        Value::Object(fields) => match read_block(fields) {
            Some(block) => {
                fields.shift_remove("data");
                fields.insert("bytes".to_owned(), json!(block.data.len()));
                if budget.take(block.data.len()) {
                    media.push(block);
                } else {
                    fields.insert("shown".to_owned(), Value::Bool(false));
                }
            }
            None => fields.values_mut().for_each(|field| take_media(field, budget, media)),
        },
        _ => {}
    }
}

/// Reads an image or sound block in MCP's format. `None` if it is another object, or its data is not valid Base64.
fn read_block(fields: &Map<String, Value>) -> Option<MediaBlock> {
    let text = |name: &str| fields.get(name).and_then(Value::as_str);
    let kind = [MediaKind::Image, MediaKind::Audio].into_iter().find(|kind| Some(kind.as_str()) == text("type"))?;
    let mime_type = text("mimeType").filter(|mime_type| Media::is_mime_type(mime_type))?;
    let data = BASE64.decode(text("data")?).ok()?;
    Some(MediaBlock { kind, mime_type: mime_type.to_owned(), data: data.into() })
}

#[cfg(test)]
mod tests {
    use contract::cell::{CellResult, Media, MediaKind, OutputItem, Preview, Telemetry};
    use contract::ids::OutputHandle;
    use contract::limits::{MAX_MEDIA_BLOCKS, MAX_MEDIA_BYTES, MAX_RESULT_LINKS};
    use serde_json::json;
    use serde_json::value::RawValue;

    use super::{Attachments, MediaBudget, take_media};

    fn image(bytes: usize, name: &str) -> OutputItem {
        let handle = Some(OutputHandle::of(&"cm_1".into(), name));
        OutputItem::Image(Media { mime_type: "image/png".to_owned(), data: vec![7; bytes].into(), handle })
    }

    fn completed(value: &str, output: Vec<OutputItem>) -> CellResult {
        let value = RawValue::from_string(value.to_owned()).unwrap();
        CellResult::Completed { value, output, telemetry: Telemetry::default() }
    }

    fn preview(name: &str, of: &str) -> Preview {
        let handle = OutputHandle::of(&"cm_1".into(), name);
        Preview { handle, of: of.to_owned(), bytes: 9, shape: None, first: String::new(), last: String::new() }
    }

    #[test]
    fn media_is_shown_in_order_while_there_is_room() {
        let budget = MediaBudget { blocks: 2, bytes: 10 };
        let output = vec![image(4, "a"), image(7, "b"), image(6, "c"), image(1, "d")];
        let attachments = Attachments::of(&completed("1", output), budget);
        let sizes: Vec<usize> = attachments.media.iter().map(|block| block.data.len()).collect();
        assert_eq!((sizes, &attachments.left_out), (vec![4, 6], &vec![1, 3]));
        let links: Vec<_> = attachments.links.iter().map(|link| (link.handle.as_str(), link.bytes)).collect();
        assert_eq!(links, [("out_cm_1_b", 7), ("out_cm_1_d", 1)]);
    }

    #[test]
    fn the_default_budget_is_that_of_the_limits() {
        let many = (0..=MAX_MEDIA_BLOCKS.default).map(|number| image(1, &format!("n{number}"))).collect();
        let attachments = Attachments::of(&completed("1", many), MediaBudget::default());
        assert_eq!((attachments.media.len() as u64, attachments.left_out.len()), (MAX_MEDIA_BLOCKS.default, 1));
        let largest = usize::try_from(MAX_MEDIA_BYTES.default).unwrap();
        let large = vec![image(largest + 1, "a"), image(largest, "b")];
        let attachments = Attachments::of(&completed("1", large), MediaBudget::default());
        assert_eq!((attachments.media[0].data.len(), &attachments.left_out), (largest, &vec![0]));
    }

    #[test]
    fn stored_outputs_are_linked_once_and_up_to_a_limit() {
        let text = serde_json::to_string(&preview("a", "array")).unwrap();
        let stored = |name: String| OutputItem::Stored(preview(&name, "text"));
        let attachments = Attachments::of(
            &completed(&text, vec![stored("a".to_owned()), stored("b".to_owned())]),
            MediaBudget::default(),
        );
        let links: Vec<_> =
            attachments.links.iter().map(|link| (link.handle.as_str(), link.mime_type.as_deref())).collect();
        assert_eq!(links, [("out_cm_1_a", Some("text/plain")), ("out_cm_1_b", Some("text/plain"))]);
        let value = Attachments::of(&completed(&text, Vec::new()), MediaBudget::default());
        assert_eq!(value.links[0].mime_type.as_deref(), Some("application/json"));
        let image =
            Attachments::of(&completed("1", vec![OutputItem::Stored(preview("c", "image"))]), MediaBudget::default());
        assert_eq!((image.links[0].mime_type.as_deref(), image.links[0].bytes), (None, 9));
        let many = (0..=MAX_RESULT_LINKS).map(|number| stored(format!("n{number}"))).collect();
        assert_eq!(Attachments::of(&completed("1", many), MediaBudget::default()).links.len(), MAX_RESULT_LINKS);
        for other in [
            "{\"handle\":1}",
            "{\"handle\":\"x\",\"of\":\"text\",\"bytes\":1,\"first\":\"\",\"last\":\"\"}",
            "\"handle\"",
        ] {
            assert!(Attachments::of(&completed(other, Vec::new()), MediaBudget::default()).links.is_empty(), "{other}");
        }
    }

    #[test]
    fn the_data_of_media_is_removed_from_a_tools_result_and_the_rest_stays() {
        let mut result = json!({
            "content": [
                {"type": "text", "text": "a"},
                {"type": "image", "data": "AAEC", "mimeType": "image/png"},
                {"type": "audio", "data": "AAEC", "mimeType": "audio/wav"},
                {"type": "image", "data": "not base64", "mimeType": "image/png"},
            ],
            "structuredContent": {"pages": [{"type": "image", "data": "/+8", "mimeType": "image/png"}]},
        });
        let mut media = Vec::new();
        take_media(&mut result, &mut MediaBudget { blocks: 2, bytes: 5 }, &mut media);
        let shown: Vec<_> = media.iter().map(|block| (block.kind, &*block.data)).collect();
        assert_eq!(shown, [(MediaKind::Image, &[0, 1, 2][..]), (MediaKind::Image, &[255, 239])]);
        let content = &result["content"];
        assert_eq!(content[1], json!({"type": "image", "mimeType": "image/png", "bytes": 3}));
        assert_eq!(content[2], json!({"type": "audio", "mimeType": "audio/wav", "bytes": 3, "shown": false}));
        assert_eq!((&content[0]["text"], &content[3]["data"]), (&json!("a"), &json!("not base64")));
        assert_eq!(result["structuredContent"]["pages"][0]["bytes"], 2);
    }
}
