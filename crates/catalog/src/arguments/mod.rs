//! Checks a call's arguments against its tool's schema, before dispatch and again after a hook or a person changed
//! them.
//!
//! The schema comes from an untrusted server and the arguments from a model, so the check is bounded for any of them.
//! If the schema is the reason that the check cannot decide, the call proceeds: a faulty schema must not make its tool
//! uncallable. If the size, depth or length of the input is the reason, the call is rejected: otherwise a cell could
//! switch a check off by sending more. Validator libraries do not fit: they have no budget, and reject a whole schema
//! for one bad part.

mod budget;
mod defaults;
mod path;
mod pattern;
mod problem;
mod show;
mod verdict;
mod walk;

use serde_json::Value;

use pattern::KnownPatterns;
use walk::Walk;

pub use defaults::with_defaults;
pub use problem::BadArguments;

/// The maximum number of problems in one message.
pub const MAX_PROBLEMS: usize = 5;

/// The maximum length of the whole message.
pub const MAX_MESSAGE_BYTES: usize = 2_000;

/// Checks a call's input. Takes a few microseconds, and about eighty more for each pattern it uses; see [`CompiledSchema`].
pub fn check(schema: &Value, input: &Value) -> Result<(), BadArguments> {
    CompiledSchema::default().check(schema, input)
}

/// The compiled patterns of one schema, to be kept with a tool that is called often.
///
/// This only saves time: the result is the same as that of [`check`], for this schema and for any other.
#[derive(Clone, Debug, Default)]
pub struct CompiledSchema {
    patterns: KnownPatterns,
}

impl CompiledSchema {
    pub fn new(schema: &Value) -> Self {
        Self { patterns: KnownPatterns::of(schema) }
    }

    pub fn check(&self, schema: &Value, input: &Value) -> Result<(), BadArguments> {
        let mut walk = Walk::new(schema, &self.patterns);
        let verdict = walk.root(input);
        walk.finish(verdict)
    }
}

#[cfg(test)]
mod tests;
