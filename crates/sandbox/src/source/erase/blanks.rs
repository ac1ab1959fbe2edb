//! Blanks erased text, and inserts what keeps the meaning of the lines around it.

use oxc_span::Span;

use super::Eraser;

impl Eraser<'_> {
    pub(in crate::source) fn blank(&mut self, start: u32, end: u32) {
        if start < end {
            self.edits.blank(start, end);
            self.erased = Span::new(start, end);
        }
    }

    /// Erases a whole statement, and keeps the text around it apart.
    pub(in crate::source) fn blank_statement(&mut self, span: Span) {
        self.blank(span.start, span.end);
        self.edits.put(span.start, b';');
    }

    /// Erases the byte if it is the next token at or after `offset`.
    pub(in crate::source) fn blank_next(&mut self, offset: u32, byte: u8) {
        if let Some(found) = self.source.find(offset, byte) {
            self.blank(found, found + 1);
        }
    }

    /// Ends a statement or a class member whose last part was erased, unless a semicolon does.
    ///
    /// Otherwise `a as T` and `(b)` on the next line would become a call.
    pub(in crate::source) fn close(&mut self, span: Span) {
        if self.erased.end == span.end && self.erased.start > span.start {
            self.edits.put(self.erased.start, b';');
        }
    }

    /// Erases the TypeScript modifiers from `start` on, up to a name or a bracket.
    ///
    /// A line whose first remaining token would continue the line before gets a semicolon.
    pub(in crate::source) fn blank_modifiers(&mut self, start: u32, end: u32) {
        let mut offset = self.source.skip(start);
        let first = offset;
        let mut starts_erased = false;
        while offset < end {
            let (word, word_end) = self.source.word(offset);
            match word {
                "public" | "private" | "protected" | "readonly" | "override" => {
                    starts_erased |= offset == first;
                    self.blank(offset, word_end);
                }
                "static" | "accessor" | "async" | "get" | "set" => {}
                _ => break,
            }
            offset = self.source.skip(word_end);
            if starts_erased && self.blanks_before(offset, first) && self.is_hazard(offset) {
                self.edits.put(first, b';');
            }
        }
    }

    /// Returns whether everything from `first` to `offset` is erased or trivia.
    fn blanks_before(&self, offset: u32, first: u32) -> bool {
        self.erased.start >= first && self.source.skip(self.erased.end) == offset
    }

    /// Returns whether the text at `offset` would continue the line before.
    fn is_hazard(&self, offset: u32) -> bool {
        matches!(self.source.byte(offset), Some(b'[' | b'*' | b'('))
            || matches!(self.source.word(offset).0, "in" | "instanceof")
    }

    /// Erases the return type of an arrow function. No line may end before its `=>`.
    pub(super) fn blank_return_type(&mut self, parameters: Span, return_type: Span) {
        let parenthesis = parameters.end.saturating_sub(1);
        let has_newline = self.source.has_newline(parenthesis, return_type.end);
        self.blank(return_type.start, return_type.end);
        if has_newline && self.source.byte(parenthesis) == Some(b')') {
            self.edits.put(parenthesis, b' ');
            self.edits.put(return_type.end.saturating_sub(1), b')');
        }
    }

    /// Erases the type parameters of an arrow function. `return` and `async` before them must stay on the line of its
    /// parenthesis.
    pub(super) fn blank_type_parameters(&mut self, type_parameters: Span, parameters: Span) {
        let has_newline = self.source.has_newline(type_parameters.start, parameters.start);
        self.blank(type_parameters.start, type_parameters.end);
        if has_newline && self.source.byte(parameters.start) == Some(b'(') {
            self.edits.put(type_parameters.start, b'(');
            self.edits.put(parameters.start, b' ');
        }
    }

    /// Erases `<T>` before an expression, which must not become a block or move to its own line.
    pub(super) fn blank_assertion(&mut self, span: Span, expression: Span) {
        let has_newline = self.source.has_newline(span.start, expression.start);
        let word = self.source.word(expression.start).0;
        let starts_statement =
            self.source.byte(expression.start) == Some(b'{') || matches!(word, "function" | "class" | "async" | "let");
        self.blank(span.start, expression.start);
        if has_newline || starts_statement {
            self.edits.put(span.start, b'(');
            self.insert(expression.end, ")");
        }
    }
}
