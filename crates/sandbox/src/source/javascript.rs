//! Finds the TypeScript that oxc accepts in JavaScript, which is modifiers in classes, so that a cell that declares the
//! wrong language gets a helpful error.

use oxc_ast::ast::{ClassElement, Program};
use oxc_ast_visit::{VisitJs, walk_js};
use oxc_span::GetSpan;

/// Returns the offset of the first class member with syntax that only TypeScript has.
pub(super) fn first_typescript_member(program: &Program<'_>) -> Option<u32> {
    let mut search = Search { found: None };
    search.visit_program(program);
    search.found
}

struct Search {
    found: Option<u32>,
}

impl<'a> VisitJs<'a> for Search {
    fn visit_class_element(&mut self, element: &ClassElement<'a>) {
        if self.found.is_none() && is_typescript(element) {
            self.found = Some(element.span().start);
        }
        walk_js::walk_class_element(self, element);
    }
}

fn is_typescript(element: &ClassElement<'_>) -> bool {
    match element {
        ClassElement::MethodDefinition(method) => {
            method.accessibility.is_some() || method.r#override || method.optional || method.r#type.is_abstract()
        }
        ClassElement::PropertyDefinition(field) => {
            field.accessibility.is_some()
                || field.r#override
                || field.optional
                || field.definite
                || field.declare
                || field.readonly
                || field.r#type.is_abstract()
        }
        ClassElement::AccessorProperty(field) => {
            field.accessibility.is_some() || field.r#override || field.definite || field.r#type.is_abstract()
        }
        ClassElement::TSIndexSignature(_) => true,
        ClassElement::StaticBlock(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::source::{Language, Rejection, prepare};

    #[test]
    fn modifiers_are_not_javascript() {
        let typescript = [
            "class A { private x }",
            "class A { public static async m() {} }",
            "class A { static readonly x = 1 }",
            "class A { override m() {} }",
            "class A { declare x }",
            "class A { abstract x }",
            "class A { x? }",
            "class A { m?() {} }",
            "f(class { y() { return class { protected z } } })",
        ];
        for source in typescript {
            let rejection = prepare(source, Language::JavaScript);
            let hinted = matches!(&rejection, Err(Rejection::Syntax { message, .. }) if message.contains("TypeScript"));
            assert!(hinted, "{source}: {rejection:?}");
        }
        let javascript = [
            "class A { private = 1; static = 2; readonly() {} get; set; async() {} }",
            "class A { static async *m() {} get x() { return 1 } static { this.y = 1 } #z = 2 }",
        ];
        for source in javascript {
            assert!(prepare(source, Language::JavaScript).is_ok(), "{source}");
        }
    }
}
