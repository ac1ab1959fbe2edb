//! Words with a meaning for the scanner and the guard.

/// Returns whether a word may be an operator, a modifier or the start of a construct that continues.
///
/// An expression cannot be assumed to end after one. A plain name that is in the list, such as `from` or `type`, only
/// makes the guard stricter.
#[rustfmt::skip]
pub(super) fn is_keyword(word: &[u8]) -> bool {
    matches!(
        word,
        b"abstract" | b"accessor" | b"as" | b"assert" | b"asserts" | b"async" | b"await" | b"break" | b"case"
            | b"catch" | b"class" | b"const" | b"continue" | b"debugger" | b"declare" | b"default" | b"defer"
            | b"delete" | b"do" | b"else" | b"enum" | b"export" | b"extends" | b"finally" | b"for" | b"from"
            | b"function" | b"get" | b"global" | b"if" | b"implements" | b"import" | b"in" | b"infer"
            | b"instanceof" | b"interface" | b"is" | b"keyof" | b"let" | b"module" | b"namespace" | b"new" | b"of"
            | b"out" | b"override" | b"private" | b"protected" | b"public" | b"readonly" | b"return"
            | b"satisfies" | b"set" | b"source" | b"static" | b"switch" | b"throw" | b"try" | b"type" | b"typeof"
            | b"unique" | b"using" | b"var" | b"void" | b"while" | b"with" | b"yield"
    )
}

/// Returns whether a word at the start of a line may continue the statement of the line before.
///
/// `while` may too, after a `do`.
#[rustfmt::skip]
pub(super) fn continues(word: &[u8]) -> bool {
    matches!(
        word,
        b"as" | b"assert" | b"catch" | b"else" | b"extends" | b"finally" | b"from" | b"implements" | b"in"
            | b"instanceof" | b"is" | b"of" | b"satisfies" | b"with"
    )
}

/// Returns whether a word starts a statement that contains another one.
pub(super) fn holds_statement(word: &[u8]) -> bool {
    matches!(word, b"do" | b"else" | b"for" | b"if" | b"while" | b"with")
}

/// Returns whether a statement follows the parentheses after the word.
pub(super) fn takes_header(word: &[u8]) -> bool {
    matches!(word, b"for" | b"if" | b"while" | b"with")
}
