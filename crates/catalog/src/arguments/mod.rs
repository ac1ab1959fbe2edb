//! Do a call's arguments fit its tool? Asked before dispatch, and again when a hook or a person changed them.
//!
//! The schema is a stranger's and the arguments are a model's, so the check is bounded whatever they are. What it cannot
//! decide because of the schema does not stop the call: an odd schema must not make its tool uncallable. What it cannot
//! decide because of the input's size, depth or length does: otherwise more input would switch a check off. That is also
//! why this is no library's validator: those have no budget, and refuse a schema whole for one bad part of it.

mod array;
mod budget;
mod choice;
mod defaults;
mod equal;
mod literal;
mod number;
mod object;
mod path;
mod pattern;
mod problem;
mod show;
mod string;
mod verdict;
mod walk;

use serde_json::Value;

use pattern::Known;
use walk::Walk;

pub use defaults::with_defaults;
pub use problem::BadArguments;

/// Problems named in one message.
pub const MAX_PROBLEMS: usize = 5;

/// The whole message.
pub const MAX_MESSAGE_BYTES: usize = 2_000;

/// Checks a call's input. Costs a few microseconds, and some eighty more for each pattern it meets; see [`Compiled`].
pub fn check(schema: &Value, input: &Value) -> Result<(), BadArguments> {
    Compiled::default().check(schema, input)
}

/// The patterns of one schema, compiled: to be kept beside a tool that is called often.
///
/// It only saves time. The answer is the one that [`check`] gives, with this schema or with another.
#[derive(Clone, Debug, Default)]
pub struct Compiled {
    patterns: Known,
}

impl Compiled {
    pub fn new(schema: &Value) -> Self {
        Self { patterns: Known::of(schema) }
    }

    pub fn check(&self, schema: &Value, input: &Value) -> Result<(), BadArguments> {
        let mut walk = Walk::new(schema, &self.patterns);
        let verdict = walk.root(input);
        walk.finish(verdict)
    }
}

#[cfg(test)]
mod tests;
