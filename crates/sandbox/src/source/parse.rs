//! Parses a cell as the body of one async arrow function, and sees to it that it is nothing more.

use oxc_allocator::Allocator;
use oxc_ast::ast::{ArrowFunctionBody, Expression, Program, Statement};
use oxc_parser::{Parser, ParserReturn};
use oxc_span::{GetSpan, SourceType};

use super::Language;
use super::lines::{Place, narrow, place};
use super::modules;
use super::rejection::Rejection;

const PREFIX: &str = "(async()=>{\n";
const SUFFIX: &str = "\n})";

/// A message is the parser's, but names in it are the model's.
const MAX_MESSAGE_CHARACTERS: usize = 200;

/// A cell in its wrapper.
#[derive(Debug)]
pub(super) struct Wrapped {
    text: String,
    /// The same text for the parser, without annotations that it would act on.
    parsed: String,
    source_length: usize,
}

impl Wrapped {
    pub(super) fn new(source: &str) -> Self {
        let text = format!("{PREFIX}{source}{SUFFIX}");
        // In a build with debug assertions, oxc aborts on some `/* @__PURE__ */` comments.
        let parsed = text.replace("__PURE__", "__pure__").replace("__NO_SIDE_EFFECTS__", "__no_side_effects__");
        Self { text, parsed, source_length: source.len() }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }

    /// The model's place of an offset into the wrapped text.
    pub(super) fn place(&self, offset: u32) -> Place {
        let source = self.text.get(PREFIX.len()..PREFIX.len() + self.source_length);
        let offset = (offset as usize).saturating_sub(PREFIX.len()).min(self.source_length);
        place(source.unwrap_or_default(), offset)
    }

    /// What the parser met of the suffix, if `offset` is behind the model's source.
    fn behind(&self, offset: u32) -> Option<&str> {
        let behind = self.text.get(offset as usize..)?;
        (offset as usize > PREFIX.len() + self.source_length).then_some(behind)
    }
}

/// Parses a cell that the guard let through, and refuses module access.
///
/// `hint` says whether a JavaScript cell that does not parse may be tried as TypeScript.
pub(super) fn parse<'a>(
    allocator: &'a Allocator,
    wrapped: &'a Wrapped,
    language: Language,
    hint: bool,
) -> Result<Program<'a>, Rejection> {
    let returned = read(allocator, wrapped, language);
    if !returned.panicked {
        modules::refuse(&returned.program, wrapped)?;
    }
    if let Some((message, place)) = complaint(&returned, wrapped) {
        let message = if language == Language::JavaScript && hint && is_typescript(wrapped) {
            format!("{message}; it is valid TypeScript, so set `language: \"typescript\"`")
        } else {
            message
        };
        return Err(Rejection::syntax(language, message, place));
    }
    Ok(returned.program)
}

fn read<'a>(allocator: &'a Allocator, wrapped: &'a Wrapped, language: Language) -> ParserReturn<'a> {
    let source_type = match language {
        Language::JavaScript => SourceType::script(),
        Language::TypeScript => SourceType::ts().with_script(true),
    };
    Parser::new(allocator, &wrapped.parsed, source_type).parse()
}

fn is_typescript(wrapped: &Wrapped) -> bool {
    let allocator = Allocator::default();
    complaint(&read(&allocator, wrapped, Language::TypeScript), wrapped).is_none()
}

/// The first thing that is wrong with the text, and where.
fn complaint(returned: &ParserReturn<'_>, wrapped: &Wrapped) -> Option<(String, Place)> {
    let Some(diagnostic) = returned.diagnostics.first() else {
        let offset = breakout(&returned.program, wrapped)?;
        let message = "this `}` closes the cell, which goes on after it: remove it".to_owned();
        return Some((message, wrapped.place(offset)));
    };
    let offset = diagnostic.labels.first().map_or(0, |label| label.offset());
    let message = match wrapped.behind(offset) {
        Some("})") => "there is a closing bracket too many in the cell".to_owned(),
        Some(_) => "the cell ends before everything in it is closed".to_owned(),
        None => fragment(&diagnostic.message),
    };
    Some((message, wrapped.place(offset)))
}

/// Where the text ends the wrapper too early, if it does.
fn breakout(program: &Program<'_>, wrapped: &Wrapped) -> Option<u32> {
    let whole = narrow(wrapped.text.len());
    let [Statement::ExpressionStatement(statement)] = program.body.as_slice() else {
        return Some(program.body.first().map_or(0, |first| last_brace(first.span().end, wrapped)));
    };
    if let Expression::ParenthesizedExpression(parenthesized) = &statement.expression
        && parenthesized.span.start == 0
        && parenthesized.span.end == whole
        && let Expression::ArrowFunctionExpression(arrow) = &parenthesized.expression
        && let ArrowFunctionBody::FunctionBody(body) = &arrow.body
        && arrow.r#async
        && body.span.start as usize + 2 == PREFIX.len()
        && body.span.end + 1 == whole
    {
        return None;
    }
    Some(last_brace(statement.span.end, wrapped))
}

/// The last closing brace of the model's before `end`: close enough to where it broke out.
fn last_brace(end: u32, wrapped: &Wrapped) -> u32 {
    let end = (end as usize).min(PREFIX.len() + wrapped.source_length);
    narrow(wrapped.text.get(..end).and_then(|text| text.rfind('}')).unwrap_or(end))
}

/// A message of the parser as a lower-case fragment.
fn fragment(message: &str) -> String {
    let mut characters = message.trim_end_matches('.').chars().take(MAX_MESSAGE_CHARACTERS);
    let first = characters.next().into_iter().flat_map(char::to_lowercase);
    first.chain(characters).collect()
}
