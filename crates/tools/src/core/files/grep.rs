//! `grep`: lines that match a regular expression, with ripgrep's libraries.

use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use contract::limits::{
    GREP_CONTEXT, GREP_LIMIT, MAX_GLOB_BYTES, MAX_GREP_FILE_BYTES, MAX_GREP_LINE_BYTES, MAX_GREP_LINE_CHARS,
    MAX_GREP_PATTERN_BYTES, MAX_WALK_RESULT_BYTES,
};
use executor::ToolResult;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{
    BinaryDetection, MmapChoice, Searcher, SearcherBuilder, Sink, SinkContext, SinkContextKind, SinkFinish, SinkMatch,
};
use ignore::overrides::{Override, OverrideBuilder};
use parking_lot::Mutex;
use rustix::fs::{FileType, Mode, OFlags, fstat, openat};
use serde_json::{Value, json};

use super::CancelFlag;
use super::failure::Failure;
use super::input::Input;
use super::open::{READ, RegularFile, kind, open_file};
use super::text::{name_on_a_line, result};
use super::walk::{End, Entry, Selection, Tree, WalkReport};
use crate::core::roots::{Place, Roots, shorten};

pub(super) fn grep(roots: &Roots, input: &Input<'_>, cancel: &CancelFlag) -> Result<ToolResult, Failure> {
    let place = roots.locate(input.text("path")?.unwrap_or("."))?;
    let search = Search {
        matcher: matcher(input)?,
        glob: glob(input)?,
        limit: input.bounded(&GREP_LIMIT)?,
        context: input.bounded(&GREP_CONTEXT)?,
        cancel,
        found: Mutex::default(),
        count: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
        searched: AtomicUsize::new(0),
        skipped: AtomicUsize::new(0),
    };
    let walked = if kind(roots, &place)? == FileType::Directory {
        let tree = Tree::open(roots, &place, Selection::read(input)?)?;
        let visit = |searcher: &mut Searcher, entry: &Entry<'_>| search.visit(searcher, entry, roots, &place);
        tree.walk(cancel, || search.searcher(), visit)?
    } else {
        let RegularFile { file, stat } = open_file(roots, &place)?;
        let flow = search.file(&mut search.searcher(), file, stat.st_size, place.shown.clone());
        cancel.check()?;
        WalkReport { end: if flow.is_break() { End::Enough } else { End::Complete }, unread: 0 }
    };
    Ok(search.into_result(walked))
}

/// Memory of a compiled pattern, and of the automaton that it becomes while it is used, in bytes.
const PATTERN_MEMORY: usize = 8 << 20;

fn matcher(input: &Input<'_>) -> Result<RegexMatcher, Failure> {
    let pattern = input.required_text("pattern")?;
    if pattern.is_empty() || pattern.len() > MAX_GREP_PATTERN_BYTES {
        return Err(Failure::new(format!("`pattern` must have 1 to {MAX_GREP_PATTERN_BYTES} bytes")));
    }
    let built = RegexMatcherBuilder::new()
        .case_insensitive(input.flag("ignoreCase")?.unwrap_or(false))
        .fixed_strings(input.flag("literal")?.unwrap_or(false))
        .line_terminator(Some(b'\n'))
        .size_limit(PATTERN_MEMORY)
        .dfa_size_limit(PATTERN_MEMORY)
        .build(pattern);
    built.map_err(|error| {
        Failure::new(format!(
            "`pattern` is not a regular expression that can be searched for: {error}. Patterns match within one line; set \
             `literal` to search for the text itself"
        ))
    })
}

fn glob(input: &Input<'_>) -> Result<Option<Override>, Failure> {
    let Some(glob) = input.text("glob")? else { return Ok(None) };
    let wrong = || Failure::new(format!("`{}` is not a glob, such as `*.rs` or `src/**/*.ts`", shorten(glob)));
    if glob.is_empty() || glob.len() > MAX_GLOB_BYTES {
        return Err(wrong());
    }
    let mut builder = OverrideBuilder::new("");
    builder.add(glob).map_err(|_| wrong())?;
    builder.build().map(Some).map_err(|_| wrong())
}

/// A line that matches, with lines around it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Match {
    path: String,
    line: u64,
    text: String,
    before: Vec<String>,
    after: Vec<String>,
}

/// A search, shared by the threads of the walk.
struct Search<'s> {
    matcher: RegexMatcher,
    glob: Option<Override>,
    limit: usize,
    context: usize,
    cancel: &'s CancelFlag,
    found: Mutex<Vec<Match>>,
    count: AtomicUsize,
    bytes: AtomicUsize,
    searched: AtomicUsize,
    skipped: AtomicUsize,
}

impl Search<'_> {
    fn searcher(&self) -> Searcher {
        SearcherBuilder::new()
            .binary_detection(BinaryDetection::quit(0))
            .line_number(true)
            .before_context(self.context)
            .after_context(self.context)
            .heap_limit(Some(MAX_GREP_LINE_BYTES))
            // A file that is shortened while it is mapped would end the process.
            .memory_map(MmapChoice::never())
            .build()
    }

    fn visit(&self, searcher: &mut Searcher, entry: &Entry<'_>, roots: &Roots, place: &Place) -> ControlFlow<()> {
        // If a glob includes files, all others are ignored.
        let is_excluded = || self.glob.as_ref().is_some_and(|glob| glob.matched(entry.path, false).is_ignore());
        if entry.kind != FileType::RegularFile || is_excluded() {
            return ControlFlow::Continue(());
        }
        let opened = openat(entry.folder, entry.name, READ | OFlags::NOFOLLOW, Mode::empty());
        // What has taken the file's place since may be anything.
        let opened = opened.and_then(|opened: OwnedFd| fstat(&opened).map(|stat| (opened, stat)));
        let Ok((opened, stat)) = opened else { return self.skip() };
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return self.skip();
        }
        let path = roots.show(&place.root, &place.below.join(entry.path));
        self.file(searcher, File::from(opened), stat.st_size, path)
    }

    fn skip(&self) -> ControlFlow<()> {
        self.skipped.fetch_add(1, Ordering::Relaxed);
        ControlFlow::Continue(())
    }

    fn file(&self, searcher: &mut Searcher, file: File, size: i64, path: String) -> ControlFlow<()> {
        let size = u64::try_from(size).unwrap_or(0);
        if size > MAX_GREP_FILE_BYTES {
            return self.skip();
        }
        self.searched.fetch_add(1, Ordering::Relaxed);
        // A file that grows is searched up to its size at the beginning.
        let reader = CancellableReader { inner: file.take(size), cancel: self.cancel };
        let mut sink =
            Matches { search: self, path, before: Vec::new(), current: Vec::new(), is_full: false, is_binary: false };
        let searched = searcher.search_reader(&self.matcher, reader, &mut sink);
        let is_full = sink.is_full;
        if sink.is_binary {
            // As in ripgrep, what was found before the first NUL does not count.
            self.count.fetch_sub(sink.current.len(), Ordering::Relaxed);
            sink.current.clear();
        }
        self.found.lock().append(&mut sink.current);
        match searched {
            Err(_) if !self.cancel.is_requested() && !is_full => self.skip(),
            Ok(()) | Err(_) if is_full => ControlFlow::Break(()),
            Ok(()) | Err(_) => ControlFlow::Continue(()),
        }
    }

    fn into_result(self, walked: WalkReport) -> ToolResult {
        let mut found = self.found.into_inner();
        found.sort_unstable();
        // Threads that found something at the same time may have exceeded the limit.
        found.truncate(self.limit);
        let (searched, skipped) = (self.searched.into_inner(), self.skipped.into_inner());
        let body = body(&found);
        let mut notes: Vec<String> = walked.end.note(found.len()).into_iter().collect();
        if skipped > 0 {
            notes.push(format!(
                "{skipped} files were skipped: they are too large, have too long lines, or cannot be read"
            ));
        }
        let shown = if self.context > 0 { Match::with_context } else { Match::without_context };
        let matches: Vec<Value> = found.iter().map(shown).collect();
        let details = json!({
            "matches": matches,
            "filesSearched": searched,
            "filesSkipped": skipped,
            "truncated": walked.end.reason().is_some(),
            "reason": walked.end.reason(),
        });
        result(details, body.trim_end_matches('\n'), notes)
    }
}

/// Returns matches in the format of ripgrep: `path:line: text` for matches and `path-line- text` for lines around them.
fn body(found: &[Match]) -> String {
    let mut body = String::new();
    for one in found {
        let path = name_on_a_line(&one.path);
        let first = one.line.saturating_sub(one.before.len() as u64);
        for (line, text) in (first..).zip(&one.before) {
            body.push_str(&format!("{path}-{line}- {text}\n"));
        }
        body.push_str(&format!("{path}:{}: {}\n", one.line, one.text));
        for (line, text) in (one.line + 1..).zip(&one.after) {
            body.push_str(&format!("{path}-{line}- {text}\n"));
        }
    }
    if body.is_empty() {
        body.push_str("no lines match");
    }
    body
}

impl Match {
    fn without_context(&self) -> Value {
        json!({"path": self.path, "line": self.line, "text": self.text})
    }

    fn with_context(&self) -> Value {
        let (before, after) = (&self.before, &self.after);
        json!({"path": self.path, "line": self.line, "text": self.text, "before": before, "after": after})
    }
}

/// Collects the matches of one file.
struct Matches<'s> {
    search: &'s Search<'s>,
    path: String,
    /// Lines before the next match.
    before: Vec<String>,
    current: Vec<Match>,
    /// Whether there are enough matches.
    is_full: bool,
    is_binary: bool,
}

impl Matches<'_> {
    /// Counts the bytes of a line that is kept.
    fn keep(&mut self, line: &[u8]) -> String {
        let text = shortened(line);
        let total = self.search.bytes.fetch_add(text.len() + self.path.len(), Ordering::Relaxed);
        self.is_full |= total > MAX_WALK_RESULT_BYTES;
        text
    }
}

/// Returns a line without its line break, cut to the limit of characters.
fn shortened(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    // At most four bytes for a character.
    let text = String::from_utf8_lossy(line.get(..line.len().min(4 * MAX_GREP_LINE_CHARS)).unwrap_or_default());
    match text.char_indices().nth(MAX_GREP_LINE_CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None if line.len() > 4 * MAX_GREP_LINE_CHARS => format!("{text}…"),
        None => text.into_owned(),
    }
}

impl Sink for Matches<'_> {
    type Error = io::Error;

    fn matched(&mut self, _searcher: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        if self.search.count.fetch_add(1, Ordering::Relaxed) >= self.search.limit {
            self.is_full = true;
            return Ok(false);
        }
        let text = self.keep(found.bytes());
        let line = found.line_number().unwrap_or(0);
        let before = std::mem::take(&mut self.before);
        self.current.push(Match { path: self.path.clone(), line, text, before, after: Vec::new() });
        Ok(!self.is_full)
    }

    fn context(&mut self, _searcher: &Searcher, found: &SinkContext<'_>) -> Result<bool, io::Error> {
        let text = self.keep(found.bytes());
        match (found.kind(), self.current.last_mut()) {
            (SinkContextKind::After, Some(last)) => last.after.push(text),
            _ => self.before.push(text),
        }
        Ok(!self.is_full)
    }

    fn finish(&mut self, _searcher: &Searcher, end: &SinkFinish) -> Result<(), io::Error> {
        self.is_binary = end.binary_byte_offset().is_some();
        Ok(())
    }

    fn context_break(&mut self, _searcher: &Searcher) -> Result<bool, io::Error> {
        self.before.clear();
        Ok(true)
    }
}

/// A reader that fails when the call is dropped.
struct CancellableReader<'s, R> {
    inner: R,
    cancel: &'s CancelFlag,
}

impl<R: Read> Read for CancellableReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancel.is_requested() {
            return Err(io::Error::other("the call was cancelled"));
        }
        self.inner.read(buffer)
    }
}
