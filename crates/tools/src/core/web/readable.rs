//! Converts a page to the text that the model reads.

use contract::json;
use contract::limits::MAX_JSON_VALUES;
use url::Url;

use super::body::{Kind, Page};
use super::html::{self, ExtractMode};

/// A converted page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ReadableText {
    pub(super) title: Option<String>,
    pub(super) text: String,
    /// How the text was made: `html`, `json` or `raw`.
    pub(super) extractor: &'static str,
    pub(super) is_cut: bool,
}

/// Converts a page to at most this many characters of text.
pub(super) fn convert(page: &Page, base: &Url, mode: ExtractMode, max_chars: usize) -> Result<ReadableText, String> {
    let kind = page.kind()?;
    let text = page.text(kind);
    let (title, text, extractor, is_cut) = match kind {
        Kind::Html => {
            // A character has at most four bytes.
            let document = html::convert(&text, base, mode, max_chars.saturating_mul(4));
            (document.title, document.text, "html", document.is_cut)
        }
        Kind::Json => match indented(&text) {
            Some(json) => (None, json, "json", false),
            None => (None, text, "raw", false),
        },
        Kind::Text => (None, text, "raw", false),
    };
    let end = text.char_indices().nth(max_chars).map(|(place, _)| place);
    let (text, is_longer) = match end.and_then(|end| text.get(..end)) {
        Some(start) => (start.to_owned(), true),
        None => (text, false),
    };
    Ok(ReadableText { title, text, extractor, is_cut: is_cut || is_longer })
}

/// Levels to which JSON is indented. Each adds two spaces to every line inside.
const MAX_INDENTED_DEPTH: usize = 64;

fn indented(text: &str) -> Option<String> {
    let is_small = json::measure(text.as_bytes()).values <= MAX_JSON_VALUES;
    if !is_small || json::depth(text.as_bytes()) > MAX_INDENTED_DEPTH {
        return None;
    }
    let value = json::read(text).ok()?;
    serde_json::to_string_pretty(&value).ok()
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::{ExtractMode, Page, convert};

    fn read(content_type: &str, body: &str, max_chars: usize) -> super::ReadableText {
        let page = Page { content_type: content_type.to_owned(), bytes: body.as_bytes().to_vec(), is_cut: false };
        convert(&page, &Url::parse("https://example.com/").unwrap(), ExtractMode::Markdown, max_chars).unwrap()
    }

    #[test]
    fn json_is_indented_and_broken_or_deep_json_returned_as_it_is() {
        assert_eq!(read("application/json", r#"{"a":[1]}"#, 100).text, "{\n  \"a\": [\n    1\n  ]\n}");
        let broken = read("application/json", "{\"a\":", 100);
        assert_eq!((broken.text.as_str(), broken.extractor), ("{\"a\":", "raw"));
        let deep = "[".repeat(100_000);
        assert_eq!(read("application/json", &deep, 200_000).text, deep);
    }

    #[test]
    fn text_is_cut_between_characters() {
        let cut = read("text/plain", "ééééé", 3);
        assert_eq!((cut.text.as_str(), cut.is_cut), ("ééé", true));
        assert!(!read("text/plain", "ééé", 3).is_cut);
    }
}
