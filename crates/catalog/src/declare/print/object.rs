//! Prints objects: on one line while they are short and need no comments, otherwise with one field per line.

use super::super::note;
use super::super::shape::{Field, Object, Type};
use super::{Layout, Printer};
use crate::text::{cut, in_comment, property};

/// The maximum length of an object on one line.
const INLINE_BYTES: usize = 72;

/// Space kept free for the last line and the end of an object that is shortened to fit.
const OBJECT_END_BYTES: usize = 48;

impl<'a> Printer<'a> {
    pub(super) fn object(&mut self, object: &Object<'a>, indent: usize) {
        if object.fields.is_empty() {
            return self.map(object, indent);
        }
        if self.is_inline {
            return self.line(object);
        }
        let (start, limit) = (self.out.len(), self.limit);
        self.limit = limit.min(start + INLINE_BYTES);
        self.is_inline = true;
        self.line(object);
        let fits = !self.is_broken && self.out.len() <= self.limit;
        (self.limit, self.is_inline, self.is_broken) = (limit, false, false);
        if !fits {
            self.out.truncate(start);
            self.block(object, indent, Layout::Nested);
        }
    }

    /// Prints an object without fields as a map. TypeScript rejects types that refer to themselves inside `Record`.
    fn map(&mut self, object: &Object<'a>, indent: usize) {
        match &object.rest {
            Some(rest) if self.names.is_recursive(rest) => {
                self.push("{ [key: string]: ");
                self.value(rest, indent);
                self.push(" }");
            }
            rest => {
                self.push("Record<string, ");
                self.value(rest.as_deref().unwrap_or(&Type::UNKNOWN), indent);
                self.push(">");
            }
        }
        if object.omitted_fields > 0 {
            let fields = if object.omitted_fields == 1 { "field" } else { "fields" };
            self.push(&format!(" /* … {} {fields} */", object.omitted_fields));
        }
    }

    fn line(&mut self, object: &Object<'a>) {
        self.push("{ ");
        for (position, field) in object.fields.iter().enumerate() {
            self.is_broken |= !self.text(field).is_empty();
            if self.is_broken || self.out.len() > self.limit {
                return;
            }
            self.push(if position == 0 { "" } else { "; " });
            self.field(field, 0);
            let facts = note::facts(self.root, &field.schemas);
            if !facts.is_empty() {
                self.push(&format!(" /* {} */", in_comment(&facts)));
            }
        }
        self.is_broken |= object.rest.as_deref().is_some_and(|rest| *rest != Type::UNKNOWN);
        self.push(if object.rest.is_some() { "; [key: string]: unknown" } else { "" });
        if object.omitted_fields > 0 {
            self.push(&format!(" /* … {} more */", object.omitted_fields));
        }
        self.push(" }");
    }

    /// Prints an object with one field per line.
    pub(super) fn block(&mut self, object: &Object<'a>, indent: usize, layout: Layout) {
        let margin = " ".repeat(indent + 2);
        let mut shown = 0;
        self.push("{\n");
        for field in &object.fields {
            let start = self.out.len();
            self.push(&margin);
            self.field(field, indent + 2);
            self.push(";");
            let note = self.note(field, layout);
            if self.out.get(start..).is_some_and(|text| text.contains('\n')) && !note.is_empty() {
                let comment = self.comment(&note);
                self.out.insert_str(start, &format!("{margin}{comment}\n"));
            } else if !note.is_empty() {
                let comment = self.comment(&note);
                self.push(&format!(" {comment}"));
            }
            self.push("\n");
            if layout == Layout::Fitted && self.out.len() + OBJECT_END_BYTES > self.limit {
                self.out.truncate(start);
                break;
            }
            shown += 1;
            if self.out.len() > self.limit {
                return;
            }
        }
        self.others(object, indent + 2);
        let omitted = object.omitted_fields + object.fields.len() - shown;
        if omitted > 0 {
            self.push(&format!("{margin}/* … {omitted} more */\n"));
        }
        self.push(&" ".repeat(indent));
        self.push("}");
    }

    /// Prints the index signature for undeclared keys. It must accept every field's type, which only `unknown` always
    /// does.
    fn others(&mut self, object: &Object<'a>, indent: usize) {
        let Some(rest) = object.rest.as_deref().filter(|rest| **rest != Type::NEVER) else { return };
        self.push(&format!("{}[key: string]: unknown;", " ".repeat(indent)));
        if *rest != Type::UNKNOWN {
            let start = self.out.len();
            let was = std::mem::replace(&mut self.is_inline, true);
            self.value(rest, 0);
            let is_broken = std::mem::take(&mut self.is_broken);
            self.is_inline = was;
            let rest = self.out.split_off(start);
            let rest = if is_broken { "objects".to_owned() } else { cut(rest, INLINE_BYTES) };
            let comment = self.comment(&format!("others: {rest}"));
            self.push(&format!(" {comment}"));
        }
        self.push("\n");
    }

    fn field(&mut self, field: &Field<'a>, indent: usize) {
        self.push(&property(&field.name));
        self.push(if field.required { ": " } else { "?: " });
        self.value(&field.value, indent);
    }

    fn note(&self, field: &Field<'a>, layout: Layout) -> String {
        let text = match layout {
            Layout::Nested => self.text(field),
            Layout::Parameters | Layout::Fitted => String::new(),
        };
        let facts = note::facts(self.root, &field.schemas);
        match (text.is_empty(), facts.is_empty()) {
            (true, _) => facts,
            (false, true) => text,
            (false, false) => format!("{text} ({facts})"),
        }
    }

    fn text(&self, field: &Field<'a>) -> String {
        if self.note_bytes == 0 { String::new() } else { cut(note::text(self.root, &field.schemas), self.note_bytes) }
    }
}
