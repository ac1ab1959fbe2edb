//! Refuses a cell that would load other code: it has no modules, and nothing may look like it does.

use oxc_ast::ast::{
    CallExpression, ExportAllDeclaration, ExportDeclaration, ExportDefaultDeclaration, ExportFromDeclaration,
    ExportNamedDeclaration, Expression, ImportDeclaration, ImportExpression, ImportMeta, Program,
    TSExternalModuleDeclaration, TSGlobalDeclaration, TSNamespaceDeclaration,
};
use oxc_ast_visit::{VisitJs, walk_js};
use oxc_span::Span;

use super::parse::Wrapped;
use super::rejection::{ModuleForm, Rejection};

/// Fails at the first module access in the tree.
///
/// Words in strings, comments and property names are not in the tree as such, so they pass.
pub(super) fn refuse(program: &Program<'_>, wrapped: &Wrapped) -> Result<(), Rejection> {
    let mut search = Search { found: None };
    search.visit_program(program);
    match search.found {
        Some((what, offset)) => Err(Rejection::ModuleAccess { what, place: wrapped.place(offset) }),
        None => Ok(()),
    }
}

struct Search {
    found: Option<(ModuleForm, u32)>,
}

impl Search {
    fn found(&mut self, what: ModuleForm, span: Span) {
        let earlier = self.found.is_some_and(|(_, offset)| offset <= span.start);
        if !earlier {
            self.found = Some((what, span.start));
        }
    }
}

impl<'a> VisitJs<'a> for Search {
    fn visit_import_declaration(&mut self, it: &ImportDeclaration<'a>) {
        self.found(ModuleForm::Import, it.span);
    }

    fn visit_import_expression(&mut self, it: &ImportExpression<'a>) {
        self.found(ModuleForm::ImportCall, it.span);
    }

    fn visit_import_meta(&mut self, it: &ImportMeta) {
        self.found(ModuleForm::ImportMeta, it.span);
    }

    fn visit_export_declaration(&mut self, it: &ExportDeclaration<'a>) {
        self.found(ModuleForm::Export, it.span);
    }

    fn visit_export_named_declaration(&mut self, it: &ExportNamedDeclaration<'a>) {
        self.found(ModuleForm::Export, it.span);
    }

    fn visit_export_from_declaration(&mut self, it: &ExportFromDeclaration<'a>) {
        self.found(ModuleForm::Export, it.span);
    }

    fn visit_export_default_declaration(&mut self, it: &ExportDefaultDeclaration<'a>) {
        self.found(ModuleForm::Export, it.span);
    }

    fn visit_export_all_declaration(&mut self, it: &ExportAllDeclaration<'a>) {
        self.found(ModuleForm::Export, it.span);
    }

    fn visit_call_expression(&mut self, it: &CallExpression<'a>) {
        if is_require(&it.callee) {
            self.found(ModuleForm::Require, it.span);
        }
        walk_js::walk_call_expression(self, it);
    }

    // What a namespace exports stays in the cell; `erase` decides about namespaces.
    fn visit_ts_namespace_declaration(&mut self, _: &TSNamespaceDeclaration<'a>) {}
    fn visit_ts_external_module_declaration(&mut self, _: &TSExternalModuleDeclaration<'a>) {}
    fn visit_ts_global_declaration(&mut self, _: &TSGlobalDeclaration<'a>) {}
}

/// Whether an expression is the name `require`, in whatever parentheses and assertions.
fn is_require(callee: &Expression<'_>) -> bool {
    let mut expression = callee;
    loop {
        expression = match expression {
            Expression::Identifier(name) => return name.name == "require",
            Expression::SequenceExpression(sequence) => match sequence.expressions.last() {
                Some(last) => last,
                None => return false,
            },
            Expression::ParenthesizedExpression(inner) => &inner.expression,
            Expression::TSAsExpression(inner) => &inner.expression,
            Expression::TSSatisfiesExpression(inner) => &inner.expression,
            Expression::TSTypeAssertion(inner) => &inner.expression,
            Expression::TSNonNullExpression(inner) => &inner.expression,
            Expression::TSInstantiationExpression(inner) => &inner.expression,
            _ => return false,
        };
    }
}
