//! Bounds how deep and how costly a source can be to parse, before the parser sees it.
//!
//! oxc's parser and every visitor of its tree recurse, and a stack that overflows kills the worker.
//! So the guard bounds the depth of the tree by what a path through it must cross: in each open
//! bracket, the tokens since the last place where a statement or a list element surely ended. oxc
//! also reads some texts twice (`a<(b)…`, `(a)…`, `infer T extends …`), and that nests: the guard
//! counts how often each token may be read.

mod level;
mod raw;
mod reader;
#[cfg(test)]
mod tests;
mod types;

use raw::Raw;
use reader::{Doubt, Reader, TooDeep};

use super::Language;
use super::lines::place;
use super::rejection::{ModuleForm, Rejection, STRAY_BRACKET};
use super::scan::{Kind, ScanStep, Token};

/// The maximum number of tokens on one path through the syntax tree.
const MAX_DEPTH: u32 = 10_000;

/// The maximum number of brackets that are open at once.
const MAX_NESTING: usize = 500;

/// The maximum number of readings, summed over all tokens.
const MAX_WORK: u64 = 750_000;

/// The maximum number of places where the text is read in two ways.
const MAX_FORKS: usize = 16;

/// Whether the guard could tell code from text in a source that it accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    Clear,
    /// The guard did not understand the text; it is bounded for every meaning.
    Unclear,
}

/// Refuses a source that may overflow the parser's stack or take it too long, in the given language.
///
/// Where a text has two readings, both must be within the bounds.
pub(super) fn check(source: &str, language: Language) -> Result<Reading, Rejection> {
    let mut reader = Reader::new(source, language);
    let first = reader.scanner.next();
    let mut check =
        Check { source, language, reading: Reading::Clear, forks: 0, work: 0, pending: vec![(reader, first)] };
    while let Some((reader, found)) = check.pending.pop() {
        check.follow(reader, found)?;
    }
    Ok(check.reading)
}

struct Check<'s> {
    source: &'s str,
    language: Language,
    reading: Reading,
    forks: usize,
    work: u64,
    /// Readings that are still to be followed, with the first token of each.
    pending: Vec<(Reader<'s>, ScanStep)>,
}

impl<'s> Check<'s> {
    /// Follows one reading to its end.
    fn follow(&mut self, mut reader: Reader<'s>, mut found: ScanStep) -> Result<(), Rejection> {
        loop {
            found = match found {
                ScanStep::End | ScanStep::Error(_) => return Ok(()),
                ScanStep::Token(token) if is_conflict_marker(self.source, token) => {
                    return Err(self.syntax("a merge conflict marker is not code, remove it", token.start));
                }
                ScanStep::Token(token) => {
                    reader.token(token, &mut self.work).map_err(|too_deep| self.too_deep(too_deep))?;
                    if reader.doubt() == Doubt::Key {
                        let place = place(self.source, token.start);
                        return Err(Rejection::ModuleAccess { what: ModuleForm::ImportCall, place });
                    }
                    self.next(&mut reader)
                }
                ScanStep::Slash(_) if self.fork() => {
                    let mut other = reader.clone();
                    let regex = other.scanner.read_regex();
                    self.pending.push((other, regex));
                    reader.scanner.read_division()
                }
                ScanStep::Stray(offset) if self.forks == 0 => return Err(self.syntax(STRAY_BRACKET, offset)),
                ScanStep::Slash(offset) | ScanStep::Stray(offset) | ScanStep::Unsure(offset) => {
                    return self.rest(&reader, offset);
                }
            };
        }
    }

    /// Returns the next token, considering that oxc may consume it unread.
    fn next(&mut self, reader: &mut Reader<'s>) -> ScanStep {
        if reader.doubt() != Doubt::Arrow {
            return reader.scanner.next();
        }
        let position = reader.scanner.position();
        let mut other = reader.clone();
        let found = reader.scanner.next();
        if matches!(found, ScanStep::Token(Token { kind: Kind::Arrow | Kind::Colon, .. })) {
            return found;
        }
        if !self.fork() {
            return ScanStep::Unsure(position);
        }
        let swallowed = other.scanner.swallow();
        self.pending.push((other, swallowed));
        found
    }

    /// Returns whether the text may be read in two ways once more, and counts it.
    fn fork(&mut self) -> bool {
        self.forks += 1;
        self.forks <= MAX_FORKS
    }

    /// Bounds the rest of a text that the scanner does not understand, for every meaning it may have.
    fn rest(&mut self, reader: &Reader<'_>, offset: usize) -> Result<(), Rejection> {
        self.reading = Reading::Unclear;
        let level = reader.level();
        let rest = self.source.get(offset..).unwrap_or_default();
        let raw = Raw::count(rest.as_bytes(), self.language);
        let height = level.height().saturating_add(raw.tokens);
        self.work = self.work.saturating_add(raw.work().saturating_mul(level.readings()));
        let refused = raw.may_import || height > MAX_DEPTH || self.work > MAX_WORK;
        if refused { Err(self.too_deep(TooDeep(offset))) } else { Ok(()) }
    }

    fn too_deep(&self, TooDeep(offset): TooDeep) -> Rejection {
        Rejection::TooDeep { place: place(self.source, offset) }
    }

    fn syntax(&self, message: &str, offset: usize) -> Rejection {
        Rejection::syntax(self.language, message.to_owned(), place(self.source, offset))
    }
}

/// Returns whether oxc would take the line for a marker of a Git merge conflict.
///
/// oxc searches the rest of the file for the other markers, each time an attempt fails at one.
fn is_conflict_marker(source: &str, token: Token) -> bool {
    let line = source.as_bytes().get(token.start..token.start.saturating_add(7));
    token.newline
        && matches!(token.kind, Kind::Less | Kind::Greater | Kind::Operator)
        && matches!(line, Some(b"<<<<<<<" | b"=======" | b">>>>>>>" | b"|||||||"))
}
