//! Images, sounds and stored outputs in the protocol's form.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use contract::cell::MediaKind;
use contract::ids::OutputHandle;
use rmcp::RoleServer;
use rmcp::model::{ContentBlock, ProtocolVersion, Resource};
use rmcp::service::RequestContext;
use serde_json::{Value, json};

use super::connection::Connection;
use crate::server::answer::Answer;
use crate::server::media::{MediaBlock, OutputLink};
use crate::server::resources::OutputUri;

/// Removes the blocks that the client does not know or did not ask for. The text of a result is complete without them.
///
/// Only a client that has listed or read resources gets links: some agent frameworks replace every link with the whole
/// resource, or send its URI to a model that refuses it.
pub(super) fn keep_known(answer: &mut Answer, context: &RequestContext<RoleServer>, connection: &Connection) {
    let since = |revision: ProtocolVersion| {
        context.protocol_version().is_some_and(|version| version.as_str() >= revision.as_str())
    };
    if !since(ProtocolVersion::V_2025_06_18) || !connection.uses_resources() {
        answer.links.clear();
    }
    if !since(ProtocolVersion::V_2025_03_26) {
        answer.media.retain(|media| media.kind != MediaKind::Audio);
    }
}

pub(super) fn of_media(media: &MediaBlock) -> ContentBlock {
    let data = STANDARD.encode(&media.data);
    match media.kind {
        MediaKind::Image => ContentBlock::image(data, media.mime_type.clone()),
        MediaKind::Audio => ContentBlock::audio(data, media.mime_type.clone()),
    }
}

pub(super) fn of_link(link: &OutputLink) -> ContentBlock {
    let mut resource = Resource::new(OutputUri::whole(&link.handle), link.handle.as_str()).with_size(link.bytes);
    resource.mime_type.clone_from(&link.mime_type);
    ContentBlock::resource_link(resource)
}

/// Replaces the blocks of a tool's result whose text is stored by blocks that say so: the model reads the text's beginning,
/// and where the rest is.
pub(super) fn show_stored_texts(content: &mut [Value]) {
    for block in content {
        if block.get("type").and_then(Value::as_str) != Some("text") || block.get("text").is_some() {
            continue;
        }
        let Some(handle) = block.get("handle").and_then(Value::as_str).map(OutputHandle::new) else { continue };
        let first = block.get("first").and_then(Value::as_str).unwrap_or_default();
        let bytes = block.get("bytes").and_then(Value::as_u64).unwrap_or_default();
        let uri = OutputUri::whole(&handle);
        let text = format!(
            "{first}\n[This is the beginning of a text of {bytes} bytes, which is stored as {handle}. Read it as the resource \
             {uri}, in parts: ?offset=0&length=65536. The tool was called: do not repeat the call, or ask it for less.]"
        );
        *block = json!({"type": "text", "text": text});
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::show_stored_texts;

    #[test]
    fn a_stored_text_is_shown_with_its_beginning_and_its_address() {
        let mut content = vec![
            json!({"type": "text", "text": "a", "handle": "x"}),
            json!({"type": "text", "handle": "out_tc_1_c1n0", "bytes": 9, "first": "abc"}),
            json!({"type": "image", "data": "AA==", "mimeType": "image/png"}),
        ];
        let before = content.clone();
        show_stored_texts(&mut content);
        assert_eq!((&content[0], &content[2]), (&before[0], &before[2]));
        let text = content[1]["text"].as_str().unwrap();
        assert!(text.starts_with("abc\n[") && text.contains("9 bytes"), "{text}");
        assert!(text.contains("cellmate://out/out_tc_1_c1n0,") && content[1].get("handle").is_none(), "{text}");
    }
}
