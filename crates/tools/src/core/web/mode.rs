//! The formats in which a page is returned.

/// The format of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Markdown,
    Text,
}

impl Mode {
    pub(super) fn parse(word: &str) -> Option<Self> {
        [Self::Markdown, Self::Text].into_iter().find(|mode| mode.as_str() == word)
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Markdown => "markdown",
            Self::Text => "text",
        }
    }
}
