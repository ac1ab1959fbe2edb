//! Erases TypeScript from a parsed cell: types become spaces, and the rest stays in place.
//!
//! Erasing can change how lines join. Where a type hid a line break that matters, or kept two lines
//! apart, a bracket moves over the blank or a semicolon is written into it.

mod blanks;
mod enums;
mod members;
mod namespaces;
mod properties;
#[cfg(test)]
mod tests;

use oxc_ast::ast::*;
use oxc_ast_visit::{Visit, walk};
use oxc_span::{GetSpan, Span};

use super::edits::{Edits, Shift};
use super::parse::WrappedCell;
use super::rejection::Rejection;
use super::trivia::Text;

/// The maximum size of all inserted text with its [`Shift`]s. An enum repeats its name for each member, so its output needs
/// its own bound.
pub(super) const MAX_INSERTED_BYTES: usize = 1 << 20;

/// Returns the script without types, and the columns that insertions moved.
pub(super) fn erase(program: &Program<'_>, wrapped: &WrappedCell) -> Result<(String, Vec<Shift>), Rejection> {
    let mut eraser = Eraser {
        source: Text { text: wrapped.text(), comments: &program.comments },
        edits: Edits::new(wrapped.text()),
        refusal: None,
        inserted: 0,
        erased: Span::new(0, 0),
        enums: Vec::new(),
        function_body: false,
        namespace: None,
        exporting: None,
    };
    eraser.visit_program(program);
    match eraser.refusal {
        Some((message, offset)) => {
            Err(Rejection::TypeScript { message: message.to_owned(), place: wrapped.place(offset) })
        }
        None => Ok(eraser.edits.finish()),
    }
}

pub(super) struct Eraser<'t> {
    source: Text<'t>,
    edits: Edits,
    refusal: Option<(&'static str, u32)>,
    /// The size of the inserted text with its [`Shift`]s.
    inserted: usize,
    /// The span that was erased last.
    erased: Span,
    /// For each list of statements around here, the enums that it declared so far.
    enums: Vec<enums::Scope<'t>>,
    /// Whether the next list of statements is the body of a function.
    function_body: bool,
    /// The innermost namespace around here.
    namespace: Option<&'t str>,
    /// The namespace that exports the declaration that is transformed next.
    exporting: Option<&'t str>,
}

impl<'t> Eraser<'t> {
    /// Refuses the cell; the first refusal is reported.
    pub(super) fn refuse(&mut self, message: &'static str, span: Span) {
        self.refusal.get_or_insert((message, span.start));
    }

    pub(super) fn is_refused(&self) -> bool {
        self.refusal.is_some()
    }

    /// Inserts text before `offset`, after anything inserted there earlier.
    pub(super) fn insert(&mut self, offset: u32, text: impl Into<String>) {
        let text = text.into();
        self.inserted += text.len() + Shift::BYTES;
        if self.inserted > MAX_INSERTED_BYTES {
            self.refuse(
                "the enums and namespaces of this cell are too large, use objects instead",
                Span::empty(offset),
            );
        } else {
            self.edits.insert(offset, text);
        }
    }

    /// Records a function or a class, which a namespace of the same name extends.
    fn declare(&mut self, id: Option<&BindingIdentifier<'_>>) {
        if let (Some(id), Some(scope)) = (id, self.enums.last_mut()) {
            scope.declare(self.source.slice(id.span.start, id.span.end));
        }
    }

    /// Visits statements that become the body of a function.
    fn visit_function_statements<'a>(&mut self, statements: &oxc_allocator::Vec<'a, Statement<'a>>) {
        self.function_body = true;
        self.visit_statements(statements);
        self.function_body = false;
    }
}

impl<'a> Visit<'a> for Eraser<'_> {
    fn visit_statements(&mut self, it: &oxc_allocator::Vec<'a, Statement<'a>>) {
        let function_body = std::mem::take(&mut self.function_body);
        self.enums.push(enums::Scope::new(function_body));
        walk::walk_statements(self, it);
        self.enums.pop();
    }

    fn visit_function_body(&mut self, it: &FunctionBody<'a>) {
        self.function_body = true;
        walk::walk_function_body(self, it);
        self.function_body = false;
    }

    fn visit_statement(&mut self, it: &Statement<'a>) {
        if self.is_refused() {
            return;
        }
        let span = it.span();
        match it {
            Statement::TSTypeAliasDeclaration(_) | Statement::TSInterfaceDeclaration(_) => {
                self.blank_statement(span);
            }
            Statement::VariableDeclaration(declaration) if declaration.declare => {
                self.blank_statement(span);
            }
            Statement::FunctionDeclaration(function) if function.body.is_none() => {
                self.blank_statement(span);
            }
            Statement::ClassDeclaration(class) if class.declare => self.blank_statement(span),
            Statement::TSEnumDeclaration(declaration) if declaration.declare => {
                self.blank_statement(span);
            }
            Statement::TSEnumDeclaration(declaration) => enums::transform(self, declaration),
            Statement::TSGlobalDeclaration(_) | Statement::TSExternalModuleDeclaration(_) => {
                self.blank_statement(span);
            }
            Statement::TSNamespaceDeclaration(namespace) if members::is_type_only(namespace) => {
                self.blank_statement(span);
            }
            Statement::TSNamespaceDeclaration(namespace) => namespaces::transform(self, namespace),
            Statement::ExportDeclaration(export) => namespaces::export(self, export),
            Statement::TSImportEqualsDeclaration(_) => {
                self.refuse("`import … =` is not supported, use `const … =` with a value", span);
            }
            Statement::TSExportAssignment(_) | Statement::TSNamespaceExportDeclaration(_) => {
                self.refuse("a cell has no exports, `return` the value", span);
            }
            _ => {
                match it {
                    Statement::FunctionDeclaration(function) => self.declare(function.id.as_ref()),
                    Statement::ClassDeclaration(class) => self.declare(class.id.as_ref()),
                    _ => {}
                }
                walk::walk_statement(self, it);
                self.close(span);
            }
        }
    }

    fn visit_ts_type_annotation(&mut self, it: &TSTypeAnnotation<'a>) {
        self.blank(it.span.start, it.span.end);
    }

    fn visit_ts_type_parameter_declaration(&mut self, it: &TSTypeParameterDeclaration<'a>) {
        self.blank(it.span.start, it.span.end);
    }

    fn visit_ts_type_parameter_instantiation(&mut self, it: &TSTypeParameterInstantiation<'a>) {
        self.blank(it.span.start, it.span.end);
    }

    fn visit_ts_as_expression(&mut self, it: &TSAsExpression<'a>) {
        self.visit_expression(&it.expression);
        self.blank(it.expression.span().end, it.span.end);
    }

    fn visit_ts_satisfies_expression(&mut self, it: &TSSatisfiesExpression<'a>) {
        self.visit_expression(&it.expression);
        self.blank(it.expression.span().end, it.span.end);
    }

    fn visit_ts_non_null_expression(&mut self, it: &TSNonNullExpression<'a>) {
        self.visit_expression(&it.expression);
        self.blank(it.expression.span().end, it.span.end);
    }

    fn visit_ts_type_assertion(&mut self, it: &TSTypeAssertion<'a>) {
        self.blank_assertion(it.span, it.expression.span());
        self.visit_expression(&it.expression);
    }

    fn visit_ts_this_parameter(&mut self, it: &TSThisParameter<'a>) {
        self.blank(it.span.start, it.span.end);
        self.blank_next(it.span.end, b',');
    }

    fn visit_arrow_function_expression(&mut self, it: &ArrowFunctionExpression<'a>) {
        if let Some(type_parameters) = &it.type_parameters {
            self.blank_type_parameters(type_parameters.span, it.params.span);
        }
        self.visit_formal_parameters(&it.params);
        if let Some(return_type) = &it.return_type {
            self.blank_return_type(it.params.span, return_type.span);
        }
        self.visit_arrow_function_body(&it.body);
    }

    fn visit_formal_parameter(&mut self, it: &FormalParameter<'a>) {
        self.visit_decorators(&it.decorators);
        let pattern = it.pattern.span();
        if it.accessibility.is_some() || it.readonly || it.r#override {
            self.blank_modifiers(it.span.start, pattern.start);
        }
        self.visit_binding_pattern(&it.pattern);
        if it.optional {
            self.blank_next(pattern.end, b'?');
        }
        if let Some(type_annotation) = &it.type_annotation {
            self.visit_ts_type_annotation(type_annotation);
        }
        if let Some(initializer) = &it.initializer {
            self.visit_expression(initializer);
        }
    }

    fn visit_variable_declarator(&mut self, it: &VariableDeclarator<'a>) {
        if it.definite {
            self.blank_next(it.id.span().end, b'!');
        }
        walk::walk_variable_declarator(self, it);
    }

    fn visit_decorator(&mut self, it: &Decorator<'a>) {
        self.refuse("decorators are not supported, call the function yourself", it.span);
    }

    fn visit_class(&mut self, it: &Class<'a>) {
        members::blank_class_head(self, it);
        properties::assign(self, it);
        walk::walk_class(self, it);
    }

    // `blank_class_head` has erased the whole clause.
    fn visit_ts_class_implements(&mut self, _: &TSClassImplements<'a>) {}

    fn visit_class_element(&mut self, it: &ClassElement<'a>) {
        members::erase(self, it);
    }
}
