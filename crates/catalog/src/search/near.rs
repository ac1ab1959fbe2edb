//! Ids somebody may have meant by one that does not exist.

use std::collections::HashSet;

use super::spelling;

/// Fewer letters in common than this are chance.
const ALIKE: f32 = 0.5;

/// Nobody misspells longer names than this.
const MAX_LETTERS: usize = 256;

/// At most `limit` of the ids, the most alike first.
pub fn near<'a>(asked: &str, ids: impl Iterator<Item = &'a str>, limit: usize) -> Vec<&'a str> {
    let asked_letters = letters(name(asked));
    let asked_name = triples(name(asked));
    let asked = triples(asked);
    let mut alike: Vec<(f32, &str)> = ids
        .map(|id| {
            // The name counts for most: people forget whose tool it was.
            let by_name = shared(&asked_name, &triples(name(id))).max(shared(&asked, &triples(name(id))));
            let by_letters = alike(&asked_letters, &letters(name(id)));
            let by_name = by_name.max(by_letters);
            (if by_name < ALIKE { 0.0 } else { 0.75 * by_name + 0.25 * shared(&asked, &triples(id)) }, id)
        })
        .filter(|(alike, _)| *alike >= ALIKE)
        .collect();
    alike.sort_by(|(a, left), (b, right)| b.total_cmp(a).then_with(|| left.cmp(right)));
    alike.into_iter().take(limit).map(|(_, id)| id).collect()
}

/// Longer names are compared by their triples alone.
const MAX_COMPARED: usize = 32;

fn letters(name: &str) -> Vec<char> {
    spelling(name).chars().take(MAX_COMPARED).collect()
}

/// How many letters stay where nothing is put in, left out, changed or swapped with its neighbour; short names that are
/// misspelled have no three letters in common.
fn alike(left: &[char], right: &[char]) -> f32 {
    let mut rows: [Vec<usize>; 3] = [Vec::new(), Vec::new(), (0..=right.len()).collect()];
    for (at, letter) in left.iter().enumerate() {
        rows.rotate_left(1);
        let mut row = vec![at + 1];
        for (other, other_letter) in right.iter().enumerate() {
            let [two_up, up, _] = &rows;
            let cost = |row: &[usize], place: usize| row.get(place).copied().unwrap_or(usize::MAX / 2);
            let changed = cost(up, other) + usize::from(letter != other_letter);
            let mut least = changed.min(cost(up, other + 1) + 1).min(cost(&row, other) + 1);
            let is_swap =
                at > 0 && other > 0 && left.get(at - 1) == Some(other_letter) && right.get(other - 1) == Some(letter);
            if is_swap {
                least = least.min(cost(two_up, other - 1) + 1);
            }
            row.push(least);
        }
        rows[2] = row;
    }
    let changes = rows[2].last().copied().unwrap_or_default();
    1.0 - changes as f32 / left.len().max(right.len()).max(1) as f32
}

fn name(id: &str) -> &str {
    id.rsplit([':', '.', '/']).next().unwrap_or(id)
}

/// All three letters in a row, the ends marked.
fn triples(text: &str) -> HashSet<[char; 3]> {
    let letters: Vec<char> = ['^'].into_iter().chain(spelling(text).chars().take(MAX_LETTERS)).chain(['$']).collect();
    letters.array_windows().copied().collect()
}

/// From 0, nothing, to 1, all.
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
