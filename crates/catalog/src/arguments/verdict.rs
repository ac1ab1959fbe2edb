//! The result of checking a value against a schema.

/// Ordered so that the worst decides if all must match (`max`), and the best if one must match (`min`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    Fits,
    /// The schema is wrong here, uses a keyword that is not checked, or needs too much work. Never a reason to reject.
    Unknown,
    /// The input is too large to check here, so it may violate the schema. A reason to reject: otherwise a cell could
    /// switch a check off by sending more.
    TooMuch,
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
            Self::TooMuch => Self::TooMuch,
            Self::Fails => Self::Fits,
        }
    }
}

impl From<bool> for Verdict {
    fn from(fits: bool) -> Self {
        if fits { Self::Fits } else { Self::Fails }
    }
}
