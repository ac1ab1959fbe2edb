//! Converts HTML to Markdown or plain text.
//!
//! The conversion works on the stream of tokens, without a tree: trees of hostile pages are deep, and code that walks or drops them
//! recursively exhausts the stack. `html5gum` is a complete HTML tokenizer without unsafe code and dependencies. Wrongly
//! nested tags therefore only produce odd Markdown.
//!
//! If the page marks its main content (`main` or `article`), only that is returned.

use std::collections::BTreeMap;

use html5gum::{DefaultEmitter, HtmlString, Spanned, Token, Tokenizer};
use url::Url;

/// The format in which a page is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExtractMode {
    Markdown,
    Text,
}

impl ExtractMode {
    pub(super) fn parse(word: &str) -> Option<Self> {
        [Self::Markdown, Self::Text].into_iter().find(|mode| mode.as_str() == word)
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Markdown => "markdown",
            Self::Text => "text",
        }
    }
}

/// Main content that is shorter than this, in bytes, is not believed to be all.
const MIN_MAIN_BYTES: usize = 200;

/// Levels of lists that are indented, and of quotations that are marked.
const MAX_LEVELS: usize = 8;

/// Bytes of a link's address. Longer ones are left out.
const MAX_LINK_BYTES: usize = 2_000;

/// Characters of the title.
const MAX_TITLE_CHARS: usize = 300;

/// A converted document.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Document {
    pub(super) title: Option<String>,
    pub(super) text: String,
    /// Whether the text was longer than the limit.
    pub(super) is_cut: bool,
}

/// Converts a page to about this many bytes of text at most.
pub(super) fn convert(page: &str, base: &Url, mode: ExtractMode, max_bytes: usize) -> Document {
    let main = run(page, Writer::new(base, mode, max_bytes, Part::Main));
    if main.text.len() >= MIN_MAIN_BYTES {
        return main;
    }
    let content = run(page, Writer::new(base, mode, max_bytes, Part::WithoutFrame));
    if !content.text.is_empty() {
        return content;
    }
    // A page may consist of navigation only, or lack an end tag.
    run(page, Writer::new(base, mode, max_bytes, Part::All))
}

fn run(page: &str, mut writer: Writer<'_>) -> Document {
    let mut emitter = DefaultEmitter::default();
    // Without a tree, this is how scripts and styles are recognized.
    emitter.naively_switch_states(true);
    for token in Tokenizer::new_with_emitter(page, emitter) {
        let Ok(token) = token;
        match token {
            Token::StartTag(tag) => {
                let name = String::from_utf8_lossy(&tag.name);
                writer.start(&name, &Attributes(&tag.attributes));
                if tag.self_closing && !is_void(&name) {
                    writer.end(&name);
                }
            }
            Token::EndTag(tag) => writer.end(&String::from_utf8_lossy(&tag.name)),
            Token::String(text) => writer.text(&String::from_utf8_lossy(&text)),
            Token::Comment(_) | Token::Doctype(_) | Token::Error(_) => {}
        }
        if writer.is_full() {
            break;
        }
    }
    writer.finish()
}

/// Which part of a page is converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Main,
    /// All but navigation, footers and the like.
    WithoutFrame,
    All,
}

struct Attributes<'t>(&'t BTreeMap<HtmlString, Spanned<HtmlString, ()>>);

impl Attributes<'_> {
    fn get(&self, name: &str) -> Option<String> {
        let value = self.0.get(&HtmlString(name.as_bytes().to_vec()))?;
        Some(String::from_utf8_lossy(value).into_owned())
    }
}

/// An element that is left out, until its end tag.
#[derive(Debug)]
struct Omission {
    name: String,
    /// Elements of the same name inside it that are open.
    depth: usize,
}

/// A list, with the number of the next item if it is numbered.
#[derive(Debug)]
struct List {
    next: Option<usize>,
}

#[derive(Debug)]
struct Writer<'b> {
    base: &'b Url,
    mode: ExtractMode,
    part: Part,
    max_bytes: usize,
    out: String,
    title: Option<String>,
    is_in_title: bool,
    omission: Option<Omission>,
    /// Open elements with the main content.
    main_depth: usize,
    lists: Vec<List>,
    quotes: usize,
    is_preformatted: bool,
    /// The address of the open link, and where its text starts.
    link: Option<(Option<String>, usize)>,
    /// Line feeds to write before the next text.
    breaks: usize,
    has_space: bool,
    /// Whether a list item or heading has begun and has no text yet, so that a block in it begins on its line.
    is_fresh: bool,
    /// Cells of the current row of a table, and whether it is the first row.
    cells: usize,
    is_first_row: bool,
}

impl<'b> Writer<'b> {
    fn new(base: &'b Url, mode: ExtractMode, max_bytes: usize, part: Part) -> Self {
        Self {
            base,
            mode,
            part,
            max_bytes,
            out: String::new(),
            title: None,
            is_in_title: false,
            omission: None,
            main_depth: 0,
            lists: Vec::new(),
            quotes: 0,
            is_preformatted: false,
            link: None,
            breaks: 0,
            has_space: false,
            is_fresh: false,
            cells: 0,
            is_first_row: true,
        }
    }

    fn is_full(&self) -> bool {
        self.out.len() > self.max_bytes
    }

    fn finish(mut self) -> Document {
        let is_cut = self.is_full();
        self.close_link();
        if self.is_preformatted {
            self.end("pre");
        }
        Document { title: self.title, text: self.out.trim().to_owned(), is_cut }
    }

    fn is_markdown(&self) -> bool {
        self.mode == ExtractMode::Markdown
    }

    fn is_visible(&self) -> bool {
        self.omission.is_none() && (self.part != Part::Main || self.main_depth > 0)
    }

    fn is_omitted(&self, name: &str) -> bool {
        match name {
            "script" | "style" | "noscript" | "template" | "svg" | "math" | "iframe" | "object" | "canvas"
            | "audio" | "video" | "select" | "dialog" => true,
            "nav" | "footer" | "aside" | "form" => self.part == Part::WithoutFrame,
            _ => false,
        }
    }

    fn start(&mut self, name: &str, attributes: &Attributes<'_>) {
        if let Some(omission) = &mut self.omission {
            omission.depth += usize::from(omission.name == name);
            return;
        }
        if name == "title" {
            self.is_in_title = self.title.is_none();
            return;
        }
        if self.is_omitted(name) {
            self.omission = Some(Omission { name: name.to_owned(), depth: 0 });
            return;
        }
        if matches!(name, "main" | "article") {
            self.main_depth += 1;
        }
        if !self.is_visible() {
            return;
        }
        match name {
            "br" => self.break_lines(1),
            "hr" => self.rule(),
            "img" => self.image(attributes),
            "a" => self.open_link(attributes.get("href")),
            "strong" | "b" => self.mark("**"),
            "em" | "i" => self.mark("*"),
            "code" | "kbd" | "samp" | "tt" if !self.is_preformatted => self.mark("`"),
            "pre" => self.open_code(),
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => self.heading(name),
            "ul" => self.open_list(None),
            "ol" => self.open_list(attributes.get("start").and_then(|start| start.parse().ok()).or(Some(1))),
            "li" => self.item(),
            "blockquote" => {
                self.break_lines(2);
                self.quotes += 1;
            }
            "table" => {
                self.break_lines(2);
                self.is_first_row = true;
            }
            "tr" => {
                self.break_lines(1);
                self.cells = 0;
            }
            "td" | "th" => self.cell(),
            "dt" | "dd" | "option" | "summary" | "figcaption" | "label" => self.break_lines(1),
            block if is_block(block) => self.break_lines(2),
            _ => {}
        }
    }

    fn end(&mut self, name: &str) {
        if let Some(omission) = &mut self.omission {
            if omission.name == name {
                match omission.depth.checked_sub(1) {
                    Some(depth) => omission.depth = depth,
                    None => self.omission = None,
                }
            }
            return;
        }
        if name == "title" {
            self.is_in_title = false;
            return;
        }
        if self.is_visible() {
            match name {
                "a" => self.close_link(),
                "strong" | "b" => self.mark("**"),
                "em" | "i" => self.mark("*"),
                "code" | "kbd" | "samp" | "tt" if !self.is_preformatted => self.mark("`"),
                "pre" => self.close_code(),
                "ul" | "ol" => {
                    self.lists.pop();
                    self.break_lines(if self.lists.is_empty() { 2 } else { 1 });
                }
                "li" | "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                    self.is_fresh = false;
                    self.break_lines(if name == "li" { 1 } else { 2 });
                }
                "blockquote" => {
                    self.break_lines(2);
                    self.quotes = self.quotes.saturating_sub(1);
                }
                "tr" => self.end_row(),
                "td" | "th" => self.has_space = true,
                block if is_block(block) => self.break_lines(2),
                _ => {}
            }
        }
        if matches!(name, "main" | "article") {
            self.break_lines(2);
            self.main_depth = self.main_depth.saturating_sub(1);
        }
    }

    fn text(&mut self, text: &str) {
        if self.is_in_title {
            let title = self.title.get_or_insert_default();
            title.push_str(text);
            *title = contract::text::line(&title.split_whitespace().collect::<Vec<_>>().join(" "), MAX_TITLE_CHARS);
            return;
        }
        if !self.is_visible() {
            return;
        }
        // One byte more than allowed, so that the page counts as cut.
        let room = (self.max_bytes + 1).saturating_sub(self.out.len());
        let text = text.get(..text.floor_char_boundary(room)).unwrap_or_default();
        if self.is_preformatted {
            for (number, line) in text.split('\n').enumerate() {
                if number > 0 {
                    self.out.push('\n');
                    self.prefix();
                }
                self.out.push_str(line);
            }
            return;
        }
        if text.starts_with(|letter: char| letter.is_whitespace()) {
            self.has_space = true;
        }
        for word in text.split_whitespace() {
            self.separate();
            self.out.push_str(word);
            self.has_space = true;
        }
        self.has_space = text.ends_with(|letter: char| letter.is_whitespace()) && self.has_space;
    }

    /// Requests line feeds before the next text.
    fn break_lines(&mut self, count: usize) {
        if self.is_fresh {
            return;
        }
        self.breaks = self.breaks.max(count);
        self.has_space = false;
    }

    /// Writes what is due before the next text: line feeds, or a space.
    fn separate(&mut self) {
        self.is_fresh = false;
        let is_start = self.out.is_empty();
        let breaks = std::mem::take(&mut self.breaks);
        let space = std::mem::take(&mut self.has_space);
        if is_start {
            self.prefix();
        } else if breaks > 0 {
            let trimmed = self.out.trim_end_matches([' ', '\t']).len();
            // Text of an open link stays where it is.
            if self.link.as_ref().is_none_or(|(_, start)| *start < trimmed) {
                self.out.truncate(trimmed);
            }
            for _ in 0..breaks.min(2) {
                self.out.push('\n');
                self.prefix();
            }
        } else if space && !self.out.ends_with([' ', '\n', '[']) {
            self.out.push(' ');
        }
    }

    /// Begins a line inside quotations.
    fn prefix(&mut self) {
        if self.is_markdown() {
            for _ in 0..self.quotes.min(MAX_LEVELS) {
                self.out.push_str("> ");
            }
        }
    }

    /// Writes the mark before or after a part of a line.
    fn mark(&mut self, mark: &str) {
        if self.is_markdown() {
            // After the text, the space that follows it comes after the mark too.
            let space = std::mem::take(&mut self.has_space);
            let is_opening = self.breaks > 0 || space || self.out.is_empty() || self.out.ends_with([' ', '\n']);
            if is_opening {
                self.has_space = space;
                self.separate();
            }
            self.out.push_str(mark);
        }
    }

    fn rule(&mut self) {
        self.break_lines(2);
        if self.is_markdown() {
            self.separate();
            self.out.push_str("---");
            self.break_lines(2);
        }
    }

    fn heading(&mut self, name: &str) {
        self.break_lines(2);
        if self.is_markdown() {
            let level = name.as_bytes().get(1).map_or(1, |digit| usize::from(digit.saturating_sub(b'0')));
            self.separate();
            self.out.push_str(&"#".repeat(level));
            self.out.push(' ');
            self.is_fresh = true;
        }
    }

    fn open_list(&mut self, next: Option<usize>) {
        self.break_lines(if self.lists.is_empty() { 2 } else { 1 });
        if self.lists.len() < MAX_LEVELS {
            self.lists.push(List { next });
        }
    }

    fn item(&mut self) {
        self.is_fresh = false;
        self.break_lines(1);
        let level = self.lists.len().saturating_sub(1);
        let mark = match self.lists.last_mut().and_then(|list| list.next.as_mut()) {
            Some(next) => {
                let number = *next;
                *next = next.saturating_add(1);
                format!("{number}. ")
            }
            None => "- ".to_owned(),
        };
        self.separate();
        self.out.push_str(&"  ".repeat(level));
        self.out.push_str(&mark);
        self.is_fresh = true;
    }

    fn cell(&mut self) {
        self.has_space = true;
        if self.is_markdown() || self.cells > 0 {
            self.separate();
            self.out.push_str("| ");
        }
        self.cells = self.cells.saturating_add(1);
    }

    fn end_row(&mut self) {
        if self.is_markdown() && self.cells > 0 {
            self.has_space = true;
            self.separate();
            self.out.push('|');
            if self.is_first_row {
                self.break_lines(1);
                self.separate();
                // A row of a hostile page may have very many cells.
                self.out.push_str(&"| --- ".repeat(self.cells.min(100)));
                self.out.push('|');
            }
        }
        self.is_first_row = false;
        self.break_lines(1);
    }

    fn open_code(&mut self) {
        self.break_lines(2);
        self.separate();
        if self.is_markdown() {
            self.out.push_str("```\n");
            self.prefix();
        }
        self.is_preformatted = true;
    }

    fn close_code(&mut self) {
        if !self.is_preformatted {
            return;
        }
        self.is_preformatted = false;
        if self.is_markdown() {
            if !self.out.ends_with('\n') {
                self.out.push('\n');
                self.prefix();
            }
            self.out.push_str("```");
        }
        self.break_lines(2);
    }

    fn image(&mut self, attributes: &Attributes<'_>) {
        let alt = attributes.get("alt").unwrap_or_default();
        let alt = alt.split_whitespace().collect::<Vec<_>>().join(" ");
        if alt.is_empty() {
            return;
        }
        self.separate();
        match attributes.get("src").and_then(|source| self.resolve(&source)).filter(|_| self.is_markdown()) {
            Some(source) => self.out.push_str(&format!("![{alt}]({source})")),
            None => self.out.push_str(&alt),
        }
    }

    fn open_link(&mut self, address: Option<String>) {
        self.close_link();
        let address = address.and_then(|address| self.resolve(&address)).filter(|_| self.is_markdown());
        if address.is_some() {
            self.separate();
            self.out.push('[');
        }
        self.link = Some((address, self.out.len()));
    }

    fn close_link(&mut self) {
        let Some((Some(address), start)) = self.link.take() else { return };
        if self.out.get(start..).is_none_or(|text| text.trim().is_empty()) {
            // A link without text says nothing.
            self.out.truncate(start.saturating_sub(1));
        } else {
            self.out.push_str(&format!("]({address})"));
        }
    }

    /// Returns an absolute address that a model can fetch.
    fn resolve(&self, address: &str) -> Option<String> {
        // Checked first: a short address may be long when it is joined with the base.
        if address.len() > MAX_LINK_BYTES || address.starts_with('#') {
            return None;
        }
        let url = self.base.join(address.trim()).ok()?;
        let is_usable = matches!(url.scheme(), "http" | "https" | "mailto") && url.as_str().len() <= MAX_LINK_BYTES;
        // Parentheses and spaces would end the address.
        is_usable.then(|| url.as_str().replace('(', "%28").replace(')', "%29"))
    }
}

fn is_void(name: &str) -> bool {
    matches!(
        name,
        "br" | "hr" | "img" | "input" | "meta" | "link" | "area" | "base" | "col" | "embed" | "source" | "wbr"
    )
}

fn is_block(name: &str) -> bool {
    matches!(
        name,
        "p" | "div"
            | "section"
            | "article"
            | "main"
            | "header"
            | "footer"
            | "nav"
            | "aside"
            | "address"
            | "figure"
            | "details"
            | "fieldset"
            | "form"
            | "dl"
            | "table"
            | "thead"
            | "tbody"
            | "h1"
            | "h2"
            | "h3"
            | "h4"
            | "h5"
            | "h6"
            | "body"
    )
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::{Document, ExtractMode, convert};

    fn read(page: &str, mode: ExtractMode) -> Document {
        convert(page, &Url::parse("https://example.com/a/b").unwrap(), mode, 1 << 20)
    }

    fn markdown(page: &str) -> String {
        read(page, ExtractMode::Markdown).text
    }

    #[test]
    fn common_elements_become_markdown() {
        for (page, expected) in [
            ("<h1>A</h1><p>one\n two</p><p>three</p>", "# A\n\none two\n\nthree"),
            ("<p>a <b>bold</b> and <i>it</i>, <code>x</code>.</p>", "a **bold** and *it*, `x`."),
            ("<a href='../c?d=1&amp;e'>text</a> end", "[text](https://example.com/c?d=1&e) end"),
            ("<ul><li>a<li>b<ul><li>c</ul></ul>z", "- a\n- b\n  - c\n\nz"),
            (
                "<ul><li><p>a</p></li><li></li><li><div>b</div></li></ul><h2><div>c</div></h2>d",
                "- a\n\n-\n- b\n\n## c\n\nd",
            ),
            ("<ol start=3><li>a</li><li>b</li></ol>", "3. a\n4. b"),
            ("<pre>a\n  b &lt;c&gt;</pre>x", "```\na\n  b <c>\n```\n\nx"),
            ("a<br>b<hr>c", "a\nb\n\n---\n\nc"),
            ("<blockquote><p>q</p><p>r</p></blockquote>s", "> q\n> \n> r\n\ns"),
            ("<table><tr><th>a<th>b</tr><tr><td>1<td>2</tr></table>", "| a | b |\n| --- | --- |\n| 1 | 2 |"),
            ("<img alt='A cat' src=/cat.png>", "![A cat](https://example.com/cat.png)"),
            ("&eacute;&#x1F600;&nbsp;&amp;", "é😀 &"),
        ] {
            assert_eq!(markdown(page), expected, "{page}");
        }
    }

    #[test]
    fn plain_text_has_no_marks() {
        let page = "<h1>A</h1><p>b <b>c</b> <a href=/d>e</a></p><ul><li>f</ul>";
        assert_eq!(read(page, ExtractMode::Text).text, "A\n\nb c e\n\n- f");
    }

    #[test]
    fn scripts_styles_and_dangerous_links_are_left_out() {
        let page = "<head><title> My \n page </title><style>p{}</style></head><script>if (a<b) '</p>'</script>\
                    <p>a</p><noscript>n</noscript><svg><text>s</text></svg><a href='javascript:x'>j</a><a href='#f'>g</a>\
                    <a href='data:text/html,x'>k</a><template><p>t</p></template>";
        let document = read(page, ExtractMode::Markdown);
        assert_eq!(document.title.as_deref(), Some("My page"));
        assert_eq!(document.text, "a\n\njgk");
    }

    #[test]
    fn the_main_content_is_preferred_if_there_is_enough_of_it() {
        let long = "word ".repeat(100);
        let page = format!("<nav>menu</nav><div>frame</div><main><p>{long}</p></main><footer>foot</footer>");
        assert_eq!(markdown(&page), long.trim());
        assert_eq!(
            markdown("<nav>menu</nav><div>frame</div><main>short</main><footer>foot</footer>"),
            "frame\n\nshort"
        );
        assert_eq!(markdown("<nav>menu"), "menu");
    }

    #[test]
    fn hostile_pages_take_bounded_time_and_memory() {
        let pages = [
            "<div>".repeat(200_000),
            "<ul><li>".repeat(100_000),
            "<blockquote>x".repeat(50_000),
            "<a href=x>y".repeat(100_000),
            "<td>".repeat(200_000),
            "</div>".repeat(200_000),
            "<".repeat(500_000),
            "&".repeat(500_000),
            format!("<p {}>", "a ".repeat(200_000)),
            "<title>x</title>".repeat(50_000),
            "<nav>".repeat(100_000),
            "<!--".repeat(200_000),
        ];
        for page in pages {
            let base = Url::parse(&format!("https://example.com/{}", "x".repeat(1_900))).unwrap();
            let document = convert(&page, &base, ExtractMode::Markdown, 100_000);
            assert!(document.text.len() < 200_000, "{}", page.chars().take(20).collect::<String>());
        }
    }
}
