//! Finds module access in a cell: a cell has no modules, and must not appear to have any.

use oxc_ast::ast::{
    CallExpression, ExportAllDeclaration, ExportDeclaration, ExportDefaultDeclaration, ExportFromDeclaration,
    ExportNamedDeclaration, Expression, ImportDeclaration, ImportExpression, ImportMeta, Program,
    TSExternalModuleDeclaration, TSGlobalDeclaration, TSImportEqualsDeclaration, TSModuleReference,
    TSNamespaceDeclaration,
};
use oxc_ast_visit::{VisitJs, walk_js};
use oxc_span::Span;

use super::rejection::ModuleForm;

/// Returns the first module access in the tree, and its offset.
///
/// These words in strings, comments and property names are not module access.
pub(super) fn first_access(program: &Program<'_>) -> Option<(ModuleForm, u32)> {
    let mut search = Search { found: None, namespaces: 0 };
    search.visit_program(program);
    search.found
}

struct Search {
    found: Option<(ModuleForm, u32)>,
    /// How many namespaces are around here. Their exports stay in the cell.
    namespaces: usize,
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
        if self.namespaces == 0 {
            self.found(ModuleForm::Export, it.span);
        } else {
            walk_js::walk_export_declaration(self, it);
        }
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

    fn visit_ts_import_equals_declaration(&mut self, it: &TSImportEqualsDeclaration<'a>) {
        if matches!(it.module_reference, TSModuleReference::ExternalModuleReference(_)) {
            self.found(ModuleForm::Import, it.span);
        }
    }

    fn visit_ts_namespace_declaration(&mut self, it: &TSNamespaceDeclaration<'a>) {
        // What is only declared does not exist at run time.
        if !it.declare {
            self.namespaces += 1;
            walk_js::walk_ts_namespace_declaration(self, it);
            self.namespaces -= 1;
        }
    }

    fn visit_ts_external_module_declaration(&mut self, _: &TSExternalModuleDeclaration<'a>) {}
    fn visit_ts_global_declaration(&mut self, _: &TSGlobalDeclaration<'a>) {}
}

/// Returns whether an expression is the name `require`, inside any parentheses and assertions.
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

#[cfg(test)]
mod tests {
    use crate::source::{Language, ModuleForm, Rejection, SourcePosition, prepare};

    fn refused(what: ModuleForm, line: u32, column: u32) -> Option<Rejection> {
        let place = SourcePosition { line, column };
        Some(Rejection::ModuleAccess { what, place })
    }

    fn check(source: &str, expected: Option<Rejection>) {
        let javascript = prepare(source, Language::JavaScript).err();
        assert_eq!(javascript, expected, "{source}");
        let typescript = prepare(source, Language::TypeScript).err();
        assert_eq!(typescript, expected, "{source}");
    }

    #[test]
    fn module_access_is_refused() {
        use ModuleForm::{Export, Import, ImportCall, ImportMeta, Require};
        let cases = [
            ("import fs from 'fs'", Import, 1, 1),
            ("import 'fs'", Import, 1, 1),
            ("import * as fs from 'fs'\nfs.x()", Import, 1, 1),
            ("const a = 1;\nimport { b } from \"c\";", Import, 2, 1),
            ("import a, { b as c } from 'd'", Import, 1, 1),
            ("{ import a from 'b' }", Import, 1, 3),
            ("const fs = await import('fs')", ImportCall, 1, 18),
            ("import('fs').then(f)", ImportCall, 1, 1),
            ("return `${import(x)}`", ImportCall, 1, 11),
            ("return import.meta.url", ImportMeta, 1, 8),
            ("const fs = require('fs')", Require, 1, 12),
            ("require?.('fs')", Require, 1, 1),
            ("(0, require)('fs')", Require, 1, 1),
            ("((require))('fs')", Require, 1, 1),
            ("const { a } = require('é').b", Require, 1, 15),
            ("'é'; require(x)", Require, 1, 7),
            ("class A { static x = require('y') }", Require, 1, 22),
            ("f(() => require('a'), import('b'))", Require, 1, 9),
            ("export const a = 1", Export, 1, 1),
            ("export default 1", Export, 1, 1),
            ("const a = 1\nexport { a }", Export, 2, 1),
            ("export * from 'a'", Export, 1, 1),
            ("export { a } from 'b'", Export, 1, 1),
            ("export function f() {}", Export, 1, 1),
        ];
        for (source, what, line, column) in cases {
            check(source, refused(what, line, column));
        }
    }

    #[test]
    fn words_that_only_look_like_module_access_are_accepted() {
        let cases = [
            "return \"require('fs')\" + 'import x from y'",
            "return `import('fs') ${1} export default`",
            "// import fs from 'fs'\n/* require('fs') */ return 1",
            "obj.require('fs'); obj?.import('x'); obj.export()",
            "return { import: 1, require: 2, export: 3, default: 4 }",
            "return { require() { return 1 } }.require()",
            "const imported = 1, requires = 2, exports = {}; exports.a = imported",
            "const require = 1; return require",
            "return typeof require",
            "return /import('x')/",
            "class A { require() {} import() {} static export() {} }",
        ];
        for source in cases {
            check(source, None);
        }
    }

    #[test]
    fn types_do_not_load_modules() {
        use ModuleForm::{Export, Import, Require};
        let cases = [
            ("let x: import('fs').Stats", None),
            ("let x: typeof import('fs')", None),
            ("declare module 'm' { export const a: number; import b from 'c' }", None),
            ("namespace N { export type A = 1 }", None),
            ("import type { A } from 'b'", refused(Import, 1, 1)),
            ("export type A = 1", refused(Export, 1, 1)),
            ("export type { A } from 'b'", refused(Export, 1, 1)),
            ("export interface A {}", refused(Export, 1, 1)),
            ("(require as any)('fs')", refused(Require, 1, 1)),
            ("require!('fs')", refused(Require, 1, 1)),
            ("enum A { B = require('fs') }", refused(Require, 1, 14)),
        ];
        for (source, expected) in cases {
            let found = prepare(source, Language::TypeScript).err();
            assert_eq!(found, expected, "{source}");
        }
        let found = prepare("import type { A } from 'b'", Language::JavaScript).err();
        assert_eq!(found, refused(Import, 1, 1));
    }

    #[test]
    fn the_message_suggests_an_alternative() {
        let message = |source| prepare(source, Language::JavaScript).map_err(|e| e.to_string());
        let expected = "`require()` is not available: a cell cannot load modules, so use the globals, and tools for \
                        files, network and commands";
        assert_eq!(message("require('fs')").err().as_deref(), Some(expected));
        let expected = "`export` is not available: a cell has no exports, so \
                        `return` the value";
        assert_eq!(message("export default 1").err().as_deref(), Some(expected));
    }
}
