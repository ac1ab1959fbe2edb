//! The visible conversation of a client: what identifies it, and what of it a model has not seen.
//!
//! Clients of Chat and Messages send the whole conversation with every request, but not byte for byte as they received it:
//! they move cache marks, turn lists of one text into strings, and add instructions. A digest over what they keep, which
//! is roles, texts and call ids, finds the turn that a conversation ended with.

use sha2::{Digest, Sha256};
use wire::conversation::{Assistant, Image, Item, Part};

/// Returns the digest of a conversation with an agent, as its client sees it. Instructions are not part of it.
pub fn digest(agent: &str, items: &[Item]) -> String {
    let mut hash = Sha256::new();
    field(&mut hash, b'a', agent);
    for item in items {
        match item {
            Item::System(_) => {}
            Item::User(parts) => {
                hash.update(b"U");
                write_parts(&mut hash, parts);
            }
            Item::Assistant(message) => {
                hash.update(b"A");
                field(&mut hash, b't', message.text.trim());
                message.calls.iter().for_each(|call| field(&mut hash, b'c', &call.id));
            }
            Item::Results(results) => {
                for result in results {
                    hash.update(b"R");
                    field(&mut hash, b'c', &result.call_id);
                    write_parts(&mut hash, &result.parts);
                }
            }
        }
    }
    hex::encode(hash.finalize())
}

/// Returns the conversation with the answer that the client receives for it.
pub fn with_answer(items: &[Item], text: &str, calls: &[wire::downstream::ClientCall]) -> Vec<Item> {
    let call = |call: &wire::downstream::ClientCall| wire::conversation::ModelCall {
        id: call.id.clone(),
        name: call.name.clone(),
        arguments: wire::conversation::Arguments::of(call.arguments.clone()),
    };
    let answer = Assistant { text: text.to_owned(), calls: calls.iter().map(call).collect(), raw: None };
    items.iter().cloned().chain([Item::Assistant(answer)]).collect()
}

/// Splits a conversation after the last message of the model: what came before, and what is new.
pub fn split(items: &[Item]) -> (&[Item], &[Item]) {
    let after = items.iter().rposition(|item| matches!(item, Item::Assistant(_))).map_or(0, |at| at + 1);
    items.split_at(after)
}

/// Hashes the parts of a message. Several texts count as one.
fn write_parts(hash: &mut Sha256, parts: &[Part]) {
    let text: Vec<&str> = parts
        .iter()
        .filter_map(|part| match part {
            Part::Text(text) => Some(text.trim()),
            Part::Image(_) | Part::Other(..) => None,
        })
        .filter(|text| !text.is_empty())
        .collect();
    field(hash, b't', &text.join("\n"));
    for part in parts {
        match part {
            Part::Text(_) | Part::Other(..) => {}
            Part::Image(Image::Url(url)) => field(hash, b'u', url),
            Part::Image(Image::Base64 { data, .. }) => field(hash, b'i', data),
        }
    }
}

fn field(hash: &mut Sha256, kind: u8, text: &str) {
    hash.update([kind]);
    hash.update((text.len() as u64).to_le_bytes());
    hash.update(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use wire::conversation::{Assistant, Item, Part};

    use super::{digest, split, with_answer};

    fn user(text: &str) -> Item {
        Item::User(vec![Part::Text(text.to_owned())])
    }

    #[test]
    fn a_conversation_is_recognized_although_its_form_has_changed() {
        let sent = [user("one"), user("two")];
        let parts = Item::User(vec![Part::Text("one ".into()), Part::Text(String::new())]);
        let system = Item::System("added later".into());
        assert_eq!(digest("a", &sent), digest("a", &[system, parts, user("two")]));
        assert_ne!(digest("a", &sent), digest("b", &sent));
        assert_ne!(digest("a", &sent), digest("a", &[user("onetwo")]));
        assert_ne!(digest("a", &sent), digest("a", &[user("one")]));
    }

    #[test]
    fn the_prefix_of_the_next_request_has_the_digest_of_the_answered_conversation() {
        let first = [user("one")];
        let answered = with_answer(&first, "hello", &[]);
        let hello = Item::Assistant(Assistant { text: "hello\n".into(), ..Assistant::default() });
        let next = [user("one"), hello, user("and then?")];
        let (before, new) = split(&next);
        assert_eq!(digest("a", &answered), digest("a", before));
        assert_eq!(new.len(), 1);
    }
}
