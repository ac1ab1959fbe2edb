//! Erases TypeScript from class heads and class members, and recognises namespaces that contain only types.

use oxc_ast::ast::*;
use oxc_ast_visit::walk;
use oxc_span::{GetSpan, Span};

use super::Eraser;

/// Erases a class member that exists only in TypeScript, or the TypeScript parts of any other member.
pub(super) fn erase(eraser: &mut Eraser<'_>, element: &ClassElement<'_>) {
    let span = element.span();
    if is_type_only_member(element) {
        reject_decorators(eraser, element);
        eraser.blank_statement(span);
        return;
    }
    match element {
        ClassElement::MethodDefinition(method) => {
            let name =
                MemberName { key: &method.key, computed: method.computed, optional: method.optional, definite: false };
            blank_around_name(eraser, span, &name);
        }
        ClassElement::PropertyDefinition(property) => {
            let (optional, definite) = (property.optional, property.definite);
            let name = MemberName { key: &property.key, computed: property.computed, optional, definite };
            blank_around_name(eraser, span, &name);
        }
        ClassElement::AccessorProperty(property) => {
            let (computed, definite) = (property.computed, property.definite);
            let name = MemberName { key: &property.key, computed, optional: false, definite };
            blank_around_name(eraser, span, &name);
        }
        ClassElement::StaticBlock(_) | ClassElement::TSIndexSignature(_) => {}
    }
    walk::walk_class_element(eraser, element);
    eraser.close(span);
}

/// Returns whether a member does not exist at run time: an index signature, an overload, or an abstract or `declare`d
/// member.
fn is_type_only_member(element: &ClassElement<'_>) -> bool {
    match element {
        ClassElement::TSIndexSignature(_) => true,
        ClassElement::MethodDefinition(method) => method.value.body.is_none(),
        ClassElement::PropertyDefinition(property) => property.declare || property.r#type.is_abstract(),
        ClassElement::AccessorProperty(property) => property.r#type.is_abstract(),
        ClassElement::StaticBlock(_) => false,
    }
}

/// Rejects the cell if the member has decorators: visiting a decorator does that.
fn reject_decorators(eraser: &mut Eraser<'_>, element: &ClassElement<'_>) {
    use oxc_ast_visit::Visit;
    match element {
        ClassElement::MethodDefinition(method) => eraser.visit_decorators(&method.decorators),
        ClassElement::PropertyDefinition(field) => eraser.visit_decorators(&field.decorators),
        ClassElement::AccessorProperty(field) => eraser.visit_decorators(&field.decorators),
        ClassElement::StaticBlock(_) | ClassElement::TSIndexSignature(_) => {}
    }
}

/// The name of a class member, and what stands around it.
struct MemberName<'a> {
    key: &'a PropertyKey<'a>,
    /// Whether the name is in brackets.
    computed: bool,
    /// Whether `?` follows.
    optional: bool,
    /// Whether `!` follows.
    definite: bool,
}

/// Erases the TypeScript modifiers before a member's name and the `?` or `!` after it.
fn blank_around_name(eraser: &mut Eraser<'_>, member: Span, name: &MemberName<'_>) {
    let key = name.key.span();
    eraser.blank_modifiers(member.start, key.start);
    let end = match eraser.source.find(key.end, b']') {
        Some(bracket) if name.computed => bracket + 1,
        _ => key.end,
    };
    if name.optional {
        eraser.blank_next(end, b'?');
    }
    if name.definite {
        eraser.blank_next(end, b'!');
    }
}

/// Erases `abstract` and the `implements` clause of a class; `extends` stays.
pub(super) fn blank_class_head(eraser: &mut Eraser<'_>, class: &Class<'_>) {
    let mut keyword = eraser.source.skip(class.span.start);
    if let ("abstract", end) = eraser.source.word(keyword) {
        eraser.blank(keyword, end);
        keyword = eraser.source.skip(end);
    }
    let Some(last) = class.implements.last() else { return };
    let mut end = eraser.source.word(keyword).1;
    if let Some(id) = &class.id {
        end = id.span.end;
    }
    if let Some(type_parameters) = &class.type_parameters {
        end = type_parameters.span.end;
    }
    if let Some(heritage) = &class.heritage {
        let arguments = heritage.type_arguments.as_ref().map(|arguments| arguments.span);
        end = arguments.unwrap_or_else(|| heritage.expression.span()).end;
    }
    let clause = eraser.source.skip(end);
    eraser.blank(clause, last.span.end);
}

/// Returns whether a namespace declares nothing that exists at run time.
pub(super) fn is_type_only(namespace: &TSNamespaceDeclaration<'_>) -> bool {
    namespace.declare
        || match &namespace.body {
            TSNamespaceDeclarationBody::TSNamespaceDeclaration(inner) => is_type_only(inner),
            TSNamespaceDeclarationBody::TSModuleBlock(block) => block.body.iter().all(is_type_only_statement),
        }
}

fn is_type_only_statement(statement: &Statement<'_>) -> bool {
    match statement {
        Statement::TSTypeAliasDeclaration(_) | Statement::TSInterfaceDeclaration(_) => true,
        Statement::TSNamespaceDeclaration(namespace) => is_type_only(namespace),
        Statement::ExportDeclaration(export) => match &export.declaration {
            Declaration::TSTypeAliasDeclaration(_) | Declaration::TSInterfaceDeclaration(_) => true,
            Declaration::TSNamespaceDeclaration(namespace) => is_type_only(namespace),
            declaration => declaration.declare(),
        },
        Statement::VariableDeclaration(declaration) => declaration.declare,
        Statement::FunctionDeclaration(function) => function.body.is_none(),
        Statement::ClassDeclaration(class) => class.declare,
        Statement::TSEnumDeclaration(declaration) => declaration.declare,
        Statement::EmptyStatement(_) => true,
        _ => false,
    }
}
