//! The size of a conversation, and its excerpt for a model whose context it exceeds. Pure.

use serde_json::json;
use wire::conversation::{Arguments, Assistant, CallResult, Item, ModelCall, Part};

/// The context of a model whose configuration does not name one, in tokens.
pub(crate) const DEFAULT_CONTEXT_TOKENS: u64 = 128_000;

/// Bytes of a request that are counted as one token. Texts in most languages have more.
const BYTES_PER_TOKEN: u64 = 3;

/// The part of a context that is left free, as a divisor: an estimate is not exact.
const FREE_SHARE: u64 = 16;

/// Bytes that a message has besides its texts.
const MESSAGE_BYTES: usize = 64;

/// Bytes of each text that an excerpt keeps at least, before it leaves out whole messages.
const MIN_TEXT_BYTES: usize = 256;

/// What stands for an image in an excerpt.
const IMAGE: &str = "[an image]";

/// Returns the bytes of a conversation that fit a context of this many tokens, beside `fixed` bytes of the request and
/// this many tokens of the response.
pub(crate) fn room(context_tokens: Option<u64>, fixed: usize, response_tokens: u64) -> usize {
    let context = context_tokens.unwrap_or(DEFAULT_CONTEXT_TOKENS);
    let tokens = context.saturating_sub(context / FREE_SHARE).saturating_sub(response_tokens);
    let bytes = usize::try_from(tokens.saturating_mul(BYTES_PER_TOKEN)).unwrap_or(usize::MAX);
    // Even if the rest of the request is too large, something of the conversation is sent.
    bytes.saturating_sub(fixed).max(MIN_TEXT_BYTES * 4)
}

/// Returns about how many bytes a conversation has in a request.
pub(crate) fn size(items: &[Item]) -> usize {
    items.iter().map(item_size).sum()
}

fn item_size(item: &Item) -> usize {
    MESSAGE_BYTES
        + match item {
            Item::System(text) => text.len(),
            Item::User(parts) => parts.iter().map(part_size).sum(),
            Item::Assistant(Assistant { raw: Some(raw), .. }) => raw.json.get().len(),
            Item::Assistant(message) => message.text.len() + message.calls.iter().map(call_size).sum::<usize>(),
            Item::Results(results) => results.iter().map(result_size).sum(),
        }
}

fn part_size(part: &Part) -> usize {
    match part {
        Part::Text(text) => text.len(),
        Part::Image(wire::conversation::Image::Url(url)) => url.len(),
        Part::Image(wire::conversation::Image::Base64 { data, .. }) => data.len(),
        Part::Other(_, raw) => raw.get().len(),
    }
}

fn call_size(call: &ModelCall) -> usize {
    MESSAGE_BYTES + call.id.len() + call.name.len() + call.arguments.text().len()
}

fn result_size(result: &CallResult) -> usize {
    MESSAGE_BYTES + result.call_id.len() + result.parts.iter().map(part_size).sum::<usize>()
}

/// Returns a conversation that has at most this many bytes: images are left out, then long texts are shortened, then the
/// oldest messages are left out. A conversation that fits is returned as it is.
pub(crate) fn fit(items: Vec<Item>, room: usize) -> Vec<Item> {
    if size(&items) <= room {
        return items;
    }
    let (mut low, mut high) = (MIN_TEXT_BYTES, room);
    let mut fitting = shortened(&items, low);
    if size(&fitting) <= room {
        // The longest texts that fit.
        while low + MIN_TEXT_BYTES < high {
            let middle = low + (high - low) / 2;
            let tried = shortened(&items, middle);
            if size(&tried) <= room {
                (low, fitting) = (middle, tried);
            } else {
                high = middle;
            }
        }
        return fitting;
    }
    let mut excess = size(&fitting) - room;
    let mut first = 0;
    for item in &fitting {
        // Results without their calls are not accepted.
        if excess == 0 && !matches!(item, Item::Results(_)) {
            break;
        }
        excess = excess.saturating_sub(item_size(item));
        first += 1;
    }
    fitting.split_off(first)
}

/// Shortens every text of a conversation to this many bytes. The messages of providers are written anew.
fn shortened(items: &[Item], bytes: usize) -> Vec<Item> {
    let part = |part: &Part| match part {
        Part::Text(text) => Part::Text(cut(text, bytes)),
        Part::Image(_) => Part::Text(IMAGE.to_owned()),
        Part::Other(_, raw) => Part::Text(cut(raw.get(), bytes)),
    };
    let call = |call: &ModelCall| {
        let text = call.arguments.text();
        let arguments = if text.len() <= bytes {
            call.arguments.clone()
        } else {
            Arguments::Object(json!({"excerpt": cut(text, bytes)}).to_string())
        };
        ModelCall { arguments, ..call.clone() }
    };
    let item = |item: &Item| match item {
        Item::System(text) => Item::System(cut(text, bytes)),
        Item::User(parts) => Item::User(parts.iter().map(part).collect()),
        Item::Assistant(message) => Item::Assistant(Assistant {
            text: cut(&message.text, bytes),
            calls: message.calls.iter().map(call).collect(),
            raw: None,
        }),
        Item::Results(results) => Item::Results(
            results
                .iter()
                .map(|result| CallResult { parts: result.parts.iter().map(part).collect(), ..result.clone() })
                .collect(),
        ),
    };
    items.iter().map(item).collect()
}

/// Returns the beginning and the end of a text, and how much is missing.
fn cut(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    let note = |missing: usize| format!("\n[{missing} bytes are left out]\n");
    let kept = bytes.saturating_sub(note(text.len()).len()) / 2;
    let (start, end) = (text.floor_char_boundary(kept), text.ceil_char_boundary(text.len().saturating_sub(kept)));
    let (first, last) = (text.get(..start).unwrap_or_default(), text.get(end..).unwrap_or_default());
    format!("{first}{}{last}", note(end.saturating_sub(start)))
}

#[cfg(test)]
mod tests {
    use wire::conversation::{Arguments, Assistant, CallResult, Image, Item, ModelCall, Part};

    use super::{DEFAULT_CONTEXT_TOKENS, MIN_TEXT_BYTES, fit, room, size};

    fn exchange(id: &str, code: &str, result: &str) -> [Item; 2] {
        let call = ModelCall {
            id: id.into(),
            name: "exec".into(),
            arguments: Arguments::classify(format!("{{\"code\":\"{code}\"}}")),
        };
        let message = Assistant { text: String::new(), calls: vec![call], raw: None };
        [Item::Assistant(message), Item::Results(vec![CallResult::text(id, result)])]
    }

    fn text(items: &[Item]) -> String {
        serde_json::to_string(items).unwrap()
    }

    #[test]
    fn a_conversation_that_fits_is_not_changed() {
        let items: Vec<Item> = exchange("a", "return 1", "1").into();
        assert_eq!(text(&fit(items.clone(), size(&items))), text(&items));
    }

    #[test]
    fn long_texts_are_shortened_in_the_middle_and_short_ones_are_kept() {
        let long = format!("first é{}last", "x".repeat(1 << 20));
        let mut items = vec![Item::User(vec![
            Part::Text("the wish".into()),
            Part::Image(Image::Base64 { mime_type: "image/png".into(), data: "A".repeat(100_000) }),
        ])];
        items.extend(exchange("a", &"y".repeat(200_000), &long));
        let fitting = fit(items, 20_000);
        assert!((10_000..=20_000).contains(&size(&fitting)), "{}", size(&fitting));
        let shown = text(&fitting);
        for part in ["the wish", "[an image]", "first é", "last", "bytes are left out", "excerpt"] {
            assert!(shown.contains(part), "{part}");
        }
    }

    #[test]
    fn many_short_messages_lose_the_oldest_and_no_result_is_without_its_call() {
        let items: Vec<Item> =
            (0..500).flat_map(|n| exchange(&format!("call{n}"), "return 1", &format!("result {n}"))).collect();
        let fitting = fit(items, 8_000);
        assert!(size(&fitting) <= 8_000 && fitting.len() > 20);
        assert!(matches!(fitting.first(), Some(Item::Assistant(_))));
        let shown = text(&fitting);
        assert!(shown.contains("result 499") && !shown.contains("result 0\""));
    }

    #[test]
    fn the_room_is_what_the_context_leaves_beside_the_rest() {
        assert_eq!(room(Some(16_000), 1_000, 4_000), (16_000 - 1_000 - 4_000) * 3 - 1_000);
        assert_eq!(room(None, 0, 0), room(Some(DEFAULT_CONTEXT_TOKENS), 0, 0));
        assert_eq!(room(Some(1_000), 0, 4_096), MIN_TEXT_BYTES * 4);
    }
}
