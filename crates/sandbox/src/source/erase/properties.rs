//! Assigns parameter properties: `constructor(private x: number)` gets `this.x=x;`.

use oxc_ast::ast::*;
use oxc_span::{GetSpan, Span};

use super::Eraser;

/// Inserts the assignments into the constructor of a class, if it has parameter properties.
///
/// The modifiers themselves are erased with the parameters.
pub(super) fn assign(eraser: &mut Eraser<'_>, class: &Class<'_>) {
    for element in &class.body.body {
        let ClassElement::MethodDefinition(method) = element else { continue };
        let Some(body) = &method.value.body else { continue };
        if method.kind != MethodDefinitionKind::Constructor {
            continue;
        }
        let mut assignments = String::new();
        for parameter in &method.value.params.items {
            if parameter.accessibility.is_none() && !parameter.readonly && !parameter.r#override {
                continue;
            }
            let BindingPattern::BindingIdentifier(id) = &parameter.pattern else {
                eraser.refuse("a parameter property needs a plain name", parameter.span);
                return;
            };
            let name = eraser.source.slice(id.span.start, id.span.end);
            assignments.push_str(&format!("this.{name}={name};"));
        }
        if !assignments.is_empty() {
            insert(eraser, class, method.span, body, &assignments);
        }
    }
}

fn insert(eraser: &mut Eraser<'_>, class: &Class<'_>, constructor: Span, body: &FunctionBody<'_>, assignments: &str) {
    let after = if class.heritage.is_some() {
        body.statements.iter().find(|statement| is_super_call(statement)).map(GetSpan::span)
    } else {
        // A directive such as "use strict" must stay first.
        body.directives.last().map(|directive| directive.span)
    };
    match after {
        // The statement before may end without a semicolon.
        Some(span) => eraser.insert(span.end, format!(";{assignments}")),
        None if class.heritage.is_none() => {
            eraser.insert(body.span.start + 1, assignments);
        }
        None => eraser.refuse(
            "a constructor with parameter properties must call `super(…)` as a separate \
             statement",
            constructor,
        ),
    }
}

fn is_super_call(statement: &Statement<'_>) -> bool {
    let Statement::ExpressionStatement(statement) = statement else { return false };
    let Expression::CallExpression(call) = &statement.expression else { return false };
    matches!(call.callee, Expression::Super(_))
}

#[cfg(test)]
mod tests {
    use crate::source::edits::original;
    use crate::source::{Language, Rejection, Shift, SourcePosition, prepare};

    #[test]
    fn parameters_are_assigned() {
        let cases = [
            (
                "class A { constructor(private x: number, readonly y = 2, z?: T) { f() } }",
                "class A { constructor(        x        ,          y = 2, z    ) \
                 {this.x=x;this.y=y; f() } }",
            ),
            (
                "class A { constructor(public override x) { 'use strict'; f() } }",
                "class A { constructor(                x) { 'use strict';;this.x=x; f() } }",
            ),
            (
                "class A extends B { constructor(private x) { g(); super(x)\nh() } }",
                "class A extends B { constructor(        x) { g(); super(x);this.x=x;\nh() } }",
            ),
            (
                "class A { constructor(private x); constructor(protected x) {} }",
                "class A { ;                       constructor(          x) {this.x=x;} }",
            ),
        ];
        for (source, expected) in cases {
            let script = prepare(source, Language::TypeScript).map(|prepared| prepared.script);
            assert_eq!(script, Ok(format!("(async()=>{{\n{expected}\n}})")), "{source}");
        }
    }

    #[test]
    fn a_derived_class_must_call_super() {
        let source = "class A extends B { constructor(private x) { if (x) super() } }";
        let message = "a constructor with parameter properties must call `super(…)` as a separate \
                       statement";
        let expected =
            Rejection::TypeScript { message: message.to_owned(), place: SourcePosition { line: 1, column: 21 } };
        assert_eq!(prepare(source, Language::TypeScript), Err(expected));
    }

    #[test]
    fn columns_behind_an_assignment_are_shifted() -> Result<(), Rejection> {
        let source = "class A { constructor(private x) { f() } }";
        let prepared = prepare(source, Language::TypeScript)?;
        let shift = Shift { line: 1, column: 44, delta: 9 };
        assert_eq!(prepared.shifts, [shift]);
        // QuickJS sees line 2: before, in and behind the insertion.
        for (column, expected) in [(34, 34), (35, 35), (40, 35), (44, 35), (45, 36)] {
            let place = SourcePosition { line: 1, column: expected };
            assert_eq!(original(&prepared.shifts, 1, column), place, "{column}");
        }
        Ok(())
    }
}
