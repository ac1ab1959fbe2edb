//! The error codes of failed cells. The set is closed: clients can rely on there being no others.

use serde::Serialize;

/// Why a cell failed. A cell that fails because of an exception that it does not catch has no code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// No worker can run the cell now.
    RuntimeUnavailable,
    /// The configuration is invalid.
    InvalidConfig,
    /// The input of `exec` or `wait` is invalid, or names no run.
    InvalidInput,
    /// The language is unknown, or not allowed.
    UnsupportedLanguage,
    /// The source cannot be parsed, or its types cannot be erased.
    TypescriptTransformFailed,
    /// The source imports a module.
    ModuleAccessDenied,
    /// The cell ran for too long.
    Timeout,
    /// The cell used too much memory.
    MemoryLimitExceeded,
    /// The cell output too much.
    OutputLimitExceeded,
    /// The suspended cell is too large to be stored.
    SnapshotLimitExceeded,
    /// The cell stayed suspended for longer than `snapshotTtlSeconds`, so it has expired and cannot be resumed.
    SnapshotExpired,
    /// The suspended cell cannot be restored.
    SnapshotRestoreFailed,
    /// The cell has too many calls in progress.
    TooManyPendingToolCalls,
    /// A call of a tool failed.
    NestedToolFailed,
    /// The run was cancelled.
    Aborted,
    /// Cellmate failed. The log has the reason.
    InternalError,
}

impl ErrorCode {
    /// All codes.
    pub const ALL: [Self; 16] = [
        Self::RuntimeUnavailable,
        Self::InvalidConfig,
        Self::InvalidInput,
        Self::UnsupportedLanguage,
        Self::TypescriptTransformFailed,
        Self::ModuleAccessDenied,
        Self::Timeout,
        Self::MemoryLimitExceeded,
        Self::OutputLimitExceeded,
        Self::SnapshotLimitExceeded,
        Self::SnapshotExpired,
        Self::SnapshotRestoreFailed,
        Self::TooManyPendingToolCalls,
        Self::NestedToolFailed,
        Self::Aborted,
        Self::InternalError,
    ];

    /// Returns the code as results contain it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RuntimeUnavailable => "runtime_unavailable",
            Self::InvalidConfig => "invalid_config",
            Self::InvalidInput => "invalid_input",
            Self::UnsupportedLanguage => "unsupported_language",
            Self::TypescriptTransformFailed => "typescript_transform_failed",
            Self::ModuleAccessDenied => "module_access_denied",
            Self::Timeout => "timeout",
            Self::MemoryLimitExceeded => "memory_limit_exceeded",
            Self::OutputLimitExceeded => "output_limit_exceeded",
            Self::SnapshotLimitExceeded => "snapshot_limit_exceeded",
            Self::SnapshotExpired => "snapshot_expired",
            Self::SnapshotRestoreFailed => "snapshot_restore_failed",
            Self::TooManyPendingToolCalls => "too_many_pending_tool_calls",
            Self::NestedToolFailed => "nested_tool_failed",
            Self::Aborted => "aborted",
            Self::InternalError => "internal_error",
        }
    }

    /// Parses a code.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.as_str() == text)
    }
}

#[cfg(test)]
mod tests {
    use super::ErrorCode;

    #[test]
    fn as_str_serde_and_parse_agree_on_every_code() {
        for code in ErrorCode::ALL {
            let by_serde = serde_json::to_value(code).unwrap();
            assert_eq!(by_serde, code.as_str());
            assert_eq!(ErrorCode::parse(code.as_str()), Some(code));
        }
        assert_eq!(ErrorCode::parse("no_such_code"), None);
    }
}
