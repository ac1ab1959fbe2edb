//! Keywords that combine schemas.

use serde_json::Value;

use super::super::problem::{MismatchKind, Problem};
use super::super::verdict::Verdict;
use super::{Keywords, Walk};

pub(super) fn check<'a>(
    walk: &mut Walk<'a>,
    keyword: &str,
    keywords: &'a Keywords,
    argument: &'a Value,
    input: &'a Value,
) -> Verdict {
    match (keyword, argument) {
        ("allOf", Value::Array(schemas)) => {
            schemas.iter().map(|schema| walk.schema(schema, input)).max().unwrap_or(Verdict::Unknown)
        }
        ("anyOf", Value::Array(branches)) => any_of(walk, branches, input),
        ("oneOf", Value::Array(branches)) => one_branch(walk, branches, input),
        ("not", _) => match walk.trial(argument, input).0.not() {
            Verdict::Fails => walk.fail(|| "is a value that the schema forbids".to_owned()),
            verdict => verdict,
        },
        ("if", _) => match walk.trial(argument, input).0 {
            Verdict::Fits => check_branch(walk, keywords.get("then"), input),
            Verdict::Fails => check_branch(walk, keywords.get("else"), input),
            open @ (Verdict::Unknown | Verdict::InputTooLarge) => open,
        },
        _ => Verdict::Unknown,
    }
}

fn check_branch<'a>(walk: &mut Walk<'a>, schema: Option<&'a Value>, input: &'a Value) -> Verdict {
    schema.map_or(Verdict::Fits, |schema| walk.schema(schema, input))
}

fn any_of<'a>(walk: &mut Walk<'a>, branches: &'a [Value], input: &'a Value) -> Verdict {
    let mut failed = FailedBranches::new(walk.level());
    for branch in branches {
        match walk.trial(branch, input) {
            (Verdict::Fits, _) => return Verdict::Fits,
            (open @ (Verdict::Unknown | Verdict::InputTooLarge), _) => failed.open = failed.open.max(Some(open)),
            (Verdict::Fails, problems) => failed.add(problems),
        }
    }
    none_fits(walk, failed)
}

fn one_branch<'a>(walk: &mut Walk<'a>, branches: &'a [Value], input: &'a Value) -> Verdict {
    let mut failed = FailedBranches::new(walk.level());
    let mut fitting = 0_usize;
    for branch in branches {
        match walk.trial(branch, input) {
            (Verdict::Fits, _) => fitting += 1,
            (open @ (Verdict::Unknown | Verdict::InputTooLarge), _) => failed.open = failed.open.max(Some(open)),
            (Verdict::Fails, problems) => failed.add(problems),
        }
    }
    match fitting {
        0 => none_fits(walk, failed),
        1 => failed.open.unwrap_or(Verdict::Fits),
        // An object that matches several branches has a property too many, which the model can fix. A scalar cannot
        // avoid overlapping branches such as integer and number: there the author wrote `oneOf` and meant `anyOf`.
        _ if input.is_object() => {
            walk.fail(|| format!("matches {fitting} of the {} allowed forms, must match exactly one", branches.len()))
        }
        _ => Verdict::Unknown,
    }
}

fn none_fits(walk: &mut Walk<'_>, failed: FailedBranches) -> Verdict {
    if let Some(open) = failed.open {
        return open;
    }
    let Some(nearest) = failed.nearest else { return Verdict::Unknown };
    nearest.problems.into_iter().for_each(|problem| walk.keep(problem));
    Verdict::Fails
}

/// How far the input is from matching a branch, nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Distance {
    /// The input belongs to this branch, but a part of it is wrong.
    Inside,
    /// A property with a fixed value has a different value, so the input belongs to another branch.
    Tag,
    /// The input is a different kind of value.
    Kind,
}

/// The branches that do not match; only the problems of the nearest one are reported.
struct FailedBranches {
    level: usize,
    /// The worst verdict of branches that may still match; `None` if there are no such branches.
    open: Option<Verdict>,
    nearest: Option<NearestBranch>,
}

struct NearestBranch {
    distance: Distance,
    problems: Vec<Problem>,
    /// The number of branches whose expectations the problem names.
    joined: usize,
}

impl FailedBranches {
    fn new(level: usize) -> Self {
        Self { level, open: None, nearest: None }
    }

    fn add(&mut self, problems: Vec<Problem>) {
        let (distance, telling) = self.distance(&problems);
        let problems = telling.map_or(problems, |problem| vec![problem]);
        match &mut self.nearest {
            Some(nearest) if nearest.distance < distance => {}
            Some(nearest) if nearest.distance == distance => nearest.merge(problems),
            _ => self.nearest = Some(NearestBranch { distance, problems, joined: 1 }),
        }
    }

    /// Returns the distance of a branch, and the one problem that explains it, if there is one.
    fn distance(&self, problems: &[Problem]) -> (Distance, Option<Problem>) {
        let here = |problem: &&Problem| problem.depth == self.level && problem.wanted().is_some();
        let tag =
            |problem: &&Problem| problem.depth == self.level + 1 && problem.wanted() == Some(MismatchKind::Literal);
        if let Some(problem) = problems.iter().find(here) {
            return (Distance::Kind, Some(problem.clone()));
        }
        match problems.iter().find(tag) {
            Some(problem) => (Distance::Tag, Some(problem.clone())),
            None => (Distance::Inside, None),
        }
    }
}

impl NearestBranch {
    /// Merges a branch at the same distance: joins its expected value to the problem, or keeps the better of the two.
    fn merge(&mut self, problems: Vec<Problem>) {
        if self.distance == Distance::Inside {
            if problems.len() < self.problems.len() {
                self.problems = problems;
            }
            return;
        }
        if let ([mine], [other]) = (self.problems.as_mut_slice(), problems.as_slice())
            && mine.path == other.path
        {
            self.joined += mine.join(other, self.joined);
        }
    }
}
