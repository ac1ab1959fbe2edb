//! Assigns parameter properties: `constructor(private x: number)` gets `this.x=x;`.

use oxc_ast::ast::*;
use oxc_span::{GetSpan, Span};

use super::erase::Eraser;

/// Inserts the assignments into the constructor of a class, if it has such parameters.
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
        Some(span) => eraser.edits.insert(span.end, format!(";{assignments}")),
        None if class.heritage.is_none() => {
            eraser.edits.insert(body.span.start + 1, assignments);
        }
        None => eraser.refuse(
            "a constructor with parameter properties must call `super(…)` as a statement of its \
             own",
            constructor,
        ),
    }
}

fn is_super_call(statement: &Statement<'_>) -> bool {
    let Statement::ExpressionStatement(statement) = statement else { return false };
    let Expression::CallExpression(call) = &statement.expression else { return false };
    matches!(call.callee, Expression::Super(_))
}
