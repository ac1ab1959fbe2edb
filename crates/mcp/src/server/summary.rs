//! The arguments of a call, shortened for a person who decides about the call.
//!
//! The budget is divided among the values: a short value is shown whole however long its neighbours are, and a long one
//! is cut and says how much is missing. Key names have priority over values. All text that is not the call's own JSON
//! is outside quotation marks, where the call cannot put anything.

use serde_json::Value;

/// A longer key is cut.
const MAX_KEY_CHARS: usize = 64;

/// An entry of an array is shown if it can have this many characters, or as many as it needs.
const MIN_ENTRY_CHARS: usize = 40;

/// Characters reserved for `… 123456789 more entries`.
const MORE_CHARS: usize = 30;

/// Arguments as a person reads them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    pub text: String,
    /// Whether something is missing.
    pub is_cut: bool,
}

/// How the parts of an array or object are set apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// Each on a line of its own.
    Lines,
    /// All on one line.
    OneLine,
}

/// Shows a call's arguments in at most `budget` characters, one line for each value.
///
/// Every key of every level is named if that fits; if not, as many as fit, and the number of the others. The text is
/// never longer than the budget, provided that the budget is at least 80.
pub fn summarize_arguments(arguments: &Value, budget: usize) -> Summary {
    summarize(arguments, budget, Layout::Lines, MAX_KEY_CHARS)
}

/// Shows a call's arguments in at most `budget` characters on one line.
pub fn summarize_in_line(arguments: &Value, budget: usize) -> Summary {
    summarize(arguments, budget, Layout::OneLine, MAX_KEY_CHARS)
}

/// Shows all of a call's arguments, with invisible characters escaped.
pub fn whole_arguments(arguments: &Value) -> String {
    summarize(arguments, usize::MAX, Layout::Lines, usize::MAX).text
}

fn summarize(arguments: &Value, budget: usize, layout: Layout, max_key: usize) -> Summary {
    let node = Node::measure(arguments, 0, &Names { layout, max_key });
    let mut writer = Writer { text: String::new(), is_cut: false, layout };
    writer.value(&node, 0, budget);
    Summary { text: writer.text, is_cut: writer.is_cut }
}

/// A value, and the number of characters that it takes when it is shown whole.
struct Node<'a> {
    value: &'a Value,
    whole: usize,
    /// The least number of characters that it takes, shown as its kind and size.
    least: usize,
    entries: Vec<Entry<'a>>,
}

struct Entry<'a> {
    /// The key with the colon and the space after it; empty in an array.
    key: String,
    key_is_cut: bool,
    node: Node<'a>,
}

/// The options that the size of a value depends on.
struct Names {
    layout: Layout,
    max_key: usize,
}

impl<'a> Node<'a> {
    fn measure(value: &'a Value, depth: usize, names: &Names) -> Self {
        let layout = names.layout;
        let entry =
            |key: String, key_is_cut, value| Entry { key, key_is_cut, node: Self::measure(value, depth + 1, names) };
        let entries: Vec<Entry<'a>> = match value {
            Value::Array(items) => items.iter().map(|item| entry(String::new(), false, item)).collect(),
            Value::Object(fields) => fields
                .iter()
                .map(|(key, value)| {
                    let (key, is_cut) = name(key, names.max_key);
                    entry(format!("{key}: "), is_cut, value)
                })
                .collect(),
            _ => Vec::new(),
        };
        let whole = match value {
            Value::String(text) => visible_length(text) + 2,
            Value::Array(_) | Value::Object(_) if entries.is_empty() => 2,
            Value::Array(_) | Value::Object(_) => {
                let inner = |entry: &Entry<'_>| layout.gap(depth + 1) + chars(&entry.key) + entry.node.whole;
                let commas = entries.len() - 1;
                2 + layout.gap(depth) + commas + entries.iter().map(inner).sum::<usize>()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => chars(&value.to_string()),
        };
        let least = whole.min(chars(&kind_and_size(value)));
        Self { value, whole, least, entries }
    }
}

impl Layout {
    /// Characters between two parts at this depth.
    fn gap(self, depth: usize) -> usize {
        match self {
            Self::Lines => 1 + 2 * depth,
            Self::OneLine => 1,
        }
    }
}

struct Writer {
    text: String,
    is_cut: bool,
    layout: Layout,
}

impl Writer {
    /// Writes a value in at most `budget` characters, which is at least its `least`.
    fn value(&mut self, node: &Node<'_>, depth: usize, budget: usize) {
        if node.whole <= budget {
            self.whole(node, depth);
            return;
        }
        self.is_cut = true;
        let done = match node.value {
            Value::String(text) => self.cut_text(text, budget),
            Value::Array(_) => self.some_entries(node, depth, budget),
            Value::Object(_) => self.all_keys(node, depth, budget) || self.names_of_keys(node, budget),
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        };
        if !done {
            self.text += &kind_and_size(node.value);
        }
    }

    fn whole(&mut self, node: &Node<'_>, depth: usize) {
        match node.value {
            Value::String(text) => {
                self.text.push('"');
                text.chars().for_each(|letter| write_visible(&mut self.text, letter));
                self.text.push('"');
            }
            Value::Array(_) => self.parts(&node.entries, depth, ['[', ']'], None, |entry| entry.node.whole),
            Value::Object(_) => self.parts(&node.entries, depth, ['{', '}'], None, |entry| entry.node.whole),
            other => self.text += &other.to_string(),
        }
    }

    fn parts(
        &mut self,
        entries: &[Entry<'_>],
        depth: usize,
        [open, close]: [char; 2],
        more: Option<&str>,
        mut budget: impl FnMut(&Entry<'_>) -> usize,
    ) {
        self.text.push(open);
        for (number, entry) in entries.iter().enumerate() {
            if number > 0 {
                self.text.push(',');
            }
            self.gap(depth + 1);
            self.text += &entry.key;
            self.is_cut |= entry.key_is_cut;
            let budget = budget(entry);
            self.value(&entry.node, depth + 1, budget);
        }
        if let Some(more) = more {
            self.gap(depth + 1);
            self.text += more;
        }
        if !entries.is_empty() || more.is_some() {
            self.gap(depth);
        }
        self.text.push(close);
    }

    fn gap(&mut self, depth: usize) {
        match self.layout {
            Layout::Lines => {
                self.text.push('\n');
                (0..depth).for_each(|_| self.text += "  ");
            }
            Layout::OneLine => self.text.push(' '),
        }
    }

    /// Writes the beginning and the end of a text.
    fn cut_text(&mut self, text: &str, budget: usize) -> bool {
        let all = chars(text);
        // The four quotation marks and the text between them, with the number.
        let words = chars(&format!(" … {all} characters missing … "));
        let Some(room) = budget.checked_sub(words + 4).filter(|room| *room >= 8) else { return false };
        let (head, shown_head) = beginning(text, room - room / 3);
        let (tail, shown_tail) = ending(text, room / 3);
        let missing = all.saturating_sub(shown_head + shown_tail);
        self.text += &format!("\"{head}\" … {missing} characters missing … \"{tail}\"");
        true
    }

    /// Writes an object with all of its keys; values are cut to make room.
    fn all_keys(&mut self, node: &Node<'_>, depth: usize, budget: usize) -> bool {
        let frame = 2 + self.layout.gap(depth) + node.entries.len().saturating_sub(1);
        let fixed = |entry: &Entry<'_>| self.layout.gap(depth + 1) + chars(&entry.key);
        let fixed = frame + node.entries.iter().map(fixed).sum::<usize>();
        let Some(room) = budget.checked_sub(fixed) else { return false };
        let Some(shares) = share_out(&node.entries, room) else { return false };
        let mut shares = shares.into_iter();
        self.parts(&node.entries, depth, ['{', '}'], None, |_| shares.next().unwrap_or(0));
        true
    }

    /// Writes the first entries of an array, and how many are missing.
    fn some_entries(&mut self, node: &Node<'_>, depth: usize, budget: usize) -> bool {
        let gap = self.layout.gap(depth + 1);
        let frame = 2 + self.layout.gap(depth) + gap + MORE_CHARS;
        let Some(room) = budget.checked_sub(frame) else { return false };
        let wants = |entry: &Entry<'_>| gap + 1 + entry.node.whole.min(MIN_ENTRY_CHARS.max(entry.node.least));
        let mut wanted = 0;
        let fits = |entry: &&Entry<'_>| {
            wanted += wants(entry);
            wanted <= room
        };
        let number = node.entries.iter().take_while(fits).count();
        let shown = node.entries.get(..number).unwrap_or_default();
        let Some(shares) = share_out(shown, room.saturating_sub(number * (gap + 1))) else { return false };
        if shown.is_empty() {
            return false;
        }
        let missing = node.entries.len() - number;
        let more = (missing > 0).then(|| format!("… {missing} more {}", plural(missing, "entry", "entries")));
        let mut shares = shares.into_iter();
        self.parts(shown, depth, ['[', ']'], more.as_deref(), |_| shares.next().unwrap_or(0));
        true
    }

    /// Writes as many key names as fit, without values, and how many are missing.
    fn names_of_keys(&mut self, node: &Node<'_>, budget: usize) -> bool {
        let begin = format!("{{ {} keys, values not shown: ", node.entries.len());
        let Some(mut room) = budget.checked_sub(chars(&begin) + MORE_CHARS) else { return false };
        let names = node.entries.iter().map(|entry| entry.key.trim_end_matches(": "));
        let fits = |name: &&str| match room.checked_sub(chars(name) + 2) {
            Some(left) => {
                room = left;
                true
            }
            None => false,
        };
        let shown: Vec<&str> = names.take_while(fits).collect();
        if shown.is_empty() {
            return false;
        }
        let missing = node.entries.len() - shown.len();
        self.text += &begin;
        self.text += &shown.join(", ");
        if missing > 0 {
            self.text += &format!(", … {missing} more {}", plural(missing, "key", "keys"));
        }
        self.text += " }";
        true
    }
}

/// Divides `room` among the entries: an entry that needs little gets all it needs, the others get equal parts of the
/// rest. Returns `None` if even the minimum sizes do not fit.
fn share_out(entries: &[Entry<'_>], room: usize) -> Option<Vec<usize>> {
    let least: usize = entries.iter().map(|entry| entry.node.least).sum();
    let mut left = room.checked_sub(least)?;
    let mut by_need: Vec<(usize, usize)> =
        entries.iter().enumerate().map(|(place, entry)| (entry.node.whole - entry.node.least, place)).collect();
    by_need.sort_unstable();
    let mut shares: Vec<usize> = entries.iter().map(|entry| entry.node.least).collect();
    for (number, (need, place)) in by_need.iter().enumerate() {
        let given = (*need).min(left / (by_need.len() - number));
        left -= given;
        if let Some(share) = shares.get_mut(*place) {
            *share += given;
        }
    }
    Some(shares)
}

/// Returns a key in quotation marks, and whether it was too long and is cut.
fn name(key: &str, max: usize) -> (String, bool) {
    let (shown, length) = beginning(key, max);
    let mut shown = format!("\"{shown}\"");
    let missing = chars(key) - length;
    if missing > 0 {
        shown += &format!(" … {missing} characters missing");
    }
    (shown, missing > 0)
}

/// Describes a value that there is no room for.
fn kind_and_size(value: &Value) -> String {
    let counted = |kind: &str, number: usize, one: &str, many: &str| {
        format!("({kind} of {number} {})", plural(number, one, many))
    };
    match value {
        Value::String(text) => counted("text", chars(text), "character", "characters"),
        Value::Array(items) => counted("array", items.len(), "entry", "entries"),
        Value::Object(fields) => counted("object", fields.len(), "key", "keys"),
        Value::Number(_) => "(number)".to_owned(),
        Value::Bool(_) | Value::Null => value.to_string(),
    }
}

fn plural<'a>(number: usize, one: &'a str, many: &'a str) -> &'a str {
    if number == 1 { one } else { many }
}

fn chars(text: &str) -> usize {
    text.chars().count()
}

fn visible_length(text: &str) -> usize {
    text.chars().map(letter_length).sum()
}

fn letter_length(letter: char) -> usize {
    if is_shown_as_it_is(letter) { 1 } else { letter.escape_default().len() }
}

fn write_visible(into: &mut String, letter: char) {
    if is_shown_as_it_is(letter) {
        into.push(letter);
    } else {
        into.extend(letter.escape_default());
    }
}

/// Returns the first characters of a text that fit into `room` with escapes, and how many they are.
fn beginning(text: &str, room: usize) -> (String, usize) {
    let number = number_that_fits(text.chars(), room);
    let mut shown = String::new();
    text.chars().take(number).for_each(|letter| write_visible(&mut shown, letter));
    (shown, number)
}

/// Returns the last characters of a text that fit into `room` with escapes, and how many they are.
fn ending(text: &str, room: usize) -> (String, usize) {
    let number = number_that_fits(text.chars().rev(), room);
    let start = text.char_indices().rev().take(number).last().map_or(text.len(), |(start, _)| start);
    let mut shown = String::new();
    text.get(start..).unwrap_or_default().chars().for_each(|letter| write_visible(&mut shown, letter));
    (shown, number)
}

fn number_that_fits(letters: impl Iterator<Item = char>, room: usize) -> usize {
    let mut taken = 0_usize;
    let fits = |letter: &char| {
        taken += letter_length(*letter);
        taken <= room
    };
    letters.take_while(fits).count()
}

/// Returns false for characters that a person cannot see or could mistake for another: quotation marks and backslashes
/// of the text itself, whitespace other than the space, control characters, and characters that are invisible or change
/// the direction of text.
fn is_shown_as_it_is(letter: char) -> bool {
    let is_odd_blank = letter.is_whitespace() && letter != ' ';
    !(matches!(letter, '"' | '\\') || letter.is_control() || is_odd_blank || is_invisible(letter))
}

fn is_invisible(letter: char) -> bool {
    matches!(
        u32::from(letter),
        0xad | 0x34f | 0x61c | 0x115f | 0x1160 | 0x17b4 | 0x17b5 | 0x180b..=0x180f | 0x200b..=0x200f
            | 0x202a..=0x202e | 0x2060..=0x206f | 0x2800 | 0x3164 | 0xfe00..=0xfe0f | 0xfeff | 0xffa0
            | 0xfff9..=0xfffc | 0x1d173..=0x1d17a | 0xe0000..=0xe0fff
    )
}

#[cfg(test)]
mod tests;
