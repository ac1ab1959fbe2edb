//! Turns a namespace with values into a variable, in place: each statement stays on its line.
//!
//! `namespace N { export const a = 1; export function f() {} }` becomes
//! `var N=((N)=>{N.__defineGetter__("a",()=>a);N.f=f; const a = 1; function f() {} return N})({});`. Exported
//! variables are accessors, because the namespace's own code may assign to them later. A second namespace of the same
//! name, or one with the name of a function or a class, extends the first.

use oxc_ast::ast::*;
use oxc_ast_visit::{Visit, VisitJs, walk_js};
use oxc_span::{GetSpan, Span};

use super::{Eraser, enums, members};

/// Writes the namespace as a statement.
pub(super) fn transform(eraser: &mut Eraser<'_>, namespace: &TSNamespaceDeclaration<'_>) {
    let (span, parent) = (namespace.span, eraser.exporting);
    let (names, block) = names_and_block(eraser, namespace);
    let (Some(first), Some(last)) = (names.first().copied(), names.last().copied()) else { return };
    if let Some((message, span)) = unsupported(&names, block) {
        eraser.refuse(message, span);
        return;
    }
    let (before, argument) = enums::open(eraser, first);
    let mut head = format!("{before}(({first})=>{{");
    let mut tail = String::new();
    for pair in names.windows(2) {
        if let [outer, inner] = pair {
            head += &format!("var {inner}=(({inner})=>{{");
            tail.insert_str(0, &format!("return {inner}}})({outer}.{inner}||{{}});{outer}.{inner}={inner};"));
        }
    }
    tail += &format!("return {first}}})({argument});");
    if let Some(parent) = parent {
        tail += &format!("{parent}.{first}={first};");
    }
    head += &hoisted_exports(last, block);
    // The last statement of the block may have no semicolon.
    tail.insert(0, ';');
    let end = block.span.end.saturating_sub(1);
    eraser.blank(span.start, block.span.start + 1);
    eraser.insert(span.start, head);
    let outer = eraser.namespace.replace(last);
    eraser.visit_function_statements(&block.body);
    eraser.namespace = outer;
    eraser.blank(end, block.span.end);
    eraser.insert(end, tail);
}

/// Erases the `export` of a declaration in a namespace, and makes the declaration a property of the namespace.
pub(super) fn export<'a>(eraser: &mut Eraser<'_>, export: &ExportDeclaration<'a>) {
    let (span, declaration) = (export.span, &export.declaration);
    let Some(namespace) = eraser.namespace else {
        eraser.refuse("a cell has no exports, `return` the value", span);
        return;
    };
    let is_type = match declaration {
        Declaration::TSTypeAliasDeclaration(_) | Declaration::TSInterfaceDeclaration(_) => true,
        Declaration::FunctionDeclaration(function) => function.body.is_none(),
        Declaration::TSNamespaceDeclaration(inner) => members::is_type_only(inner),
        other => other.declare(),
    };
    if is_type {
        eraser.blank_statement(span);
        return;
    }
    eraser.blank(span.start, declaration.span().start);
    match declaration {
        Declaration::VariableDeclaration(variables) => {
            eraser.visit_variable_declaration(variables);
            eraser.close(span);
        }
        Declaration::FunctionDeclaration(function) => {
            eraser.declare(function.id.as_ref());
            eraser.visit_declaration(declaration);
        }
        Declaration::ClassDeclaration(class) => {
            eraser.declare(class.id.as_ref());
            eraser.visit_class(class);
            if let Some(id) = &class.id {
                eraser.insert(span.end, format!(";{namespace}.{0}={0};", id.name));
            }
        }
        Declaration::TSEnumDeclaration(declaration) => {
            eraser.exporting = Some(namespace);
            enums::transform(eraser, declaration);
            eraser.insert(span.end, format!("{namespace}.{0}={0};", declaration.id.name));
        }
        Declaration::TSNamespaceDeclaration(inner) => {
            eraser.exporting = Some(namespace);
            transform(eraser, inner);
        }
        _ => eraser.refuse("this export is not supported in a namespace, export a variable instead", span),
    }
}

/// Returns the names of `namespace A.B.C {…}`, and the block.
fn names_and_block<'t, 'n, 'a>(
    eraser: &Eraser<'t>,
    namespace: &'n TSNamespaceDeclaration<'a>,
) -> (Vec<&'t str>, &'n TSModuleBlock<'a>) {
    let mut names = Vec::new();
    let mut inner = namespace;
    loop {
        names.push(eraser.source.slice(inner.id.span.start, inner.id.span.end));
        match &inner.body {
            TSNamespaceDeclarationBody::TSNamespaceDeclaration(next) => inner = next,
            TSNamespaceDeclarationBody::TSModuleBlock(block) => return (names, block),
        }
    }
}

/// Returns what must run before the block's own statements: functions can be called before their declaration, and
/// accessors read variables only when they are used.
fn hoisted_exports(namespace: &str, block: &TSModuleBlock<'_>) -> String {
    let mut text = String::new();
    for statement in &block.body {
        let Statement::ExportDeclaration(export) = statement else { continue };
        match &export.declaration {
            Declaration::FunctionDeclaration(function) if function.body.is_some() => {
                if let Some(id) = &function.id {
                    text += &format!("{namespace}.{0}={0};", id.name);
                }
            }
            Declaration::VariableDeclaration(variables) if !variables.declare => {
                for id in bound_names(variables) {
                    text += &format!("{namespace}.__defineGetter__(\"{0}\",()=>{0});", id.name);
                    if variables.kind != VariableDeclarationKind::Const {
                        let given = if id.name == "_" { "$" } else { "_" };
                        let name = id.name.as_str();
                        text += &format!("{namespace}.__defineSetter__(\"{name}\",{given}=>{name}={given});");
                    }
                }
            }
            _ => {}
        }
    }
    text
}

fn bound_names<'v, 'a>(variables: &'v VariableDeclaration<'a>) -> Vec<&'v BindingIdentifier<'a>> {
    variables.declarations.iter().flat_map(|declarator| declarator.id.get_binding_identifiers()).collect()
}

/// Returns why a namespace cannot be transformed, and where.
fn unsupported(names: &[&str], block: &TSModuleBlock<'_>) -> Option<(&'static str, Span)> {
    let own_name = "a namespace that declares its own name again is not supported, choose another name";
    let is_repeated = |at: usize, name: &&str| names.iter().take(at).any(|earlier| earlier == name);
    if names.iter().enumerate().any(|(at, name)| is_repeated(at, name)) {
        return Some((own_name, block.span));
    }
    let declared = block.body.iter().flat_map(declared_names);
    if let Some(id) = declared.into_iter().find(|id| names.contains(&id.name.as_str())) {
        return Some((own_name, id.span));
    }
    let mut search = NamespaceLevel { found: None };
    block.body.iter().for_each(|statement| search.visit_statement(statement));
    search.found
}

/// Returns the names that a statement declares in its block.
fn declared_names<'s, 'a>(statement: &'s Statement<'a>) -> Vec<&'s BindingIdentifier<'a>> {
    match statement {
        Statement::VariableDeclaration(variables) => bound_names(variables),
        Statement::FunctionDeclaration(function) => function.id.iter().collect(),
        Statement::ClassDeclaration(class) => class.id.iter().collect(),
        Statement::TSEnumDeclaration(declaration) => vec![&declaration.id],
        Statement::TSNamespaceDeclaration(inner) => vec![&inner.id],
        Statement::ExportDeclaration(export) => match &export.declaration {
            Declaration::VariableDeclaration(variables) => bound_names(variables),
            Declaration::FunctionDeclaration(function) => function.id.iter().collect(),
            Declaration::ClassDeclaration(class) => class.id.iter().collect(),
            Declaration::TSEnumDeclaration(declaration) => vec![&declaration.id],
            Declaration::TSNamespaceDeclaration(inner) => vec![&inner.id],
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// Finds statements that a namespace cannot contain, because it becomes a function that is not async.
struct NamespaceLevel {
    found: Option<(&'static str, Span)>,
}

impl NamespaceLevel {
    fn found(&mut self, message: &'static str, span: Span) {
        self.found.get_or_insert((message, span));
    }
}

const NO_AWAIT: &str = "`await` is not supported directly in a namespace, use it in a function or before the namespace";

impl<'a> VisitJs<'a> for NamespaceLevel {
    fn visit_await_expression(&mut self, it: &AwaitExpression<'a>) {
        self.found(NO_AWAIT, it.span);
    }

    fn visit_for_of_statement(&mut self, it: &ForOfStatement<'a>) {
        if it.r#await {
            self.found(NO_AWAIT, it.span);
        }
        walk_js::walk_for_of_statement(self, it);
    }

    fn visit_return_statement(&mut self, it: &ReturnStatement<'a>) {
        self.found("a namespace cannot `return`, move the statement out of it", it.span);
    }

    fn visit_function_body(&mut self, _: &FunctionBody<'a>) {}
    fn visit_arrow_function_expression(&mut self, _: &ArrowFunctionExpression<'a>) {}
    // Checked when it is transformed itself.
    fn visit_ts_namespace_declaration(&mut self, _: &TSNamespaceDeclaration<'a>) {}
}

#[cfg(test)]
mod tests {
    use crate::source::erase::tests::check;
    use crate::source::{Language, ModuleForm, Rejection, SourcePosition, prepare};

    #[test]
    fn a_namespace_becomes_a_function_in_place() {
        check(
            "namespace N {\n  export const a: number = 1\n  export function f() { return a }\n  const own = 2\n}",
            "var N=((N)=>{N.__defineGetter__(\"a\",()=>a);N.f=f;             \n         const a         = 1\n         \
             function f() { return a }\n  const own = 2\n;return N})({}); ",
        );
        check(
            "namespace A.B { export let _ = 1 }",
            concat!(
                "var A=((A)=>{var B=((B)=>{B.__defineGetter__(\"_\",()=>_);B.__defineSetter__(\"_\",$=>_=$);",
                "                       let _ = 1 ;return B})(A.B||{});A.B=B;return A})({}); "
            ),
        );
        check("namespace N { export type T = 1 }", ";                                ");
    }

    #[test]
    fn namespaces_that_cannot_be_transformed_are_refused_with_the_place() {
        let cases = [
            ("namespace N { await f() }", 15, "`await`"),
            ("namespace N { return }", 15, "cannot `return`"),
            ("namespace N { const N = 1 }", 21, "its own name"),
            ("namespace N { export class N {} }", 28, "its own name"),
            ("namespace N.N { f() }", 15, "its own name"),
        ];
        for (source, column, expected) in cases {
            let Err(Rejection::TypeScript { message, place }) = prepare(source, Language::TypeScript) else {
                panic!("{source}")
            };
            assert_eq!(place, SourcePosition { line: 1, column }, "{source}: {message}");
            assert!(message.contains(expected), "{source}: {message}");
        }
        let awaited = prepare("namespace N { for await (const a of b) {} }", Language::TypeScript);
        assert!(
            matches!(&awaited, Err(Rejection::TypeScript { message, .. }) if message.contains("await")),
            "{awaited:?}"
        );
        let exports: String = (0..200).map(|number| format!("export let a{number} = 1;")).collect();
        let large = prepare(&format!("namespace {} {{ {exports} }}", "N".repeat(9_000)), Language::TypeScript);
        assert!(matches!(&large, Err(Rejection::TypeScript { message, .. }) if message.contains("too large")));
    }

    #[test]
    fn a_namespace_does_not_load_modules() {
        let cases = [
            ("namespace N { export const a = require('fs') }", ModuleForm::Require, 32),
            ("namespace N { export const a = () => import('fs') }", ModuleForm::ImportCall, 38),
            ("namespace N { const a = 1; export { a } }", ModuleForm::Export, 28),
            ("import fs = require('fs')", ModuleForm::Import, 1),
        ];
        for (source, what, column) in cases {
            let place = SourcePosition { line: 1, column };
            assert_eq!(
                prepare(source, Language::TypeScript).err(),
                Some(Rejection::ModuleAccess { what, place }),
                "{source}"
            );
        }
    }
}
