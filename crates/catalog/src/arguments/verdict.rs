//! What is known of a value and a schema.

/// Ordered so that of several demands the worst decides (`max`), and of several offers the best (`min`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    Fits,
    /// The schema is wrong here, asks what we do not check, or asks too much. Never a reason to refuse.
    Unknown,
    /// The input is too large for its check here, so it may break the schema. A reason to refuse: otherwise a cell
    /// could switch a check off by sending more.
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
