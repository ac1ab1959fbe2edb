//! Reads the cell that `cellmate exec` runs: from the command line, a file or standard input.

use std::fs::File;
use std::io::{ErrorKind, IsTerminal, Read};
use std::path::Path;

use codemode::ExecInput;
use contract::cell::Language;
use contract::limits::MAX_BRIDGE_VALUE_BYTES;

use crate::arguments::ExecArguments;

#[derive(Debug, thiserror::Error)]
pub(super) enum SourceError {
    #[error("there is no file `{0}`; to run code from the command line, pass it with `-e`")]
    NoFile(String),
    #[error("cannot read `{path}`: {source}")]
    Read { path: String, source: std::io::Error },
    #[error("`{path}` has more than {most} bytes; shorten it")]
    TooLong { path: String, most: usize },
}

/// The longest source that is read. The sandbox's own limit is far lower, and its error states it.
const MAX_READ_BYTES: usize = MAX_BRIDGE_VALUE_BYTES;

pub(super) fn cell(arguments: &ExecArguments) -> Result<ExecInput, SourceError> {
    Ok(ExecInput { source: source(arguments)?, language: language(arguments) })
}

fn source(arguments: &ExecArguments) -> Result<String, SourceError> {
    if let Some(code) = &arguments.code {
        return Ok(code.clone());
    }
    match arguments.file.as_deref().filter(|path| *path != Path::new("-")) {
        Some(path) => read(path, MAX_READ_BYTES).map_err(|error| match error {
            SourceError::Read { path, source } if source.kind() == ErrorKind::NotFound => SourceError::NoFile(path),
            error => error,
        }),
        None => {
            if std::io::stdin().is_terminal() {
                eprintln!("cellmate: reading the cell from standard input; end it with Ctrl-D");
            }
            bounded(std::io::stdin().lock(), "standard input".to_owned(), MAX_READ_BYTES)
        }
    }
}

fn language(arguments: &ExecArguments) -> Language {
    let by_name = arguments.file.as_deref().and_then(Path::extension).is_some_and(|extension| extension == "ts");
    match arguments.language {
        Some(given) => given.language(),
        None if by_name => Language::TypeScript,
        None => Language::JavaScript,
    }
}

pub(super) fn read(path: &Path, most: usize) -> Result<String, SourceError> {
    let name = path.display().to_string();
    match File::open(path) {
        Ok(file) => bounded(file, name, most),
        Err(source) => Err(SourceError::Read { path: name, source }),
    }
}

fn bounded(from: impl Read, name: String, most: usize) -> Result<String, SourceError> {
    let mut text = String::new();
    match from.take(most as u64 + 1).read_to_string(&mut text) {
        Ok(_) if text.len() > most => Err(SourceError::TooLong { path: name, most }),
        Ok(_) => Ok(text),
        Err(source) => Err(SourceError::Read { path: name, source }),
    }
}
