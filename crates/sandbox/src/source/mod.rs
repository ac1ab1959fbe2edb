//! Prepares the source text of a cell for QuickJS: hostile text in, one async arrow function out.
//!
//! `guard` bounds the text before a recursive parser sees it, `parse` reads it once, `modules`
//! refuses what would load code, and `erase` turns TypeScript into JavaScript without moving a
//! line. Nothing here panics, and no step is worse than linear in what `guard` lets through.

mod edits;
mod enums;
mod erase;
mod fence;
mod guard;
mod lines;
mod members;
mod modules;
mod parse;
mod properties;
mod rejection;
mod scan;
mod shell;
mod trivia;
mod words;

#[cfg(test)]
mod tests;

pub use edits::Shift;
pub use guard::{MAX_DEPTH, MAX_NESTING, MAX_WORK};
pub use lines::Place;
pub use rejection::{ModuleForm, Rejection};

use oxc_allocator::Allocator;

/// The longest cell, in bytes of UTF-8.
pub const MAX_SOURCE_BYTES: usize = 256 * 1024;

/// What the model says a cell is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    JavaScript,
    TypeScript,
}

/// A cell that is ready to be evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepared {
    /// What QuickJS evaluates: `(async()=>{`, a newline, the body, a newline, `})`. The body has
    /// the same lines as the model's source, so line `n` of the source is line `n + 1` here.
    pub script: String,
    /// Columns that a transformation moved; empty for JavaScript and for pure type erasure.
    pub shifts: Vec<Shift>,
}

impl Prepared {
    /// The model's place of a position that QuickJS reports for `script`.
    #[must_use]
    pub fn place(&self, script_line: u32, script_column: u32) -> Place {
        edits::original(&self.shifts, script_line.saturating_sub(1).max(1), script_column)
    }
}

/// Checks one cell and wraps it, with TypeScript erased.
///
/// The parser and the visitors recurse. Call it on a thread with at least 64 MiB of stack, or
/// 256 MiB where the build is not optimised at all.
///
/// # Errors
///
/// A [`Rejection`], whose text is meant for the model.
pub fn prepare(source: &str, language: Language) -> Result<Prepared, Rejection> {
    if source.len() > MAX_SOURCE_BYTES {
        return Err(Rejection::TooLarge { bytes: source.len(), limit: MAX_SOURCE_BYTES });
    }
    let source = fence::unwrap(source);
    if source.trim().is_empty() {
        return Err(Rejection::Empty);
    }
    let hint = guard::check(&source, language)? == guard::Reading::Clear;
    let allocator = Allocator::default();
    let wrapped = parse::Wrapped::new(&source);
    let program = match parse::parse(&allocator, &wrapped, language, hint) {
        Ok(program) => program,
        Err(Rejection::Syntax { .. } | Rejection::TypeScript { .. }) if shell::looks_like(&source) => {
            return Err(Rejection::Shell);
        }
        Err(rejection) => return Err(rejection),
    };
    match language {
        Language::JavaScript => Ok(Prepared { script: wrapped.into_text(), shifts: Vec::new() }),
        Language::TypeScript => {
            let (script, shifts) = erase::erase(&program, &wrapped)?;
            Ok(Prepared { script, shifts })
        }
    }
}
