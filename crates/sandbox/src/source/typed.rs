//! Judges text that a person types at a prompt: whether it is a whole cell, and whether the cell is one expression.

use contract::cell::Language;
use contract::frame::SourcePosition;
use contract::limits::MAX_SOURCE_BYTES;
use oxc_allocator::Allocator;
use oxc_ast::ast::{ArrowFunctionBody, Expression, FunctionBody, Program, Statement};
use oxc_span::{GetSpan, Span};

use super::lines::{narrow, place};
use super::parse::{WrappedCell, read, wraps_one_function};
use super::{STACK_BYTES, fence, guard};

/// What a text that was typed at a prompt is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TypedCell {
    /// The text ends within brackets, a template, a comment or an expression: more lines may complete it.
    Unfinished,
    /// A cell of statements.
    Statements,
    /// A cell that is one expression, with a `return` before it.
    Expression { source: String, inserted: InsertedReturn },
    /// No text that follows makes it a cell.
    Invalid,
}

/// The text that is inserted before an expression.
const RETURN: &str = "return ";

/// Where a `return` was inserted into a text that was typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InsertedReturn(SourcePosition);

impl InsertedReturn {
    /// Returns the place in the typed text for a place in the cell.
    pub fn typed_place(self, in_cell: SourcePosition) -> SourcePosition {
        let Self(at) = self;
        let is_moved = in_cell.line == at.line && in_cell.column > at.column;
        let column =
            if is_moved { in_cell.column.saturating_sub(narrow(RETURN.len())).max(at.column) } else { in_cell.column };
        SourcePosition { column, ..in_cell }
    }
}

impl TypedCell {
    /// Judges a text. The parser recurses, so this runs on a thread of its own; a text is invalid if there is none.
    pub fn judge(text: &str) -> Self {
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, || judge(text));
            thread.ok().and_then(|thread| thread.join().ok()).unwrap_or(Self::Invalid)
        })
    }
}

fn judge(text: &str) -> TypedCell {
    if text.len() > MAX_SOURCE_BYTES {
        return TypedCell::Invalid;
    }
    let source = fence::unwrap(text);
    // `{ a: 1 }` is a block of statements to the parser, and an object to the person who types it.
    if source.trim_start().starts_with('{')
        && let Some(object) = as_object(&source)
    {
        return object;
    }
    match judge_as(&source, Language::JavaScript) {
        TypedCell::Invalid => judge_as(&source, Language::TypeScript),
        judged => judged,
    }
}

fn judge_as(source: &str, language: Language) -> TypedCell {
    if guard::check(source, language).is_err() {
        return TypedCell::Invalid;
    }
    let allocator = Allocator::default();
    let wrapped = WrappedCell::new(source);
    let returned = read(&allocator, &wrapped, language);
    if let Some(diagnostic) = returned.diagnostics.first() {
        let offset = diagnostic.labels.first().map(|label| label.offset());
        let is_open = match diagnostic.message.as_ref() {
            "Unterminated multiline comment" => true,
            // Of a template, this is said at its start or at the end of its last substitution.
            "Unterminated string" => {
                let at = offset.and_then(|offset| wrapped.text().as_bytes().get(offset as usize));
                matches!(at, Some(b'`' | b'}'))
            }
            _ => false,
        };
        let reached_end = offset.is_none_or(|offset| wrapped.is_behind(offset));
        return if is_open || (reached_end && !wrapped.has_stray_bracket()) {
            TypedCell::Unfinished
        } else {
            TypedCell::Invalid
        };
    }
    if !wraps_one_function(&returned.program, &wrapped) {
        return TypedCell::Invalid;
    }
    let start = body(&returned.program).and_then(only_expression).map(|span| wrapped.offset(span.start));
    start.and_then(|start| with_return(source, start)).unwrap_or(TypedCell::Statements)
}

/// Returns a cell that returns the object, if the text is one object.
fn as_object(source: &str) -> Option<TypedCell> {
    let parenthesized = format!("({source}\n)");
    guard::check(&parenthesized, Language::JavaScript).ok()?;
    let allocator = Allocator::default();
    let wrapped = WrappedCell::new(&parenthesized);
    let returned = read(&allocator, &wrapped, Language::JavaScript);
    if !returned.diagnostics.is_empty() || !wraps_one_function(&returned.program, &wrapped) {
        return None;
    }
    let [Statement::ExpressionStatement(statement)] = body(&returned.program)?.statements.as_slice() else {
        return None;
    };
    let Expression::ParenthesizedExpression(outer) = &statement.expression else { return None };
    let spans_all = outer.span == wrapped.span_of_source();
    let is_object = spans_all && matches!(outer.expression, Expression::ObjectExpression(_));
    let start = source.len() - source.trim_start().len();
    is_object.then(|| with_return(source, start)).flatten()
}

/// Returns the body of the wrapper's function.
fn body<'p, 'a>(program: &'p Program<'a>) -> Option<&'p FunctionBody<'a>> {
    let [Statement::ExpressionStatement(statement)] = program.body.as_slice() else { return None };
    let Expression::ParenthesizedExpression(parenthesized) = &statement.expression else { return None };
    let Expression::ArrowFunctionExpression(arrow) = &parenthesized.expression else { return None };
    match &arrow.body {
        ArrowFunctionBody::FunctionBody(body) => Some(body),
        _ => None,
    }
}

/// Returns where the expression is, if the body is nothing else.
fn only_expression(body: &FunctionBody<'_>) -> Option<Span> {
    match (body.directives.as_slice(), body.statements.as_slice()) {
        ([], [Statement::ExpressionStatement(statement)]) => Some(statement.expression.span()),
        // A text in quotes, which a parser takes for something like "use strict".
        ([directive], []) => Some(directive.expression.span),
        _ => None,
    }
}

/// Returns the cell that returns the expression which begins at this offset.
fn with_return(source: &str, start: usize) -> Option<TypedCell> {
    let (before, rest) = source.split_at_checked(start)?;
    let inserted = InsertedReturn(place(source, start));
    Some(TypedCell::Expression { source: format!("{before}{RETURN}{rest}"), inserted })
}

#[cfg(test)]
mod tests {
    use contract::frame::SourcePosition;

    use super::TypedCell;

    #[test]
    fn an_expression_gets_a_return_where_it_begins() {
        for (typed, cell) in [
            ("1 + 1", "return 1 + 1"),
            ("'use strict'", "return 'use strict'"),
            ("  await MCP.a.b({}) ; // done", "  return await MCP.a.b({}) ; // done"),
            ("/* why\n*/ f()", "/* why\n*/ return f()"),
            ("{ a: 1, b: [2] }", "return { a: 1, b: [2] }"),
            ("{}", "return {}"),
            ("(1, 2)", "return (1, 2)"),
            ("x as number", "return x as number"),
            ("`a\n${b}`", "return `a\n${b}`"),
        ] {
            let judged = TypedCell::judge(typed);
            assert!(matches!(&judged, TypedCell::Expression { source, .. } if source == cell), "{typed}: {judged:?}");
        }
    }

    #[test]
    fn a_place_in_the_cell_becomes_the_place_in_the_typed_text() {
        for (typed, in_cell, expected) in [
            ("foo()", (1, 8), (1, 1)),
            ("foo()", (1, 1), (1, 1)),
            ("foo()", (1, 3), (1, 1)),
            ("  foo()", (1, 10), (1, 3)),
            ("  \n { a: foo() }", (2, 15), (2, 8)),
            ("f(\n  g())", (2, 3), (2, 3)),
            ("/* why\n*/ foo()", (2, 11), (2, 4)),
            ("/* why\n*/ foo()", (1, 20), (1, 20)),
        ] {
            let TypedCell::Expression { inserted, .. } = TypedCell::judge(typed) else { panic!("{typed}") };
            let place = |(line, column)| SourcePosition { line, column };
            assert_eq!(inserted.typed_place(place(in_cell)), place(expected), "{typed}");
        }
    }

    #[test]
    fn statements_stay_as_they_are() {
        for typed in [
            "const a = 1",
            "return 1",
            "f(); g()",
            "{ f(); g() }",
            "if (a) b()",
            "function f() {}",
            "let a: number = 1",
            ";",
        ] {
            assert_eq!(TypedCell::judge(typed), TypedCell::Statements, "{typed}");
        }
    }

    #[test]
    fn a_text_that_more_lines_may_complete_is_unfinished() {
        for typed in [
            "f(",
            "{",
            "[1,",
            "`a",
            "`a ${b",
            "`a ${b} c",
            "f(`\n\n",
            "/* a",
            "const a =",
            "1 +",
            "if (a) {\n  b()",
            "let a: ",
        ] {
            assert_eq!(TypedCell::judge(typed), TypedCell::Unfinished, "{typed}");
        }
    }

    #[test]
    fn a_text_that_nothing_can_complete_is_invalid() {
        for typed in ["'abc", "a b", "f(]", "}", "})(", "1) + (2", "let = = 1", &"(".repeat(100_000)] {
            assert_eq!(TypedCell::judge(typed), TypedCell::Invalid, "{}", &typed[..typed.len().min(20)]);
        }
    }
}
