//! Finding tools by words: a name weighs more than a description.

use contract::tool::ToolSpec;

use crate::view::View;

/// The best matches first, ties by id; an empty query lists the catalog's head.
pub(crate) fn search<'a>(tools: &'a [ToolSpec], view: View, query: &str, limit: usize) -> Vec<&'a ToolSpec> {
    let query = query.to_lowercase();
    let terms: Vec<&str> = query.split(|c: char| !c.is_alphanumeric()).filter(|term| !term.is_empty()).collect();
    let mut scored: Vec<(u32, &ToolSpec)> = tools
        .iter()
        .filter(|tool| view.shows(tool))
        .map(|tool| (score(tool, query.trim(), &terms), tool))
        .filter(|(score, _)| *score > 0 || terms.is_empty())
        .collect();
    scored.sort_by(|(a, left), (b, right)| b.cmp(a).then_with(|| left.id.cmp(&right.id)));
    scored.into_iter().take(limit).map(|(_, tool)| tool).collect()
}

fn score(tool: &ToolSpec, query: &str, terms: &[&str]) -> u32 {
    let id = tool.id.as_str().to_lowercase();
    let name = tool.id.name().to_lowercase();
    if !query.is_empty() && (query == id || query == name) {
        return u32::MAX;
    }
    let label = tool.label.as_deref().unwrap_or_default().to_lowercase();
    let description = tool.description.to_lowercase();
    let weigh = |term: &&str| {
        let found = |text: &str, weight: u32| if text.contains(*term) { weight } else { 0 };
        found(&name, 8) + found(&id, 6) + found(&label, 4) + found(&description, 2)
    };
    terms.iter().map(weigh).sum()
}
