//! Tracks where a type may start, as far as tokens tell.
//!
//! oxc takes any token for the `=>` of a function type: in `x as new() } …` the brace is consumed, and the text after
//! it means something else than it seems. So the guard must know which parentheses may be the parameters of a function
//! type. It may assume so too often, but never too rarely.

use crate::source::Language;
use crate::source::scan::{Bracket, Kind, Scanner, Token};

/// What a bracket level knows about types.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Types {
    /// Whether the bracket itself opened where a type is possible.
    bracket: bool,
    /// Whether it is a substitution in a template type, where types may follow each other.
    juxtaposes: bool,
    /// Whether it is the braces of an object, where no type follows a colon.
    object: bool,
    /// Whether it is the parentheses after `import`.
    import: bool,
    /// Whether it is parentheses that may be the parameters of a function type.
    function: bool,
    shape: Shape,

    // The fields below describe the current segment.
    /// Whether a type may have started.
    started: bool,
    /// Whether the segment has the word `type`, so that a type may follow `=`.
    alias: bool,
    /// Whether the segment has `extends` or `implements`, so that JavaScript too may have type arguments.
    heritage: bool,
    /// Whether the last colon follows a parenthesis.
    returns: bool,
    /// Whether the outermost angle bracket opened after an operand, so that it holds no parameters.
    arguments: bool,
    /// Whether the last token, or the one before an opening bracket, closed an angle bracket that may hold type
    /// parameters.
    parameters: bool,
}

/// How much the text in parentheses looks like parameters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Shape {
    /// Nothing yet; `()` are parameters.
    #[default]
    Empty,
    /// Modifiers and a name.
    Name,
    /// A name or a pattern, and a question mark.
    Optional,
    Parameters,
    Other,
}

impl Types {
    /// Returns whether this closed level may be the parameters of a function type.
    pub(super) fn is_function_type(&self) -> bool {
        self.function && !matches!(self.shape, Shape::Name | Shape::Other)
    }

    pub(super) fn is_import(&self) -> bool {
        self.import
    }

    pub(super) fn end_segment(&mut self) {
        let Self { bracket, juxtaposes, object, import, function, shape, .. } = *self;
        *self = Self { bracket, juxtaposes, object, import, function, shape, ..Self::default() };
    }

    /// Returns the state of a bracket that opens after `before`.
    pub(super) fn inside(
        &self,
        scanner: &Scanner<'_>,
        language: Language,
        before: Option<Token>,
        bracket: Bracket,
        call: bool,
        in_angles: bool,
    ) -> Self {
        let here = self.bracket || self.started;
        let starts = self.starts(scanner, language, before, in_angles);
        let word = before.map_or(&b""[..], |before| scanner.token_bytes(before));
        let types = match bracket {
            // An index after an operand: of a value, or of a type.
            Bracket::Square if call => here,
            Bracket::Substitution => self.bracket,
            Bracket::Paren if call => self.juxtaposes,
            _ => starts,
        };
        let parameters_only = before.is_some_and(|before| before.kind == Kind::Greater) || word == b"new";
        Self {
            bracket: types,
            juxtaposes: bracket == Bracket::Substitution && types,
            object: bracket == Bracket::Brace && !starts && before.is_some_and(|before| self.is_value(before, word)),
            import: bracket == Bracket::Paren && word == b"import",
            function: bracket == Bracket::Paren && types,
            // After `new` and type parameters, oxc does not check whether they look like parameters.
            shape: if parameters_only { Shape::Parameters } else { Shape::Empty },
            ..Self::default()
        }
    }

    /// Returns whether braces after the token are an object or a pattern, if they are not a type.
    fn is_value(&self, before: Token, word: &[u8]) -> bool {
        match before.kind {
            Kind::Operator
            | Kind::Comma
            | Kind::Question
            | Kind::Open(Bracket::Paren | Bracket::Square | Bracket::Substitution) => true,
            Kind::Colon => self.object,
            Kind::Word => word == b"return",
            _ => false,
        }
    }

    /// Returns whether a type may start after `before`.
    fn starts(&self, scanner: &Scanner<'_>, language: Language, before: Option<Token>, in_angles: bool) -> bool {
        let Some(before) = before else { return false };
        let here = self.bracket || self.started;
        let typed = language == Language::TypeScript || here;
        self.juxtaposes
            || match before.kind {
                Kind::Colon => typed && (!self.object || self.returns),
                Kind::Less => typed || self.heritage,
                Kind::Greater => self.parameters,
                Kind::Comma => self.bracket || in_angles,
                Kind::Open(_) => self.bracket,
                Kind::Arrow | Kind::Question | Kind::Bang => here,
                Kind::Operator => match scanner.token_bytes(before) {
                    b"=" => self.alias || in_angles,
                    b"|" | b"&" | b"..." => here,
                    _ => false,
                },
                Kind::Word => match scanner.token_bytes(before) {
                    b"as" | b"satisfies" => true,
                    b"asserts" | b"extends" | b"in" | b"infer" | b"is" | b"keyof" | b"readonly" | b"unique" => typed,
                    b"new" => here,
                    _ => false,
                },
                _ => false,
            }
    }

    /// Counts a token of the level that closes nothing; `angles` brackets are open before it.
    pub(super) fn count(
        &mut self,
        scanner: &Scanner<'_>,
        language: Language,
        before: Option<Token>,
        token: Token,
        angles: u64,
    ) {
        let typed = language == Language::TypeScript || self.bracket || self.started;
        let word = scanner.token_bytes(token);
        if !matches!(token.kind, Kind::Open(_)) {
            self.parameters = token.kind == Kind::Greater && (angles > 1 || angles == 1 && !self.arguments);
        }
        match token.kind {
            Kind::Colon => {
                self.returns = before.is_some_and(|before| matches!(before.kind, Kind::Close(Bracket::Paren)));
                self.started |= typed && (!self.object || self.returns);
            }
            Kind::Less => {
                self.started |= typed || self.heritage;
                if angles == 0 {
                    let property = scanner.previous3().is_some_and(|earlier| earlier.kind == Kind::Dot);
                    self.arguments = property || before.is_some_and(|before| scanner.may_end_expression(before));
                }
            }
            // A type ends before `=`, unless it is the name of an alias or a default.
            Kind::Operator if word == b"=" && angles == 0 => self.started &= self.alias,
            Kind::Word if before.is_none_or(|before| before.kind != Kind::Dot) => match word {
                b"as" | b"satisfies" => self.started = true,
                b"type" => {
                    self.alias |= typed;
                    self.started |= typed;
                }
                b"extends" | b"implements" => {
                    self.heritage = true;
                    self.started |= typed;
                }
                b"interface" | b"is" => self.started |= typed,
                _ => {}
            },
            _ => {}
        }
        self.shape = self.shape.next(token.kind, word);
    }
}

impl Shape {
    fn next(self, kind: Kind, word: &[u8]) -> Self {
        let ends_name = matches!(kind, Kind::Colon | Kind::Comma) || word == b"=";
        match (self, kind) {
            (Self::Empty, Kind::Operator) if word == b"..." => Self::Parameters,
            (Self::Empty | Self::Name, Kind::Word | Kind::Open(Bracket::Brace | Bracket::Square)) => Self::Name,
            (Self::Name, Kind::Question) => Self::Optional,
            (Self::Name | Self::Optional, _) if ends_name => Self::Parameters,
            (Self::Parameters, _) => Self::Parameters,
            _ => Self::Other,
        }
    }
}
