//! How serious the problems of a configuration are.

/// How serious a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    /// A part of the configuration cannot be used.
    Error,
    Warning,
    /// A setting has no effect, and nothing is lost by it.
    Note,
}

impl Severity {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}
