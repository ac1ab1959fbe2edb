//! A check of arguments, which walks the schema and the input side by side within a budget.

mod array;
mod choice;
mod equal;
mod literal;
mod number;
mod object;
mod string;

use std::mem;
use std::ptr;

use contract::limits::{MAX_ARGUMENT_CHECK_DEPTH, MAX_SCHEMA_DEPTH};
use serde_json::{Map, Value};

use super::budget::{Budget, Excess, count};
use super::path::{Segment, render};
use super::pattern::{KnownPatterns, MatchError, UsedPatterns};
use super::problem::{BadArguments, MismatchKind, Problem, ProblemKind};
use super::verdict::Verdict;
use super::{MAX_PROBLEMS, show};
use crate::reference;

type Keywords = Map<String, Value>;

/// The maximum number of letter pairs compared in one check, to find misspelt words.
const MAX_LETTER_PAIRS: usize = 1_000_000;

/// A problem costs more steps than a keyword, because it allocates text.
const PROBLEM_STEPS: usize = 10;

/// Keywords that are not checked. A value that depends on one of them is neither right nor wrong, so that two branches
/// of a `oneOf` that differ only in `format` do not both match.
const UNCHECKED: [&str; 14] = [
    "format",
    "contains",
    "minContains",
    "maxContains",
    "propertyNames",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedProperties",
    "unevaluatedItems",
    "$dynamicRef",
    "$recursiveRef",
    "extends",
    "disallow",
];

#[derive(Debug)]
pub(super) struct Walk<'a> {
    root: &'a Value,
    budget: Budget,
    /// The number of schemas around the current one: all of them, and those for the same value.
    depth: usize,
    depth_at_value: usize,
    path: Vec<Segment<'a>>,
    problems: Vec<Problem>,
    /// The first place where the input was too large, and why.
    excess: Option<(String, Excess)>,
    /// References being followed, each with the value it is applied to. A repeated pair is a cycle.
    following: Vec<(&'a Value, &'a Value)>,
    /// Up to draft 7, all keywords beside a `$ref` are ignored.
    ref_stands_alone: bool,
    patterns: UsedPatterns<'a>,
    /// The letter pairs that may still be compared.
    letter_pairs: usize,
}

impl<'a> Walk<'a> {
    /// Creates a walk for a small input. [`Self::root`] adapts it to an input of any size.
    pub(super) fn new(root: &'a Value, known: &'a KnownPatterns) -> Self {
        let draft = root.get("$schema").and_then(Value::as_str).unwrap_or_default();
        Self {
            root,
            budget: Budget::for_input(&Value::Null),
            depth: 0,
            depth_at_value: 0,
            path: Vec::new(),
            problems: Vec::new(),
            excess: None,
            following: Vec::new(),
            ref_stands_alone: draft.contains("/draft-0"),
            patterns: UsedPatterns::new(known, 1),
            letter_pairs: MAX_LETTER_PAIRS,
        }
    }

    pub(super) fn root(&mut self, input: &'a Value) -> Verdict {
        self.budget = Budget::for_input(input);
        self.patterns.expect(count(input));
        self.apply(self.root, input)
    }

    pub(super) fn finish(mut self, verdict: Verdict) -> Result<(), BadArguments> {
        if verdict == Verdict::InputTooLarge && self.problems.is_empty() {
            let (path, excess) = self.excess.take().unwrap_or_else(|| (render(&[]), Excess::Work));
            self.problems.push(Problem { path, depth: 0, what: ProblemKind::Other(excess.explain()) });
        }
        BadArguments::from(&self.problems).map_or(Ok(()), Err)
    }

    fn schema(&mut self, schema: &'a Value, input: &'a Value) -> Verdict {
        if self.depth_at_value >= MAX_SCHEMA_DEPTH {
            return Verdict::Unknown;
        }
        if self.depth >= MAX_ARGUMENT_CHECK_DEPTH {
            return self.too_much(Excess::Depth);
        }
        if let Err(verdict) = self.spend(1) {
            return verdict;
        }
        self.depth += 1;
        self.depth_at_value += 1;
        let verdict = match schema {
            Value::Bool(true) => Verdict::Fits,
            Value::Bool(false) => self.fail(|| "must be left out".to_owned()),
            Value::Object(keywords) => self.keywords(keywords, input),
            _ => Verdict::Unknown,
        };
        self.depth -= 1;
        self.depth_at_value -= 1;
        verdict
    }

    /// Checks a part of the value, at a name or an index.
    fn part(&mut self, segment: Segment<'a>, schema: &'a Value, input: &'a Value) -> Verdict {
        self.path.push(segment);
        let (steps, depth) = (self.budget.enter(), mem::take(&mut self.depth_at_value));
        let verdict = self.schema(schema, input);
        self.depth_at_value = depth;
        self.budget.leave(steps);
        self.path.pop();
        verdict
    }

    /// Checks a value as [`Self::schema`] does, but returns the problems instead of recording them.
    pub(super) fn trial(&mut self, schema: &'a Value, input: &'a Value) -> (Verdict, Vec<Problem>) {
        let kept = mem::take(&mut self.problems);
        let verdict = self.schema(schema, input);
        (verdict, mem::replace(&mut self.problems, kept))
    }

    fn keywords(&mut self, keywords: &'a Keywords, input: &'a Value) -> Verdict {
        if self.ref_stands_alone
            && let Some(reference) = keywords.get("$ref")
        {
            return self.reference(reference, input);
        }
        if input.is_null() && keywords.get("nullable") == Some(&Value::Bool(true)) {
            return Verdict::Fits;
        }
        let literal = literal::check(self, keywords, input);
        if literal == Verdict::Fails {
            // Further keywords are about another kind of value, and would only confuse.
            return literal;
        }
        // Check first what is cheap and must be enforced, so that no other part of the schema can exhaust the budget
        // before.
        let own = match input {
            Value::Object(fields) => object::check_names(self, keywords, fields),
            _ => Verdict::Fits,
        };
        literal.and(own).and(self.rest(keywords, input))
    }

    /// Loops over the keywords present: most schemas have two or three, and looking up every known keyword would take
    /// ten times as long.
    fn rest(&mut self, keywords: &'a Keywords, input: &'a Value) -> Verdict {
        let mut verdict = Verdict::Fits;
        for (keyword, argument) in keywords {
            if let Err(spent) = self.spend(1) {
                return verdict.and(spent);
            }
            verdict = verdict.and(match keyword.as_str() {
                "$ref" => self.reference(argument, input),
                "allOf" | "anyOf" | "oneOf" | "not" | "if" => choice::check(self, keyword, keywords, argument, input),
                word if UNCHECKED.contains(&word) => Verdict::Unknown,
                word => match input {
                    Value::String(text) => string::check(self, word, argument, text),
                    Value::Number(number) => number::check(self, word, keywords, argument, number),
                    Value::Array(items) => array::check(self, word, keywords, argument, items),
                    Value::Object(fields) => object::check(self, word, keywords, argument, fields),
                    Value::Null | Value::Bool(_) => Verdict::Fits,
                },
            });
        }
        verdict
    }

    fn reference(&mut self, reference: &'a Value, input: &'a Value) -> Verdict {
        // Resolving a reference reads its text.
        let length = reference.as_str().map_or(0, str::len);
        match (self.spend(length / 16), reference::follow(self.root, reference)) {
            (Err(verdict), _) => verdict,
            (Ok(()), Some(target)) => self.apply(target, input),
            (Ok(()), None) => Verdict::Unknown,
        }
    }

    fn apply(&mut self, target: &'a Value, input: &'a Value) -> Verdict {
        if self.following.iter().any(|(schema, value)| ptr::eq(*schema, target) && ptr::eq(*value, input)) {
            return Verdict::Unknown;
        }
        self.following.push((target, input));
        let verdict = self.schema(target, input);
        self.following.pop();
        verdict
    }

    /// Spends steps on the schema of the current value. The error is that value's verdict.
    fn spend(&mut self, steps: usize) -> Result<(), Verdict> {
        let spent = self.budget.spend_on_schema(steps);
        self.record_excess(spent)
    }

    /// Spends steps on parts of the input: items, properties, text.
    fn spend_on_input(&mut self, steps: usize) -> Result<(), Verdict> {
        let spent = self.budget.spend_on_input(steps);
        self.record_excess(spent)
    }

    fn record_excess(&mut self, spent: Result<(), Verdict>) -> Result<(), Verdict> {
        if spent == Err(Verdict::InputTooLarge) {
            self.too_much(Excess::Work);
        }
        spent
    }

    /// Records that the input is too large to check here.
    fn too_much(&mut self, excess: Excess) -> Verdict {
        if self.excess.is_none() {
            self.excess = Some((render(&self.path), excess));
        }
        Verdict::InputTooLarge
    }

    /// Returns the verdict of a text that was not matched against a pattern.
    fn unmatched(&mut self, reason: MatchError) -> Verdict {
        match reason {
            MatchError::BadPattern => Verdict::Unknown,
            MatchError::TooMuchText => self.too_much(Excess::Text),
            MatchError::TooManyPatterns => self.too_much(Excess::Patterns),
        }
    }

    /// The depth of the current value, counted in names and indices.
    fn level(&self) -> usize {
        self.path.len()
    }

    fn fail(&mut self, text: impl FnOnce() -> String) -> Verdict {
        self.fail_with(|| ProblemKind::Other(text()))
    }

    fn mismatch(&mut self, wanted: MismatchKind, expected: String, input: &Value, hint: String) -> Verdict {
        self.fail_with(|| ProblemKind::Mismatch { wanted, expected, was: show::value(input), hint })
    }

    fn fail_with(&mut self, what: impl FnOnce() -> ProblemKind) -> Verdict {
        if self.has_room() {
            let problem = Problem { path: render(&self.path), depth: self.path.len(), what: what() };
            self.keep(problem);
        }
        Verdict::Fails
    }

    /// Accepts one problem more than is shown, so that the message can say that there are more.
    fn has_room(&self) -> bool {
        self.problems.len() <= MAX_PROBLEMS
    }

    fn keep(&mut self, problem: Problem) {
        // An exhausted budget affects the next step, not this problem.
        self.budget.spend_on_schema(PROBLEM_STEPS).ok();
        if self.has_room() && !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    #[cfg(test)]
    pub(super) fn steps_left(&self) -> usize {
        self.budget.left()
    }
}
