//! Turns an enum into a variable, in place: each member stays on its line.
//!
//! `enum Color { Red, Green = 5 }` becomes
//! `var Color=((Color)=>{ var Red=Color["Red"]=0;… return Color})({});`. The parameter has the
//! name of the enum, because an initialiser may use `Color.Red`, and each member is a variable
//! too, because it may use `Red`.

use std::collections::HashSet;

use oxc_ast::ast::*;
use oxc_ast_visit::Visit;
use oxc_span::{GetSpan, Span};

use super::Eraser;

/// The enums, namespaces, functions and classes that a list of statements declared so far.
#[derive(Debug)]
pub(super) struct Scope<'t> {
    function_body: bool,
    names: HashSet<&'t str>,
}

impl<'t> Scope<'t> {
    pub(super) fn new(function_body: bool) -> Self {
        Self { function_body, names: HashSet::new() }
    }

    /// Records a function or a class.
    pub(super) fn declare(&mut self, name: &'t str) {
        self.names.insert(name);
    }
}

/// Writes the enum as a statement. A later one of the same name in the same list extends the first.
pub(super) fn transform(eraser: &mut Eraser<'_>, declaration: &TSEnumDeclaration<'_>) {
    let span = declaration.span;
    let body = declaration.body.span;
    let name = eraser.source.slice(declaration.id.span.start, declaration.id.span.end);
    let (before, argument) = open(eraser, name);

    eraser.blank(span.start, body.start + 1);
    eraser.insert(span.start, format!("{before}(({name})=>{{"));
    let mut previous: Option<&TSEnumMember<'_>> = None;
    for member in &declaration.body.members {
        let value = match previous {
            None => "0".to_owned(),
            Some(previous) => format!("{name}[{}]+1", key(eraser, &previous.id)),
        };
        if member.initializer.is_none() && previous.is_some_and(is_text) {
            eraser.refuse("an enum member after one with a string value needs an initializer", member.span);
        }
        let id = member.id.span();
        if eraser.source.has_newline(id.start, id.end) {
            eraser.refuse("the name of an enum member must be on one line", id);
        }
        if eraser.is_refused() {
            return;
        }
        transform_member(eraser, name, member, &value);
        previous = Some(member);
    }
    let end = body.end.saturating_sub(1);
    eraser.blank(end, body.end);
    eraser.insert(end, format!("return {name}}})({argument});"));
}

/// Returns how the statement starts, and the argument that the function is called with.
pub(super) fn open<'t>(eraser: &mut Eraser<'t>, name: &'t str) -> (String, String) {
    let exporting = eraser.exporting.take();
    let Some(scope) = eraser.enums.last_mut() else {
        return (format!("var {name}="), "{}".to_owned());
    };
    if !scope.names.insert(name) {
        return ("void".to_owned(), name.to_owned());
    }
    let keyword = if scope.function_body { "var" } else { "let" };
    // An earlier namespace of the same name may have exported it.
    let argument = exporting.map_or_else(|| "{}".to_owned(), |namespace| format!("{namespace}.{name}||{{}}"));
    (format!("{keyword} {name}="), argument)
}

fn transform_member(eraser: &mut Eraser<'_>, name: &str, member: &TSEnumMember<'_>, value: &str) {
    let key = key(eraser, &member.id);
    let start = member.span.start;
    let variable = match &member.id {
        TSEnumMemberName::Identifier(id) => {
            let word = eraser.source.slice(id.span.start, id.span.end);
            if is_variable(word) && word != name { format!("var {word}=") } else { String::new() }
        }
        _ => String::new(),
    };
    eraser.insert(start, format!("{variable}{name}[{key}]="));
    let end = match &member.initializer {
        Some(initializer) => {
            let span = initializer.span();
            eraser.blank(start, span.start);
            eraser.visit_expression(initializer);
            span.end
        }
        None => {
            eraser.insert(start, value);
            eraser.blank(start, member.span.end);
            member.span.end
        }
    };
    let reverse = format!("{name}[{name}[{key}]]={key};");
    eraser.insert(
        end,
        match &member.initializer {
            Some(Expression::StringLiteral(_) | Expression::TemplateLiteral(_)) => ";".to_owned(),
            Some(Expression::NumericLiteral(_)) | None => format!(";{reverse}"),
            Some(_) => format!(";if(typeof {name}[{key}]==\"number\"){reverse}"),
        },
    );
    eraser.blank_next(member.span.end, b',');
}

/// The member's name as an expression.
fn key(eraser: &Eraser<'_>, name: &TSEnumMemberName<'_>) -> String {
    let slice = |span: Span| eraser.source.slice(span.start, span.end);
    match name {
        TSEnumMemberName::Identifier(id) => format!("\"{}\"", slice(id.span)),
        TSEnumMemberName::String(literal) | TSEnumMemberName::ComputedString(literal) => slice(literal.span).to_owned(),
        TSEnumMemberName::ComputedTemplateString(template) => slice(template.span).to_owned(),
    }
}

fn is_text(member: &TSEnumMember<'_>) -> bool {
    matches!(member.initializer, Some(Expression::StringLiteral(_) | Expression::TemplateLiteral(_)))
}

/// Whether a member's name can be the name of a variable.
fn is_variable(name: &str) -> bool {
    const RESERVED: &str = "arguments await break case catch class const continue debugger default delete do else \
        enum eval export extends false finally for function if implements import in instanceof interface let new \
        null package private protected public return static super switch this throw true try typeof var void while \
        with yield";
    RESERVED.split_whitespace().all(|reserved| reserved != name)
}

#[cfg(test)]
mod tests {
    use crate::source::erase::tests::check;
    use crate::source::{Language, Rejection, prepare};

    #[test]
    fn members_become_variables_in_place() {
        let cases = [
            ("enum A {}", "var A=((A)=>{        return A})({}); "),
            ("enum A { B }", "var A=((A)=>{         var B=A[\"B\"]=0 ;A[A[\"B\"]]=\"B\"; return A})({}); "),
            (
                "enum A {\n  B = 5, // five\n  C,\n}",
                "var A=((A)=>{        \n  var B=A[\"B\"]=    5;A[A[\"B\"]]=\"B\";  // five\n  \
                 var C=A[\"C\"]=A[\"B\"]+1 ;A[A[\"C\"]]=\"C\"; \nreturn A})({}); ",
            ),
            (
                "const enum A { B = 'x', \"c-d\" = `y` }",
                "var A=((A)=>{               var B=A[\"B\"]=    'x';  A[\"c-d\"]=        `y`; \
                 return A})({}); ",
            ),
            (
                "enum A { B = 1 << 2, default = A.B | B, A }",
                "var A=((A)=>{         var B=A[\"B\"]=    1 << 2;if(typeof A[\"B\"]==\"number\")\
                 A[A[\"B\"]]=\"B\";  A[\"default\"]=          A.B | B;\
                 if(typeof A[\"default\"]==\"number\")A[A[\"default\"]]=\"default\";  \
                 A[\"A\"]=A[\"default\"]+1 ;A[A[\"A\"]]=\"A\"; return A})({}); ",
            ),
            (
                "enum A { ['b'] = 1 as number }",
                "var A=((A)=>{         A['b']=        1          ;if(typeof A['b']==\"number\")\
                 A[A['b']]='b'; return A})({}); ",
            ),
        ];
        for (source, expected) in cases {
            check(source, expected);
        }
    }

    #[test]
    fn a_second_enum_extends_the_first_and_a_block_has_its_own() {
        check(
            "enum A {} enum A {} { enum A {} } declare enum B { C }",
            "var A=((A)=>{        return A})({});  void((A)=>{        return A})(A);  { \
             let A=((A)=>{        return A})({});  } ;                   ",
        );
    }

    #[test]
    fn enums_that_cannot_be_transformed_are_refused() {
        let long = format!("enum {} {{ {} }}", "A".repeat(50_000), "B,".repeat(50_000));
        for source in ["enum A { B = 'x', C }", "enum A { 'b\\\nc' = 1 }", "enum A { [`b\n`] = 1 }", &long] {
            let rejection = prepare(source, Language::TypeScript);
            assert!(matches!(rejection, Err(Rejection::TypeScript { .. })), "{rejection:?}");
        }
    }
}
