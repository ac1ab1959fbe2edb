//! Tables for people: a header, aligned columns, and no line wider than the terminal.

use std::io::IsTerminal;

use contract::text;
use rustix::termios::tcgetwinsize;

/// The narrowest that a column becomes; a table that still does not fit is wider than the terminal.
const MIN_COLUMN: usize = 6;

/// The space between two columns.
const GAP: &str = "  ";

/// Rows under a header. Cells may contain any text: it is printed on one line, with unsafe characters escaped.
#[derive(Clone, Debug)]
pub(crate) struct Table<const N: usize> {
    header: [&'static str; N],
    /// The columns that are never shortened, for example ids.
    whole: &'static [usize],
    /// The columns that are left out of a table that does not fit, the first one first.
    least: &'static [usize],
    rows: Vec<Row<N>>,
}

#[derive(Clone, Debug)]
enum Row<const N: usize> {
    Cells([String; N]),
    /// An empty line between two groups of rows.
    Gap,
}

impl<const N: usize> Table<N> {
    pub(crate) fn new(header: [&'static str; N]) -> Self {
        Self { header, whole: &[], least: &[], rows: Vec::new() }
    }

    /// Never shortens these columns, which are counted from 0.
    pub(crate) fn with_whole(self, columns: &'static [usize]) -> Self {
        Self { whole: columns, ..self }
    }

    /// Leaves out these columns, the first one first, as long as the table does not fit with all columns shortened.
    pub(crate) fn with_least(self, columns: &'static [usize]) -> Self {
        Self { least: columns, ..self }
    }

    pub(crate) fn add(&mut self, cells: [String; N]) {
        self.rows.push(Row::Cells(cells.map(|cell| text::line(&cell, usize::MAX))));
    }

    /// Starts a new group of rows.
    pub(crate) fn add_gap(&mut self) {
        self.rows.push(Row::Gap);
    }

    /// Returns the table with lines of at most `width` columns: the widest column is shortened, with `…`. Without a
    /// width nothing is shortened.
    pub(crate) fn render(&self, width: Option<usize>) -> String {
        let widths = self.widths(width);
        let mut text = line(&self.header.map(str::to_owned), &widths);
        for row in &self.rows {
            match row {
                Row::Cells(cells) => text += &line(cells, &widths),
                Row::Gap => text.push('\n'),
            }
        }
        text
    }

    /// Returns the width of each column; `None` for those that are left out.
    fn widths(&self, line: Option<usize>) -> [Option<usize>; N] {
        let mut widths = self.natural_widths().map(Some);
        let Some(line) = line else { return widths };
        for column in self.least {
            if least_width(&widths, self.whole) <= line {
                break;
            }
            if let Some(width) = widths.get_mut(*column) {
                *width = None;
            }
        }
        fit(&mut widths, self.whole, line);
        widths
    }

    fn natural_widths(&self) -> [usize; N] {
        let mut widths = self.header.map(display_width);
        for row in &self.rows {
            let Row::Cells(cells) = row else { continue };
            for (width, cell) in widths.iter_mut().zip(cells) {
                *width = (*width).max(display_width(cell));
            }
        }
        widths
    }
}

/// The narrowest and widest `$COLUMNS` that is believed.
const COLUMNS: std::ops::RangeInclusive<usize> = 20..=1_000;

/// Returns the width for tables: `$COLUMNS` if it is set, else that of the terminal that standard output is, or `None` if
/// it is not a terminal.
pub(crate) fn terminal_width() -> Option<usize> {
    let given = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    if let Some(columns) = given.filter(|columns| COLUMNS.contains(columns)) {
        return Some(columns);
    }
    let stdout = std::io::stdout();
    let size = stdout.is_terminal().then(|| tcgetwinsize(&stdout).ok()).flatten()?;
    // A terminal that does not know its size says 0.
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Returns how wide a line of these columns is.
fn line_width(widths: impl Iterator<Item = usize>) -> usize {
    let (count, sum) = widths.fold((0_usize, 0), |(count, sum), width| (count + 1, sum + width));
    sum + GAP.len() * count.saturating_sub(1)
}

/// Returns how wide a line is if all columns that may be shortened are as narrow as they may be.
fn least_width(widths: &[Option<usize>], whole: &[usize]) -> usize {
    let least = |(column, width): (usize, &Option<usize>)| {
        width.map(|width| if whole.contains(&column) { width } else { width.min(MIN_COLUMN) })
    };
    line_width(widths.iter().enumerate().filter_map(least))
}

/// Takes width from the widest columns until the line fits, or all are as narrow as they may be.
fn fit(widths: &mut [Option<usize>], whole: &[usize], line: usize) {
    loop {
        let excess = line_width(widths.iter().filter_map(|width| *width)).saturating_sub(line);
        let mut columns: Vec<&mut usize> = widths
            .iter_mut()
            .enumerate()
            .filter_map(|(column, width)| {
                width.as_mut().filter(|width| !whole.contains(&column) && **width > MIN_COLUMN)
            })
            .collect();
        // Of several equally wide columns, the last one is shortened first: it is the least important one.
        columns.sort_by_key(|width| **width);
        let Some(widest) = columns.pop().filter(|_| excess > 0) else { return };
        let second = columns.pop().map_or(MIN_COLUMN, |second| *second);
        *widest = widest.saturating_sub(excess).max(second).min(*widest - 1);
    }
}

fn line<const N: usize>(cells: &[String; N], widths: &[Option<usize>; N]) -> String {
    let mut text = String::new();
    for (cell, width) in cells.iter().zip(widths) {
        let Some(width) = width else { continue };
        let shown = if is_path(cell) { shorten_path(cell, *width) } else { shorten(cell, *width) };
        let padding = width.saturating_sub(display_width(&shown));
        text += &shown;
        text += &" ".repeat(padding);
        text += GAP;
    }
    format!("{}\n", text.trim_end())
}

/// Returns text of at most `width` columns, with `…` at the end if some of it is missing.
pub(crate) fn shorten(text: &str, width: usize) -> String {
    if display_width(text) <= width {
        return text.to_owned();
    }
    let (mut shown, mut used) = (String::new(), 0);
    for letter in text.chars() {
        used += columns(letter);
        if used + 1 > width {
            break;
        }
        shown.push(letter);
    }
    format!("{}…", shown.trim_end())
}

/// Returns whether a cell is a path alone, possibly with a remark in parentheses after it. A command with arguments is
/// not one, and a comment is not one either.
fn is_path(text: &str) -> bool {
    let path = without_remark(text);
    let is_rooted = path.starts_with("~/") || path.starts_with('/') && !path.starts_with("//");
    is_rooted && !path.contains(char::is_whitespace)
}

fn without_remark(text: &str) -> &str {
    text.split_once(" (").map_or(text, |(path, _)| path)
}

/// Returns the end of a path, of at most `width` columns, with `…` in place of what is missing: the end of a path says
/// more than its beginning. A remark after it is left out rather than a part of the file's name.
fn shorten_path(text: &str, width: usize) -> String {
    if display_width(text) <= width {
        return text.to_owned();
    }
    let path = without_remark(text);
    let fits = |rest: &&str| display_width(rest) < width;
    let starts_at_folder = |rest: &&str| rest.starts_with('/') && rest.len() > 1;
    let at_folder = [text, path].into_iter().find_map(|text| ends(text).filter(starts_at_folder).find(fits));
    let rest = at_folder.or_else(|| ends(path).find(fits));
    format!("…{}", rest.unwrap_or_default())
}

/// Returns the ends of a text, the longest one first.
fn ends(text: &str) -> impl Iterator<Item = &str> {
    text.char_indices().filter_map(|(at, _)| text.get(at..))
}

/// Returns how many columns a text takes on a terminal.
pub(crate) fn display_width(text: &str) -> usize {
    text.chars().map(columns).sum()
}

/// Returns how many columns a character takes: none for combining marks, two for East Asian wide characters and emoji.
fn columns(letter: char) -> usize {
    match u32::from(letter) {
        0x300..=0x36f | 0x1ab0..=0x1aff | 0x1dc0..=0x1dff | 0x20d0..=0x20ff | 0xfe20..=0xfe2f => 0,
        0x1100..=0x115f
        | 0x2e80..=0x303e
        | 0x3041..=0x4dbf
        | 0x4e00..=0xa4cf
        | 0xa960..=0xa97f
        | 0xac00..=0xd7a3
        | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f
        | 0xff00..=0xff60
        | 0xffe0..=0xffe6
        | 0x1f300..=0x1f64f
        | 0x1f680..=0x1f6ff
        | 0x1f900..=0x1f9ff
        | 0x1fa70..=0x1faff
        | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::{Table, display_width, is_path, shorten, shorten_path};

    fn table() -> Table<3> {
        let mut table = Table::new(["ID", "STATE", "CODE"]);
        table.add(["cm_1".to_owned(), "waiting".to_owned(), "return await MCP.files.readTextFile()".to_owned()]);
        table.add(["cm_22".to_owned(), "failed".to_owned(), "日本語のコード\nx".to_owned()]);
        table
    }

    #[test]
    fn a_table_without_a_width_shows_everything_under_its_header() {
        let expected = "ID     STATE    CODE\n\
                        cm_1   waiting  return await MCP.files.readTextFile()\n\
                        cm_22  failed   日本語のコード x\n";
        assert_eq!(table().render(None), expected);
        assert_eq!(table().render(Some(200)), expected);
    }

    #[test]
    fn the_widest_column_is_shortened_until_every_line_fits() {
        let expected = "ID     STATE    CODE\n\
                        cm_1   waiting  return await…\n\
                        cm_22  failed   日本語のコー…\n";
        assert_eq!(table().render(Some(29)), expected);
        for width in 22..80 {
            for line in table().render(Some(width)).lines() {
                assert!(display_width(line) <= width, "{width}: {line}");
            }
        }
        // No column becomes unreadable, however narrow the terminal is.
        assert!(table().render(Some(3)).starts_with("ID     STATE   CODE\ncm_1   waiti…  retur…\n"));
    }

    #[test]
    fn columns_that_must_stay_whole_are_never_shortened() {
        let mut table = Table::new(["ID", "CODE"]).with_whole(&[0]);
        table.add(["cm_0123456789abcdef".to_owned(), "return 12345".to_owned()]);
        assert_eq!(table.render(Some(29)), "ID                   CODE\ncm_0123456789abcdef  return…\n");
        assert_eq!(table.render(Some(10)), "ID                   CODE\ncm_0123456789abcdef  retur…\n");
    }

    #[test]
    fn the_least_columns_are_left_out_of_a_table_that_does_not_fit() {
        let mut table = Table::new(["ID", "STATE", "CREATED", "USED"]).with_whole(&[0]).with_least(&[2, 1]);
        table.add(["tok_1".to_owned(), "in force".to_owned(), "just now".to_owned(), "never".to_owned()]);
        assert_eq!(table.render(None), table.render(Some(32)));
        assert_eq!(table.render(Some(28)), "ID     STATE   CREAT…  USED\ntok_1  in fo…  just…   never\n");
        assert_eq!(table.render(Some(27)), "ID     STATE     USED\ntok_1  in force  never\n");
        assert_eq!(table.render(Some(19)), "ID     USED\ntok_1  never\n");
        assert_eq!(table.render(Some(3)), "ID     USED\ntok_1  never\n");
    }

    #[test]
    fn of_a_path_the_end_is_shown() {
        let path = "~/.config/cellmate/config.json5:4 (user)";
        assert!(is_path(path) && is_path("/usr/bin/server"));
        for other in ["/usr/bin/npx -y server", "// a comment", "/* a */", "https://a.example/b", "a/b", ""] {
            assert!(!is_path(other), "{other}");
        }
        assert_eq!(shorten_path(path, 40), path);
        assert_eq!(shorten_path(path, 39), "…/cellmate/config.json5:4 (user)");
        assert_eq!(shorten_path(path, 24), "…/config.json5:4 (user)");
        assert_eq!(shorten_path(path, 21), "…/config.json5:4");
        assert_eq!(shorten_path(path, 13), "…nfig.json5:4");
        assert_eq!(shorten_path("/a/日本/", 6), "…日本/");
        for width in 1..50 {
            assert!(display_width(&shorten_path(path, width)) <= width, "{width}");
        }
        let mut table = Table::new(["NAME", "FROM"]);
        table.add(["a".to_owned(), path.to_owned()]);
        assert_eq!(table.render(Some(32)), "NAME  FROM\na     …/config.json5:4 (user)\n");
    }

    #[test]
    fn groups_are_separated_by_an_empty_line_and_unsafe_characters_are_escaped() {
        let mut table = Table::new(["A"]);
        table.add(["\u{1b}[31m".to_owned()]);
        table.add_gap();
        table.add(["b".to_owned()]);
        assert_eq!(table.render(Some(40)), "A\n\\u{1b}[31m\n\nb\n");
    }

    #[test]
    fn shortened_text_never_exceeds_its_width() {
        assert_eq!(shorten("abc", 3), "abc");
        assert_eq!(shorten("abcd", 3), "ab…");
        assert_eq!(shorten("日本語", 4), "日…");
        assert_eq!(shorten("e\u{301}e\u{301}e\u{301}", 2), "e\u{301}…");
    }
}
