//! The reasons why a cell is refused, worded for the model that wrote it.

use std::fmt;

use contract::cell::Language;
use contract::error::ErrorCode;
use contract::frame::SourcePosition;

/// The message for a closing bracket that does not match.
pub(super) const STRAY_BRACKET: &str = "this bracket does not close an open one, remove it or add the opening one";

/// A refused cell. Its text is a lower-case fragment that says what to do next.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Rejection {
    #[error(
        "the cell is {bytes} bytes long and the limit is {limit}: split it into smaller cells, \
         and read large data with a tool instead of including it"
    )]
    TooLarge { bytes: usize, limit: usize },

    #[error(
        "the code is nested too deeply or is too costly to parse: split it into \
         smaller statements and functions, and put parentheses around a regular expression in it"
    )]
    TooDeep { place: SourcePosition },

    #[error(
        "a cell is JavaScript and this looks like a shell command: write JavaScript, and if this \
         run has a shell call it with \
         `await tools.call(\"openclaw:core:exec\", {{ command: \"…\" }})`"
    )]
    Shell,

    #[error(
        "a cell is JavaScript and this looks like Python: write JavaScript, with `await` before each call of a tool"
    )]
    Python,

    #[error("the cell is empty: write JavaScript statements and `return` a value")]
    Empty,

    #[error("{what} is not available: {}", what.advice())]
    ModuleAccess { what: ModuleForm, place: SourcePosition },

    #[error("syntax error: {message}")]
    Syntax { message: String, place: SourcePosition },

    #[error("TypeScript error: {message}")]
    TypeScript { message: String, place: SourcePosition },
}

impl Rejection {
    pub(crate) fn code(&self) -> ErrorCode {
        match self {
            Self::TooLarge { .. }
            | Self::TooDeep { .. }
            | Self::Shell
            | Self::Python
            | Self::Empty
            | Self::Syntax { .. } => ErrorCode::InvalidInput,
            Self::ModuleAccess { .. } => ErrorCode::ModuleAccessDenied,
            Self::TypeScript { .. } => ErrorCode::TypescriptTransformFailed,
        }
    }

    /// Returns the place in the model's source, if the rejection has one.
    pub(crate) fn place(&self) -> Option<SourcePosition> {
        match self {
            Self::TooLarge { .. } | Self::Shell | Self::Python | Self::Empty => None,
            Self::TooDeep { place }
            | Self::ModuleAccess { place, .. }
            | Self::Syntax { place, .. }
            | Self::TypeScript { place, .. } => Some(*place),
        }
    }

    /// Creates an error that the parser found, or would find.
    pub(super) fn syntax(language: Language, message: String, place: SourcePosition) -> Self {
        match language {
            Language::JavaScript => Self::Syntax { message, place },
            Language::TypeScript => Self::TypeScript { message, place },
        }
    }
}

/// A way to reach another module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ModuleForm {
    Import,
    ImportCall,
    ImportMeta,
    Require,
    Export,
}

impl ModuleForm {
    fn advice(self) -> &'static str {
        match self {
            Self::Export => "a cell has no exports, so `return` the value",
            Self::ImportMeta => "a cell is not a module, so remove it",
            Self::Import | Self::ImportCall | Self::Require => {
                "a cell cannot load modules, so use the globals, and tools for files, network and commands"
            }
        }
    }
}

impl fmt::Display for ModuleForm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Import => "`import`",
            Self::ImportCall => "`import()`",
            Self::ImportMeta => "`import.meta`",
            Self::Require => "`require()`",
            Self::Export => "`export`",
        })
    }
}
