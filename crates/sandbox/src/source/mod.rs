//! Prepares the source text of a cell for QuickJS: hostile text in, one async arrow function out.
//!
//! `guard` bounds the text before a recursive parser sees it, `parse` reads it once, `modules`
//! refuses what would load code, and `erase` turns TypeScript into JavaScript without moving a
//! line. Nothing here panics, and no step is worse than linear in what `guard` lets through.

mod edits;
mod erase;
mod fence;
mod guard;
mod javascript;
mod lines;
mod modules;
mod parse;
mod places;
mod python;
mod rejection;
mod scan;
mod shell;
mod trivia;
mod typed;
mod words;

#[cfg(test)]
mod tests;

pub(crate) use edits::Shift;
pub(crate) use places::Places;
pub(crate) use rejection::Rejection;
pub use typed::{InsertedReturn, TypedCell};

use contract::cell::Language;
use contract::config::Languages;
#[cfg(test)]
use contract::frame::SourcePosition;
use contract::limits::MAX_SOURCE_BYTES;
use oxc_allocator::Allocator;
#[cfg(test)]
use rejection::ModuleForm;

/// The stack that parsing needs. The worst known text that the guard accepts takes 9 MiB in a release build, and less
/// than this in a build without optimisation.
pub(crate) const STACK_BYTES: usize = 64 << 20;

/// A cell that is ready to be evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PreparedSource {
    /// The script for QuickJS: `(async()=>{`, a newline, the body, a newline, `})`. The body has the same lines as the
    /// model's source, so line `n` of the source is line `n + 1` here.
    pub script: String,
    /// Columns that a transformation moved; empty for JavaScript and for pure type erasure.
    pub shifts: Vec<Shift>,
}

/// Checks one cell and wraps it, with TypeScript turned into JavaScript.
///
/// The parser and the visitors recurse: call this on a thread that has [`STACK_BYTES`].
///
/// # Errors
///
/// A [`Rejection`], whose text is meant for the model.
pub(crate) fn prepare(source: &str, language: Language) -> Result<PreparedSource, Rejection> {
    if source.len() > MAX_SOURCE_BYTES {
        return Err(Rejection::TooLarge { bytes: source.len(), limit: MAX_SOURCE_BYTES });
    }
    let source = fence::unwrap(source);
    if source.trim().is_empty() {
        return Err(Rejection::Empty);
    }
    read(&source, language).map_err(|rejection| match rejection {
        Rejection::Syntax { .. } | Rejection::TypeScript { .. } if shell::looks_like(&source) => Rejection::Shell,
        Rejection::Syntax { .. } | Rejection::TypeScript { .. } if python::looks_like(&source) => Rejection::Python,
        other => other,
    })
}

/// Prepares a cell like [`prepare`], but takes JavaScript that is not valid for TypeScript, if the run allows it: models
/// write types without saying so.
pub(crate) fn prepare_allowing(
    source: &str,
    language: Language,
    languages: Languages,
) -> Result<PreparedSource, Rejection> {
    let own = match prepare(source, language) {
        Err(own @ Rejection::Syntax { .. }) if languages.allow(Language::TypeScript) => own,
        prepared => return prepared,
    };
    prepare(source, Language::TypeScript).map_err(|typescript| {
        // The parser that got further knows the language better.
        if typescript.place() > own.place() { typescript } else { own }
    })
}

/// Prepares a source that is within the size limit.
fn read(source: &str, language: Language) -> Result<PreparedSource, Rejection> {
    guard::check(source, language)?;
    let allocator = Allocator::default();
    let wrapped = parse::WrappedCell::new(source);
    let program = parse::parse(&allocator, &wrapped, language)?;
    if shell::is_commands(&program, wrapped.text()) {
        return Err(Rejection::Shell);
    }
    let (script, shifts) = match language {
        Language::JavaScript => (wrapped.text().to_owned(), Vec::new()),
        Language::TypeScript => erase::erase(&program, &wrapped)?,
    };
    Ok(PreparedSource { script, shifts })
}
