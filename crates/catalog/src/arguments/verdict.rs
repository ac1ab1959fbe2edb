//! The result of checking a value against a schema.

/// Whether a value fits a schema. Ordered from best to worst: if all of several schemas must match, the worst verdict
/// counts (`max`); if one must match, the best (`min`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    Fits,
    /// The schema is wrong here, uses a keyword that is not checked, or needs too much work. Never a reason to reject.
    Unknown,
    /// The value is too large to check completely, so it may violate the schema. A reason to reject: otherwise a cell
    /// could avoid a check by sending a larger value.
    InputTooLarge,
    Fails,
}

impl Verdict {
    pub(super) fn and(self, other: Self) -> Self {
        self.max(other)
    }

    pub(super) fn not(self) -> Self {
        match self {
            Self::Fits => Self::Fails,
            Self::Unknown => Self::Unknown,
            Self::InputTooLarge => Self::InputTooLarge,
            Self::Fails => Self::Fits,
        }
    }
}

impl From<bool> for Verdict {
    fn from(fits: bool) -> Self {
        if fits { Self::Fits } else { Self::Fails }
    }
}
