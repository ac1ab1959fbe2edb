//! Suggestions for ids that do not exist.

use std::collections::HashSet;

use contract::spelling::edits;

use super::words::spelling;

/// The minimum similarity of a suggestion; less is coincidence.
const ALIKE: f32 = 0.5;

/// The maximum number of letters compared.
const MAX_LETTERS: usize = 256;

/// Returns at most `limit` of the ids, the most similar first.
pub fn near<'a>(asked: &str, ids: impl Iterator<Item = &'a str>, limit: usize) -> Vec<&'a str> {
    let asked_letters = letters(name(asked));
    let asked_name = trigrams(name(asked));
    let asked = trigrams(asked);
    let mut alike: Vec<(f32, &str)> = ids
        .map(|id| {
            // The name counts most: owners are often forgotten.
            let by_name = shared(&asked_name, &trigrams(name(id))).max(shared(&asked, &trigrams(name(id))));
            let by_name = by_name.max(alike(&asked_letters, &letters(name(id))));
            (if by_name < ALIKE { 0.0 } else { 0.75 * by_name + 0.25 * shared(&asked, &trigrams(id)) }, id)
        })
        .filter(|(alike, _)| *alike >= ALIKE)
        .collect();
    alike.sort_by(|(a, left), (b, right)| b.total_cmp(a).then_with(|| left.cmp(right)));
    alike.into_iter().take(limit).map(|(_, id)| id).collect()
}

/// The maximum length of names compared letter by letter; longer ones are compared by trigrams alone.
const MAX_COMPARED: usize = 32;

fn letters(name: &str) -> String {
    spelling(name).chars().take(MAX_COMPARED).collect()
}

/// Returns the share of letters that agree. Misspelt short names may have no trigram in common.
fn alike(left: &str, right: &str) -> f32 {
    let longer = left.chars().count().max(right.chars().count()).max(1);
    1.0 - edits(left, right) as f32 / longer as f32
}

fn name(id: &str) -> &str {
    id.rsplit([':', '.', '/']).next().unwrap_or(id)
}

/// Returns all trigrams, with the ends marked.
fn trigrams(text: &str) -> HashSet<[char; 3]> {
    let letters: Vec<char> = ['^'].into_iter().chain(spelling(text).chars().take(MAX_LETTERS)).chain(['$']).collect();
    letters.array_windows().copied().collect()
}

/// Returns the share of common trigrams, from 0 to 1.
fn shared(left: &HashSet<[char; 3]>, right: &HashSet<[char; 3]>) -> f32 {
    let both = left.intersection(right).count() as f32;
    let all = (left.len() + right.len()) as f32;
    if all == 0.0 { 0.0 } else { 2.0 * both / all }
}

#[cfg(test)]
mod tests {
    use super::near;

    const IDS: [&str; 5] = [
        "mcp:github:create_issue",
        "mcp:github:list_issues",
        "mcp:linear:create_issue",
        "openclaw:core:read",
        "plugin:mail:send_message",
    ];

    #[test]
    fn misspelled_and_half_remembered_ids_are_recognised() {
        let near = |asked| near(asked, IDS.into_iter(), 3);
        assert_eq!(near("mcp:github:createIssue").first(), Some(&"mcp:github:create_issue"));
        assert_eq!(near("github.create_isue").first(), Some(&"mcp:github:create_issue"));
        assert_eq!(near("create_issue"), ["mcp:github:create_issue", "mcp:linear:create_issue"]);
        assert_eq!(near("sendmessage"), ["plugin:mail:send_message"]);
        assert_eq!(near("openclaw:core:raed"), ["openclaw:core:read"]);
        assert_eq!(near("weather"), [""; 0]);
    }
}
