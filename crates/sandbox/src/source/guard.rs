//! Bounds how deep and how costly a source can be to parse, before the parser sees it.
//!
//! oxc's parser and every visitor of its tree recurse, and a stack that overflows kills the worker.
//! So the guard bounds the depth of the tree by what a path through it must cross: in each open
//! bracket, the tokens since the last place where a statement or a list element surely ended. oxc
//! also reads some texts twice (`a<(b)…`, `(a)…`, `infer T extends …`), and that nests: the guard
//! counts how often each token may be read.

mod level;
mod raw;
#[cfg(test)]
mod tests;

use level::Level;
use raw::Raw;

use super::Language;
use super::lines::place;
use super::rejection::{Rejection, STRAY_BRACKET};
use super::scan::{Bracket, Found, Kind, Scanner, Token};
use super::words::continues;

/// The most tokens on one path through the syntax tree.
const MAX_DEPTH: u32 = 10_000;

/// The most brackets that are open at once.
const MAX_NESTING: usize = 500;

/// The most readings of a token, summed over all tokens.
const MAX_WORK: u64 = 500_000;

/// The most slashes that are read both ways.
const MAX_FORKS: usize = 8;

/// Whether the guard could tell what is code in a source that it let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    Clear,
    /// Bounded whatever it means, for the language that it was checked for.
    Unclear,
}

/// Refuses a source that may overflow the parser's stack or keep it busy.
///
/// Where a slash has two readings, both must be within the bounds.
pub(super) fn check(source: &str, language: Language) -> Result<Reading, Rejection> {
    let mut reading = Reading::Clear;
    let mut forks = 0;
    let mut guard = Guard::new(source);
    let first = guard.scanner.next();
    let mut pending = vec![(guard, first)];
    while let Some((mut guard, mut found)) = pending.pop() {
        loop {
            let next = match found {
                Found::End | Found::Error(_) => break,
                Found::Token(token) if is_conflict_marker(source, token) => {
                    let message = "a merge conflict marker is not code, remove it".to_owned();
                    return Err(Rejection::syntax(language, message, place(source, token.start)));
                }
                Found::Token(token) => guard.token(token).map(|()| Some(guard.scanner.next())),
                Found::Slash(_) if forks < MAX_FORKS => {
                    forks += 1;
                    let mut other = guard.clone();
                    let regex = other.scanner.regex();
                    pending.push((other, regex));
                    Ok(Some(guard.scanner.divide()))
                }
                Found::Stray(offset) if forks == 0 => {
                    let message = STRAY_BRACKET.to_owned();
                    return Err(Rejection::syntax(language, message, place(source, offset)));
                }
                Found::Slash(offset) | Found::Stray(offset) | Found::Unsure(offset) => {
                    reading = Reading::Unclear;
                    guard.rest(source, offset, language).map(|()| None)
                }
            };
            match next {
                Ok(Some(next)) => found = next,
                Ok(None) => break,
                Err(TooDeep(offset)) => return Err(Rejection::TooDeep { place: place(source, offset) }),
            }
        }
    }
    Ok(reading)
}

/// The offset at which a bound was crossed.
struct TooDeep(usize);

#[derive(Clone)]
struct Guard<'s> {
    scanner: Scanner<'s>,
    /// The level of the text itself, and one for each open bracket.
    levels: Vec<Level>,
    work: u64,
    /// How often in a row the word `static` was read: oxc looks past all of them each time.
    statics: u64,
    previous: Option<Token>,
}

impl<'s> Guard<'s> {
    fn new(source: &'s str) -> Self {
        Self { scanner: Scanner::new(source), levels: vec![Level::default()], work: 0, statics: 0, previous: None }
    }

    fn token(&mut self, token: Token) -> Result<(), TooDeep> {
        let before = self.previous.replace(token);
        let closed = if matches!(token.kind, Kind::Close(_)) { self.levels.pop() } else { None };
        let nesting = self.levels.len();
        let Some(level) = self.levels.last_mut() else { return Err(TooDeep(token.start)) };
        if let Some(closed) = closed {
            level.absorb(&closed);
            if token.kind == Kind::Close(Bracket::Substitution) {
                // The substitutions of one template are siblings.
                level.end_segment();
            }
        } else {
            if before.is_some_and(|before| ends_segment(&self.scanner, level, before, token)) {
                level.end_segment();
            }
            level.count(&self.scanner, before, token);
        }
        let level = *level;
        self.charge(&level, before, token)?;
        if level.height() > MAX_DEPTH || nesting > MAX_NESTING {
            return Err(TooDeep(token.start));
        }
        if let Kind::Open(bracket) = token.kind {
            let call = before.is_some_and(|before| self.is_callee(before));
            self.levels.push(level.inside(bracket, call));
        }
        Ok(())
    }

    /// Whether parentheses after the token are a call. After `}` they may be anything.
    fn is_callee(&self, token: Token) -> bool {
        token.kind != Kind::Close(Bracket::Brace) && self.scanner.is_operand(token)
    }

    /// Adds the cost of a token, and of the white space and the comments before it.
    fn charge(&mut self, level: &Level, before: Option<Token>, token: Token) -> Result<(), TooDeep> {
        let gap = token.end - before.map_or(0, |before| before.end);
        let mut cost = 1 + gap as u64 / 16;
        if token.kind == Kind::Literal && self.scanner.word(token).starts_with(b"0") {
            // oxc converts a long hexadecimal BigInt to decimal, which is quadratic.
            let length = (token.end - token.start) as u64;
            cost += length * length / 65_536;
        }
        if token.kind == Kind::Word && self.scanner.word(token) == b"static" {
            self.statics += 1;
            cost += self.statics;
        } else {
            self.statics = 0;
        }
        self.work = self.work.saturating_add(cost.saturating_mul(level.readings()));
        if self.work > MAX_WORK { Err(TooDeep(token.start)) } else { Ok(()) }
    }

    /// Bounds the rest of a text that the scanner does not understand, whatever it means.
    fn rest(&self, source: &str, offset: usize, language: Language) -> Result<(), TooDeep> {
        let rest = source.get(offset..).unwrap_or_default();
        let level = self.levels.last().copied().unwrap_or_default();
        let raw = Raw::count(rest.as_bytes(), language);
        let height = level.height().saturating_add(raw.tokens);
        let work = raw.work().saturating_mul(level.readings()).saturating_add(self.work);
        if height > MAX_DEPTH || work > MAX_WORK { Err(TooDeep(offset)) } else { Ok(()) }
    }
}

/// Whether a statement or a list element surely ends between two tokens of one level.
///
/// Nothing that follows may continue it: `else` after a semicolon does, and so does everything
/// after the parentheses of an `if`. A comma ends nothing while a list of type arguments or a
/// statement that holds another may be open.
fn ends_segment(scanner: &Scanner<'_>, level: &Level, before: Token, token: Token) -> bool {
    let word: &[u8] = if token.kind == Kind::Word { scanner.word(token) } else { b"" };
    let continues_do = word == b"while" && level.has_do();
    match before.kind {
        Kind::Comma => !level.outlives_comma(),
        Kind::Semicolon => word != b"else" && !continues_do,
        _ if token.kind != Kind::Word || continues(word) || continues_do => false,
        Kind::Close(Bracket::Brace) => true,
        _ => token.newline && scanner.is_operand(before),
    }
}

/// Whether oxc would take the line for a mark that Git leaves in a merge conflict.
///
/// It looks for the other marks through the rest of the file, each time an attempt fails at one.
fn is_conflict_marker(source: &str, token: Token) -> bool {
    let line = source.as_bytes().get(token.start..token.start.saturating_add(7));
    token.newline
        && matches!(token.kind, Kind::Less | Kind::Greater | Kind::Operator)
        && matches!(line, Some(b"<<<<<<<" | b"=======" | b">>>>>>>" | b"|||||||"))
}
