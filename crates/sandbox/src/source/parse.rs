//! Parses a cell as the body of one async arrow function, and ensures that it is nothing more.

use oxc_allocator::Allocator;
use oxc_ast::ast::{ArrowFunctionBody, Expression, Program, Statement};
use oxc_parser::{Parser, ParserReturn};
use oxc_span::{SourceType, Span};

use super::Language;
use super::lines::{narrow, place};
use super::rejection::{Rejection, STRAY_BRACKET};
use super::scan::{ScanStep, Scanner};
use super::{guard, javascript, modules};
use contract::frame::SourcePosition;

const PREFIX: &str = "(async()=>{\n";
const SUFFIX: &str = "\n})";

/// The maximum length of a message. The parser writes messages, but names in them come from the model.
const MAX_MESSAGE_CHARACTERS: usize = 200;

/// A cell inside its wrapper.
#[derive(Debug)]
pub(super) struct WrappedCell {
    text: String,
    /// A copy of the text for the parser, without annotations that it would act on.
    parsed: String,
    source_length: usize,
}

impl WrappedCell {
    pub(super) fn new(source: &str) -> Self {
        let text = format!("{PREFIX}{source}{SUFFIX}");
        // In a build with debug assertions, oxc aborts on some `/* @__PURE__ */` comments.
        let parsed = text.replace("__PURE__", "__pure__").replace("__NO_SIDE_EFFECTS__", "__no_side_effects__");
        Self { text, parsed, source_length: source.len() }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the model's source.
    fn source(&self) -> &str {
        let end = PREFIX.len() + self.source_length;
        self.text.get(PREFIX.len()..end).unwrap_or_default()
    }

    /// Returns the place in the model's source for an offset into the wrapped text.
    pub(super) fn place(&self, offset: u32) -> SourcePosition {
        place(self.source(), self.offset(offset))
    }

    /// Returns the offset into the model's source for an offset into the wrapped text.
    pub(super) fn offset(&self, wrapped: u32) -> usize {
        (wrapped as usize).saturating_sub(PREFIX.len()).min(self.source_length)
    }

    /// Returns whether an offset is in the end of the wrapper.
    pub(super) fn is_behind(&self, offset: u32) -> bool {
        offset as usize > PREFIX.len() + self.source_length
    }

    /// Returns where the model's source is in the wrapped text.
    pub(super) fn span_of_source(&self) -> Span {
        Span::new(narrow(PREFIX.len()), narrow(PREFIX.len() + self.source_length))
    }

    /// Returns whether the source closes a bracket that it did not open.
    pub(super) fn has_stray_bracket(&self) -> bool {
        stray_bracket(self.source()).is_some()
    }
}

/// Parses a cell that the guard accepted, and refuses module access.
pub(super) fn parse<'a>(
    allocator: &'a Allocator,
    wrapped: &'a WrappedCell,
    language: Language,
) -> Result<Program<'a>, Rejection> {
    let returned = read(allocator, wrapped, language);
    if !returned.panicked {
        refuse_modules(&returned.program, wrapped)?;
    }
    let is_javascript = language == Language::JavaScript;
    let complaint = complaint(&returned, wrapped).or_else(|| {
        let offset = is_javascript.then(|| javascript::first_typescript_member(&returned.program))??;
        let message = "this class member has modifiers that JavaScript does not have";
        Some((message.to_owned(), wrapped.place(offset)))
    });
    let Some((mut message, place)) = complaint else { return Ok(returned.program) };
    if is_javascript && is_typescript(wrapped)? {
        message.push_str("; it is TypeScript, which this run does not allow, so remove the types");
    }
    Err(Rejection::syntax(language, message, place))
}

/// Parses a cell that the guard accepted, and accepts whatever the parser makes of it.
pub(super) fn read<'a>(allocator: &'a Allocator, wrapped: &'a WrappedCell, language: Language) -> ParserReturn<'a> {
    let source_type = match language {
        Language::JavaScript => SourceType::script(),
        Language::TypeScript => SourceType::ts().with_script(true),
    };
    Parser::new(allocator, &wrapped.parsed, source_type).parse()
}

/// Returns whether a cell that is not JavaScript is valid TypeScript; an error if it loads modules.
fn is_typescript(wrapped: &WrappedCell) -> Result<bool, Rejection> {
    if guard::check(wrapped.source(), Language::TypeScript).is_err() {
        return Ok(false);
    }
    let allocator = Allocator::default();
    let returned = read(&allocator, wrapped, Language::TypeScript);
    if complaint(&returned, wrapped).is_some() {
        return Ok(false);
    }
    refuse_modules(&returned.program, wrapped).map(|()| true)
}

/// Fails if the cell loads modules.
fn refuse_modules(program: &Program<'_>, wrapped: &WrappedCell) -> Result<(), Rejection> {
    match modules::first_access(program) {
        Some((what, offset)) => Err(Rejection::ModuleAccess { what, place: wrapped.place(offset) }),
        None => Ok(()),
    }
}

/// Returns the first problem of the text, and its place.
fn complaint(returned: &ParserReturn<'_>, wrapped: &WrappedCell) -> Option<(String, SourcePosition)> {
    let diagnostic = returned.diagnostics.first();
    if diagnostic.is_none() && wraps_one_function(&returned.program, wrapped) {
        return None;
    }
    let label = diagnostic.and_then(|diagnostic| diagnostic.labels.first());
    let offset = label.map_or(narrow(wrapped.text.len()), |label| label.offset());
    // The parser also counts the brackets of the wrapper, so it may blame the wrong one.
    let source = wrapped.source();
    let stray = stray_bracket(source).filter(|stray| stray + PREFIX.len() <= offset as usize);
    Some(match (diagnostic, stray) {
        (_, Some(stray)) => (STRAY_BRACKET.to_owned(), place(source, stray)),
        (Some(diagnostic), None) if !wrapped.is_behind(offset) => {
            (fragment(&diagnostic.message), wrapped.place(offset))
        }
        _ => {
            let message = match Ending::of(source) {
                Ending::OpenBracket => "the cell ends before all brackets are closed",
                Ending::NoBracket => "the cell ends in the middle of an expression or a statement",
                Ending::Unclear => {
                    "the cell ends in the middle of an expression or a statement, or before all brackets are closed"
                }
            };
            (message.to_owned(), wrapped.place(offset))
        }
    })
}

/// Returns whether the text is the wrapper with a body, and nothing else.
pub(super) fn wraps_one_function(program: &Program<'_>, wrapped: &WrappedCell) -> bool {
    let whole = narrow(wrapped.text.len());
    if let [Statement::ExpressionStatement(statement)] = program.body.as_slice()
        && let Expression::ParenthesizedExpression(parenthesized) = &statement.expression
        && let Expression::ArrowFunctionExpression(arrow) = &parenthesized.expression
        && let ArrowFunctionBody::FunctionBody(body) = &arrow.body
    {
        parenthesized.span == Span::new(0, whole)
            && arrow.r#async
            && body.span.start as usize + 2 == PREFIX.len()
            && body.span.end + 1 == whole
    } else {
        false
    }
}

/// Returns the offset of the first closing bracket that does not close an open one of the source.
fn stray_bracket(source: &str) -> Option<usize> {
    let mut scanner = Scanner::new(source);
    loop {
        match scanner.next() {
            ScanStep::Token(_) => {}
            ScanStep::End | ScanStep::Slash(_) => return None,
            ScanStep::Error(offset) | ScanStep::Stray(offset) | ScanStep::Unsure(offset) => {
                let byte = source.as_bytes().get(offset);
                return matches!(byte, Some(b')' | b']' | b'}')).then_some(offset);
            }
        }
    }
}

/// What is open at the end of a source that is not complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    OpenBracket,
    NoBracket,
    /// The scanner cannot tell, for example because of a slash that divides or starts a regular expression.
    Unclear,
}

impl Ending {
    fn of(source: &str) -> Self {
        let mut scanner = Scanner::new(source);
        loop {
            match scanner.next() {
                ScanStep::Token(_) => {}
                ScanStep::End if scanner.has_open_bracket() => return Self::OpenBracket,
                ScanStep::End => return Self::NoBracket,
                ScanStep::Slash(_) | ScanStep::Error(_) | ScanStep::Stray(_) | ScanStep::Unsure(_) => {
                    return Self::Unclear;
                }
            }
        }
    }
}

/// Converts a message of the parser to a lower-case fragment.
fn fragment(message: &str) -> String {
    let mut characters = message.trim_end_matches('.').chars().take(MAX_MESSAGE_CHARACTERS);
    let first = characters.next().into_iter().flat_map(char::to_lowercase);
    first.chain(characters).collect()
}

#[cfg(test)]
mod tests {
    use contract::config::Languages;

    use crate::source::{Language, Rejection, SourcePosition, prepare, prepare_allowing};

    /// Checks the place of a syntax error, and that its message contains `expected`.
    fn check(source: &str, language: Language, line: u32, column: u32, expected: &str) {
        let (message, place) = match (prepare(source, language), language) {
            (Err(Rejection::Syntax { message, place }), Language::JavaScript)
            | (Err(Rejection::TypeScript { message, place }), Language::TypeScript) => (message, place),
            (other, _) => (format!("{other:?}"), SourcePosition { line: 0, column: 0 }),
        };
        assert_eq!(place, SourcePosition { line, column }, "{source}: {message}");
        assert!(message.contains(expected), "{source}: {message}");
    }

    #[test]
    fn await_and_return_work_at_the_top() {
        let cases = ["return await f()", "for await (const a of b) {}", "\"use strict\"; return 1"];
        for source in cases {
            let prepared = prepare(source, Language::JavaScript);
            let script = prepared.map(|prepared| prepared.script);
            assert_eq!(script, Ok(format!("(async()=>{{\n{source}\n}})")), "{source}");
        }
    }

    #[test]
    fn text_that_leaves_the_wrapper_is_an_error() {
        let cases = [
            ("}); text('out'); (async () => {", 1, 1, "does not close"),
            ("})(); (async()=>{", 1, 1, "does not close"),
            ("a()\n}), (async()=>{", 2, 1, "does not close"),
            ("})(async()=>{", 1, 1, "does not close"),
            ("}) || (async()=>{", 1, 1, "does not close"),
            ("}, async()=>{", 1, 1, "does not close"),
            ("}, {", 1, 1, "does not close"),
            ("if (a) { b() } }", 1, 16, "does not close"),
            ("if (a) { b()", 1, 13, "ends before all brackets"),
            ("f(", 1, 3, "ends before all brackets"),
            ("const f = () => {\n  return 1 +", 2, 13, "ends before all brackets"),
            ("f() }\ng()", 1, 5, "does not close"),
            ("f(a]", 1, 4, "does not close"),
        ];
        for (source, line, column, expected) in cases {
            check(source, Language::JavaScript, line, column, expected);
            check(source, Language::TypeScript, line, column, expected);
        }
        check("}) as (async()=>{", Language::TypeScript, 1, 1, "does not close");
    }

    #[test]
    fn a_cell_that_ends_too_early_without_an_open_bracket_is_not_told_about_brackets() {
        for source in ["return 1 +", "const x =", "if (a)", "f(1) ||", "return a ?", "x = y /"] {
            let message = prepare(source, Language::JavaScript).unwrap_err().to_string();
            assert_eq!(
                message, "syntax error: the cell ends in the middle of an expression or a statement",
                "{source}"
            );
        }
    }

    #[test]
    fn errors_have_places_in_the_models_source() {
        let cases = [
            ("const x = ;", 1, 11, "unexpected token"),
            ("let a = 1\nlet b = 2 3", 2, 10, "semicolon"),
            ("const é = 'ü' ü", 1, 16, "semicolon"),
            ("'😀';\r\n\r\n  @", 3, 4, ""),
            ("a\u{2028}b c", 2, 2, "semicolon"),
            ("return 'abc", 1, 8, "unterminated string"),
            ("return `abc", 1, 8, "unterminated"),
            ("/* abc", 1, 1, "unterminated"),
            ("const a = /x", 1, 11, "unterminated regular expression"),
        ];
        for (source, line, column, expected) in cases {
            check(source, Language::JavaScript, line, column, expected);
        }
        check("let x: = 1", Language::TypeScript, 1, 8, "unexpected token");
        check("<<<<<<< ours\na", Language::JavaScript, 1, 1, "merge conflict");
    }

    #[test]
    fn typescript_where_only_javascript_is_allowed_gets_a_hint() {
        let hint = "it is TypeScript, which this run does not allow, so remove the types";
        check("let x: number = 1", Language::JavaScript, 1, 6, hint);
        check("return x as any", Language::JavaScript, 1, 8, hint);
        check("interface A { b: string }", Language::JavaScript, 1, 10, hint);
        let rejection = prepare("let x = = 1", Language::JavaScript).map_err(|e| e.to_string());
        assert!(rejection.is_err_and(|message| !message.contains("typescript")));
    }

    #[test]
    fn typescript_in_a_javascript_cell_is_erased_if_it_is_allowed() {
        let prepared = |source| prepare_allowing(source, Language::JavaScript, Languages::ALL);
        let cell = prepared("const x: number = 1\nreturn x as any").unwrap();
        assert_eq!(cell, prepare("const x: number = 1\nreturn x as any", Language::TypeScript).unwrap());
        // JavaScript stays JavaScript: as TypeScript, this would be a call with type arguments.
        let comparison = "return f(a < b, c > (d))";
        assert_eq!(prepared(comparison), prepare(comparison, Language::JavaScript));
        // The error is the one of the parser that got further.
        let message = |source| prepared(source).map_err(|error| error.to_string()).unwrap_err();
        assert_eq!(message("const x: number = 1\nlet y = = 2"), "TypeScript error: unexpected token");
        assert_eq!(message("let y = = 2"), "syntax error: unexpected token");
        assert_eq!(message("const x: number = require('fs')"), message("require('fs')"));
        assert_eq!(message("ls -la 'x'"), Rejection::Shell.to_string());
    }

    #[test]
    fn messages_are_fragments() {
        let message = prepare("let = = 1", Language::JavaScript).map_err(|error| error.to_string());
        let expected = "syntax error: unexpected token";
        assert_eq!(message.err().as_deref(), Some(expected));
    }
}
