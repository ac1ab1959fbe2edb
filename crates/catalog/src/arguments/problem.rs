//! Problems of an input, worded so that a model can fix them.

use std::fmt;

use super::path::{MAX_PATH_BYTES, ROOT};
use super::show::cut;
use super::{MAX_MESSAGE_BYTES, MAX_PROBLEMS};

/// The maximum number of expectations named for one place.
const MAX_JOINED: usize = 6;

const OR: &str = " or ";

const MORE: &str = "and more problems";

/// Keeps all lines together below [`MAX_MESSAGE_BYTES`].
const MAX_TEXT_BYTES: usize = (MAX_MESSAGE_BYTES - MORE.len()) / MAX_PROBLEMS - MAX_PATH_BYTES - ": \n".len();

/// Arguments that do not match their tool's schema. `Display` writes one line per problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadArguments {
    lines: Vec<String>,
    is_cut: bool,
}

impl BadArguments {
    /// `None` if there are no problems.
    pub(super) fn from(problems: &[Problem]) -> Option<Self> {
        let lines = problems.iter().take(MAX_PROBLEMS).map(Problem::line).collect();
        (!problems.is_empty()).then_some(Self { lines, is_cut: problems.len() > MAX_PROBLEMS })
    }

    /// Calls the checked value by this name, if it is not the input of a call. Paths then begin with the name.
    #[must_use]
    pub fn naming(mut self, value: &str) -> Self {
        for line in &mut self.lines {
            if let Some(rest) = line.strip_prefix(ROOT) {
                *line = format!("{value}{rest}");
            }
        }
        self
    }
}

impl std::error::Error for BadArguments {}

impl fmt::Display for BadArguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines.join("\n"))?;
        if self.is_cut { write!(f, "\n{MORE}") } else { Ok(()) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) path: String,
    /// The number of names and indices in the path.
    pub(super) depth: usize,
    pub(super) what: ProblemKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ProblemKind {
    /// A different value is expected. Stored in parts, so that a choice can join what its branches expect.
    Mismatch {
        wanted: MismatchKind,
        expected: String,
        was: String,
        hint: String,
    },
    Other(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MismatchKind {
    Type,
    Literal,
}

impl Problem {
    pub(super) fn wanted(&self) -> Option<MismatchKind> {
        match &self.what {
            ProblemKind::Mismatch { wanted, .. } => Some(*wanted),
            ProblemKind::Other(_) => None,
        }
    }

    /// Adds what another branch of a choice expected here to the `joined` expectations that are already listed. Returns
    /// the number added.
    pub(super) fn join(&mut self, other: &Self, joined: usize) -> usize {
        let (ProblemKind::Mismatch { expected: mine, .. }, ProblemKind::Mismatch { expected: other, .. }) =
            (&mut self.what, &other.what)
        else {
            return 0;
        };
        if joined > MAX_JOINED || mine.split(OR).any(|one| one == other) {
            return 0;
        }
        mine.push_str(OR);
        mine.push_str(if joined == MAX_JOINED { "another form" } else { other });
        1
    }

    fn line(&self) -> String {
        let text = match &self.what {
            ProblemKind::Mismatch { expected, was, hint, .. } => format!("expected {expected}, was {was}{hint}"),
            ProblemKind::Other(text) => text.clone(),
        };
        format!("{}: {}", self.path, cut(text, MAX_TEXT_BYTES))
    }
}
