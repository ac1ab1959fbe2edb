//! Answers `tools/list`, in pages, and verifies each answer before it is sent.

use catalog::{Surface, SurfaceViolation};
use rmcp::model::{ErrorData, ListToolsResult, Tool as ListedTool};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::server::prepared::PreparedTools;
use crate::server::tools::{Listing, ToolPrefix};

/// Bytes of the hash in a cursor: enough to notice that the list has changed.
const HASH_BYTES: usize = 8;

/// Returns one page of the tools: the first, or the one that the cursor names.
pub(super) fn page(prepared: &PreparedTools, cursor: Option<&str>) -> Result<ListToolsResult, ErrorData> {
    let PreparedTools { surface, listing, .. } = prepared;
    let number = match cursor {
        Some(cursor) => number_in(listing, cursor).ok_or_else(|| {
            ErrorData::invalid_params(
                "the cursor is invalid, or the tools have changed; list them from the start",
                None,
            )
        })?,
        None => 0,
    };
    let range = listing.pages.get(number).cloned().unwrap_or_default();
    let start = range.start;
    let tools = converted(listing.tools.get(range).unwrap_or_default())?;
    let mut list = ListToolsResult::with_all_items(tools);
    let is_last = number + 1 >= listing.pages.len();
    if !is_last {
        list.next_cursor = Some(cursor_of(listing, number + 1));
    }
    verified(surface, prepared.prefix(), Part { start, is_last }, list)
}

/// Converts the tool list to the library's types.
fn converted(listed: &[Value]) -> Result<Vec<ListedTool>, ErrorData> {
    let tools = listed.iter().map(|tool| serde_json::from_value(tool.clone()));
    tools.collect::<Result<_, _>>().map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

/// The part of a surface that an answer contains.
#[derive(Clone, Copy, Debug)]
struct Part {
    start: usize,
    is_last: bool,
}

/// Returns the answer if its serialized form contains exactly the surface's tools. Fails closed: an answer with any other
/// tool is not sent.
fn verified(
    surface: &Surface,
    prefix: &ToolPrefix,
    part: Part,
    list: ListToolsResult,
) -> Result<ListToolsResult, ErrorData> {
    let sent = serde_json::to_value(&list).map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    check(surface, prefix, part, &sent).map_err(|violation| {
        tracing::error!(surface = surface.as_str(), %violation, "a list of tools was not sent");
        ErrorData::internal_error("the list of tools failed its check and was not sent; see `cellmate logs`", None)
    })?;
    Ok(list)
}

fn check(surface: &Surface, prefix: &ToolPrefix, part: Part, sent: &Value) -> Result<(), SurfaceViolation> {
    let tools = sent.get("tools").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let names = tools.iter().map(|tool| tool.get("name").and_then(Value::as_str).unwrap_or_default());
    // A name without the prefix is not one of the surface's, whatever it is.
    let names: Vec<&str> = names.map(|name| prefix.strip(name).unwrap_or("(a name without the prefix)")).collect();
    if part.start == 0 && part.is_last {
        return surface.verify(&names);
    }
    let expected = if part.is_last { usize::MAX } else { names.len() };
    surface.verify_page(part.start, expected, &names)
}

fn cursor_of(listing: &Listing, page: usize) -> String {
    format!("{page}.{}", hash(listing))
}

fn number_in(listing: &Listing, cursor: &str) -> Option<usize> {
    let (number, hashed) = cursor.split_once('.')?;
    let number: usize = number.parse().ok()?;
    (number < listing.pages.len() && hashed == hash(listing)).then_some(number)
}

fn hash(listing: &Listing) -> String {
    let mut hash = Sha256::new();
    listing.tools.iter().for_each(|tool| hash.update(tool.to_string().as_bytes()));
    hex::encode(hash.finalize().get(..HASH_BYTES).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use catalog::{DirectTools, Surface};
    use contract::tool::{ToolId, ToolSpec};
    use rmcp::model::ListToolsResult;
    use serde_json::{Value, json};

    use super::{Part, converted, cursor_of, number_in, verified};
    use crate::server::ToolPrefix;
    use crate::server::tools::Listing;

    fn listed(names: &[&str]) -> Vec<Value> {
        names.iter().map(|name| json!({"name": name, "inputSchema": {"type": "object"}})).collect()
    }

    #[test]
    fn a_list_that_is_not_exactly_the_surface_is_not_sent() {
        let whole = Part { start: 0, is_last: true };
        let prefix = ToolPrefix::parse("p_").unwrap();
        let sends = |surface: &Surface, part, names: &[&str]| {
            let list = ListToolsResult::with_all_items(converted(&listed(names)).unwrap());
            verified(surface, &prefix, part, list).is_ok()
        };
        assert!(sends(&Surface::CodeMode, whole, &["p_exec", "p_wait"]));
        for wrong in [
            &["p_exec"][..],
            &["exec", "wait"],
            &["p_exec", "p_wait", "p_docs__read"],
            &["p_exec", "p_exec", "p_wait"],
            &[],
        ] {
            assert!(!sends(&Surface::CodeMode, whole, wrong), "{wrong:?}");
        }
        let tools =
            ["mcp:s:a", "mcp:s:b", "mcp:s:c"].map(|id| ToolSpec::new(ToolId::parse(id).unwrap(), "", json!({})));
        let direct = Surface::Direct(DirectTools::new(tools.to_vec(), 2));
        let (first, last) = (Part { start: 0, is_last: false }, Part { start: 2, is_last: true });
        assert!(sends(&direct, first, &["p_s__a", "p_s__b"]));
        assert!(sends(&direct, last, &["p_s__c"]));
        assert!(!sends(&direct, first, &["p_s__a", "p_s__c"]));
        assert!(!sends(&direct, last, &[]), "the last page must complete the list");
        assert!(!sends(&direct, whole, &["p_s__a", "p_s__b"]));
    }

    #[test]
    fn a_cursor_is_valid_for_the_list_that_it_was_made_for() {
        let listing = |names: &[&str], pages: &[usize]| Listing {
            tools: listed(names),
            pages: pages.windows(2).map(|ends| ends[0]..ends[1]).collect(),
            visible: Vec::new(),
        };
        let list = listing(&["a", "b"], &[0, 1, 2]);
        assert_eq!(number_in(&list, &cursor_of(&list, 1)), Some(1));
        assert_eq!(number_in(&listing(&["a", "c"], &[0, 1, 2]), &cursor_of(&list, 1)), None);
        for wrong in ["", "1", "1.", "-1.00", "9999999999999999999999.x", &cursor_of(&list, 2)] {
            assert_eq!(number_in(&list, wrong), None, "{wrong}");
        }
    }
}
