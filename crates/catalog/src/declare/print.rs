//! Prints types: short ones on one line, others with one field per line.

mod object;

use serde_json::Value;

use super::names::Names;
use super::shape::{Tuple, Type};
use crate::text::in_comment;

/// The maximum depth of printed types; definitions written in place can nest without a limit.
const MAX_DEPTH: usize = 64;

pub(super) struct Printer<'a> {
    root: &'a Value,
    names: &'a Names<'a>,
    note_bytes: usize,
    limit: usize,
    comments: Comments,
    out: String,
    depth: usize,
    /// Whether the printer is inside an object that it tries to print on one line.
    is_inline: bool,
    /// Whether it met something that cannot be on one line.
    is_broken: bool,
}

impl<'a> Printer<'a> {
    /// Creates a printer. Its text is meaningless once it exceeds `limit` bytes: see [`Printer::finish`].
    pub(super) fn new(root: &'a Value, names: &'a Names<'a>, note_bytes: usize, limit: usize) -> Self {
        let (comments, out) = (Comments::Lines, String::new());
        Self { root, names, note_bytes, limit, comments, out, depth: 0, is_inline: false, is_broken: false }
    }

    pub(super) fn with_comments(self, comments: Comments) -> Self {
        Self { comments, ..self }
    }

    fn comment(&self, text: &str) -> String {
        match self.comments {
            Comments::Lines => format!("// {text}"),
            Comments::Blocks => format!("/* {} */", in_comment(text)),
        }
    }

    /// Returns the text, unless it is longer than allowed.
    pub(super) fn finish(self) -> Option<String> {
        (self.out.len() <= self.limit).then_some(self.out)
    }

    pub(super) fn push(&mut self, text: &str) {
        self.out.push_str(text);
    }

    /// Prints the type of a whole input: its object has one field per line.
    pub(super) fn root(&mut self, value: &Type<'a>, indent: usize, layout: Layout) {
        match self.names.seen(value) {
            Type::Object(object) if !object.fields.is_empty() => self.block(object, indent, layout),
            Type::Intersection(parts) => match parts.split_first() {
                Some((Type::Object(object), others)) if !object.fields.is_empty() => {
                    self.block(object, indent, layout);
                    self.push(" & ");
                    self.joined(others, " & ", indent);
                }
                _ => self.value(value, indent),
            },
            _ => self.value(value, indent),
        }
    }

    pub(super) fn value(&mut self, value: &Type<'a>, indent: usize) {
        if self.out.len() > self.limit {
            return;
        }
        if self.depth == MAX_DEPTH {
            return self.push("unknown /* … */");
        }
        self.depth += 1;
        match self.names.seen(value) {
            Type::Word(word) => self.push(word.as_str()),
            Type::Literal(_, text) => self.push(text),
            Type::More(word, omitted) => self.push(&format!("{} /* … {omitted} more */", word.as_str())),
            Type::Array(item) => {
                self.grouped(item, indent);
                self.push("[]");
            }
            Type::Tuple(tuple) => self.tuple(tuple, indent),
            Type::Object(object) => self.object(object, indent),
            Type::Union(members) => self.joined(members, " | ", indent),
            Type::Intersection(parts) => self.joined(parts, " & ", indent),
            Type::Defined(at) => self.push(&self.names.of(*at)),
        }
        self.depth -= 1;
    }

    /// Prints a member of something that binds more tightly than `|` and `&`.
    fn grouped(&mut self, value: &Type<'a>, indent: usize) {
        let is_loose = match self.names.seen(value) {
            Type::Union(_) | Type::Intersection(_) | Type::More(..) => true,
            Type::Object(object) => object.fields.is_empty() && object.omitted_fields > 0,
            Type::Word(_) | Type::Literal(..) | Type::Array(_) | Type::Tuple(_) | Type::Defined(_) => false,
        };
        self.push(if is_loose { "(" } else { "" });
        self.value(value, indent);
        self.push(if is_loose { ")" } else { "" });
    }

    fn joined(&mut self, parts: &[Type<'a>], separator: &str, indent: usize) {
        for (position, part) in parts.iter().enumerate() {
            self.push(if position == 0 { "" } else { separator });
            if separator == " & " { self.grouped(part, indent) } else { self.value(part, indent) }
        }
    }

    fn tuple(&mut self, tuple: &Tuple<'a>, indent: usize) {
        self.push("[");
        for (position, item) in tuple.items.iter().enumerate() {
            self.push(if position == 0 { "" } else { ", " });
            if position < tuple.required {
                self.value(item, indent);
            } else {
                self.grouped(item, indent);
                self.push("?");
            }
        }
        if let Some(rest) = &tuple.rest {
            self.push(if tuple.items.is_empty() { "..." } else { ", ..." });
            self.grouped(rest, indent);
            self.push("[]");
        }
        self.push("]");
    }
}

/// How comments beside fields are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comments {
    /// `// …` up to the end of the line.
    Lines,
    /// `/* … */`, for text whose lines are joined afterwards.
    Blocks,
}

/// How an object is printed as a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// A function's input: its fields are described above the function.
    Parameters,
    /// A function's input whose fields do not all fit: the rest are counted.
    Fitted,
    Nested,
}
