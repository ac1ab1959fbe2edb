//! The guard's state for one open bracket.

use super::types::Types;
use crate::source::Language;
use crate::source::scan::{Bracket, Kind, Scanner, Token};
use crate::source::words::holds_statement;

/// A bracket level. Its *segment* is the text since a statement or list element last ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Level {
    /// The number of tokens on the path to this level, in the levels around it.
    base: u32,
    /// How often the text of this level may be read, apart from arrow functions.
    factor: u64,
    /// The number of arrow functions around this level that oxc may try and abandon, once each.
    arrows: u64,
    /// Whether the level may be the parameters of an arrow function or of a function type.
    parameters: bool,
    /// Whether only words were read in the level so far.
    only_words: bool,
    /// The height of the tallest segment before this one.
    tallest: u32,
    types: Types,
    segment: Segment,
}

#[derive(Debug, Clone, Copy, Default)]
struct Segment {
    tokens: u32,
    /// The height of the tallest closed bracket.
    tallest: u32,
    /// The number of open angle brackets, if they are type arguments.
    angles: u64,
    /// The number of `new` read: after each, oxc tries type arguments once more.
    news: u64,
    /// Whether `extends` was read: after it, oxc also tries type arguments once more.
    extends: bool,
    infers: u64,
    /// The number of colons after a parenthesis, which may start return types of arrow functions.
    return_types: u64,
    /// Whether the segment has a statement that contains another one, or a chain of labels.
    holds: bool,
    /// As `holds`, unless the next token is a colon, which makes the word a property name.
    may_hold: bool,
    has_do: bool,
}

impl Default for Level {
    fn default() -> Self {
        Self {
            base: 0,
            factor: 1,
            arrows: 0,
            parameters: false,
            only_words: true,
            tallest: 0,
            types: Types::default(),
            segment: Segment::default(),
        }
    }
}

impl Level {
    /// Returns the maximum number of tokens on a path through the segment, from the start of the text.
    pub(super) fn height(&self) -> u32 {
        self.base + self.segment.tokens + self.segment.tallest
    }

    /// Returns how often a token at this point may be read.
    pub(super) fn readings(&self) -> u64 {
        let arrows = 1 + self.arrows + self.segment.return_types;
        self.factor_here().saturating_mul(arrows)
    }

    fn factor_here(&self) -> u64 {
        let Segment { angles, news, extends, infers, .. } = self.segment;
        self.factor.saturating_mul(1 + angles * (1 + news + u64::from(extends)) + infers)
    }

    /// Returns whether a construct of the segment continues after a comma.
    pub(super) fn outlives_comma(&self) -> bool {
        self.segment.angles > 0 || self.segment.holds
    }

    pub(super) fn has_do(&self) -> bool {
        self.segment.has_do
    }

    /// Returns whether this closed level may be the parameters of a function type.
    pub(super) fn is_function_type(&self) -> bool {
        self.types.is_function_type()
    }

    /// Returns whether the level is the parentheses of an `import`.
    pub(super) fn is_import(&self) -> bool {
        self.types.is_import()
    }

    /// Returns the level of a bracket that opens with the last token, after `before`.
    pub(super) fn inside(
        &self,
        scanner: &Scanner<'_>,
        language: Language,
        before: Option<Token>,
        bracket: Bracket,
    ) -> Self {
        // After `}`, parentheses may be anything; after another operand, they are a call.
        let call = before
            .is_some_and(|before| before.kind != Kind::Close(Bracket::Brace) && scanner.may_end_expression(before))
            || scanner.previous3().is_some_and(|earlier| earlier.kind == Kind::Dot);
        let parameters = bracket == Bracket::Paren && !call;
        // A pattern at the start of parameters is read once to decide whether they are parameters.
        let pattern = matches!(bracket, Bracket::Square | Bracket::Brace) && self.parameters && self.only_words;
        let readings = if pattern { 2 } else { 1 };
        Self {
            base: self.base + self.segment.tokens,
            factor: self.factor_here().saturating_mul(readings),
            arrows: self.arrows + self.segment.return_types + u64::from(parameters),
            parameters,
            types: self.types.inside(scanner, language, before, bracket, call, self.segment.angles > 0),
            ..Self::default()
        }
    }

    /// Adds a bracket that closed.
    pub(super) fn absorb(&mut self, inner: &Self) {
        let height = inner.tallest.max(inner.segment.tokens + inner.segment.tallest);
        self.segment.tallest = self.segment.tallest.max(height + 1);
        self.only_words = false;
    }

    pub(super) fn end_segment(&mut self) {
        self.tallest = self.tallest.max(self.segment.tokens + self.segment.tallest);
        self.segment = Segment::default();
        self.types.end_segment();
    }

    /// Counts a token that closes nothing; `before` is the token before it.
    pub(super) fn count(&mut self, scanner: &Scanner<'_>, language: Language, before: Option<Token>, token: Token) {
        let segment = &mut self.segment;
        let angles = segment.angles;
        segment.tokens += 1;
        segment.holds |= segment.may_hold && token.kind != Kind::Colon;
        segment.may_hold = false;
        match token.kind {
            Kind::Word if before.is_none_or(|before| before.kind != Kind::Dot) => {
                segment.word(scanner.token_bytes(token));
            }
            Kind::Less => segment.angles += 1,
            Kind::Greater => segment.angles = segment.angles.saturating_sub(1),
            Kind::Colon => segment.colon(before, scanner.previous3()),
            _ => {}
        }
        self.types.count(scanner, language, before, token, angles);
        self.only_words &= matches!(token.kind, Kind::Word | Kind::Open(_));
    }
}

impl Segment {
    fn word(&mut self, word: &[u8]) {
        match word {
            b"new" => self.news += 1,
            b"extends" => self.extends = true,
            b"infer" => self.infers += 1,
            _ => self.may_hold = holds_statement(word),
        }
        self.has_do |= word == b"do";
    }

    /// Counts a colon after `before`, which follows `earlier`.
    fn colon(&mut self, before: Option<Token>, earlier: Option<Token>) {
        let is = |token: Option<Token>, kind| token.is_some_and(|token| token.kind == kind);
        // `a ? (b) : c => d`: everything after the colon may be read twice.
        self.return_types += u64::from(is(before, Kind::Close(Bracket::Paren)));
        self.holds |= is(before, Kind::Word) && is(earlier, Kind::Colon);
    }
}
