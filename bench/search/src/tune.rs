//! Choosing the weights: one knob at a time, on four fifths of the requests, told on the last.

use std::path::Path;

use catalog::search::{Index, Meaning, Weights};

use crate::Result;
use crate::data::{FOLDS, SETS, Set, read};
use crate::measure::mean;
use crate::quality::answers;

type Knob = (&'static str, fn(&mut Weights) -> &mut f32);

const KNOBS: &[Knob] = &[
    ("meaning", |w| &mut w.meaning),
    ("name", |w| &mut w.field[0]),
    ("parameter names", |w| &mut w.field[2]),
    ("parameter descriptions", |w| &mut w.field[3]),
    ("owner", |w| &mut w.field[4]),
    ("owner description", |w| &mut w.field[5]),
    ("saturation", |w| &mut w.saturation),
    ("name coverage", |w| &mut w.name_coverage),
    ("sentences", |w| &mut w.sentences),
    ("repeats", |w| &mut w.most_repeats),
    ("halve", |w| &mut w.words_that_halve_meaning),
    ("near-enough", |w| &mut w.near_enough),
    ("name length", |w| &mut w.length[0]),
    ("description length", |w| &mut w.length[1]),
    ("parameter names length", |w| &mut w.length[2]),
    ("parameter descriptions length", |w| &mut w.length[3]),
    ("owner length", |w| &mut w.length[4]),
];

const STEPS: [f32; 4] = [0.6, 0.8, 1.25, 1.6];

/// Fewer points than this are chance.
const WORTH_IT: f64 = 0.05;

pub(crate) fn run(data: &Path) -> Result<bool> {
    let sets: Vec<Set> = SETS.iter().map(|name| read(data, name)).collect::<Result<_>>()?;
    let indexes: Vec<Index> =
        sets.iter().map(|set| Index::new(set.documents.clone(), Meaning::shipped(), Weights::SHIPPED)).collect();
    let mut held_out = Vec::new();
    for fold in 0..FOLDS {
        let best = climb(&sets, &indexes, |of| of != fold);
        let score = score(&sets, &indexes, &best, |of| of == fold);
        println!("fold {fold}: {score:.2} on requests it was not chosen on; {best:?}");
        held_out.push(score);
    }
    println!("five folds: {:.2}", mean(held_out));
    let best = climb(&sets, &indexes, |_| true);
    println!("all: {:.2} {best:?}", score(&sets, &indexes, &best, |_| true));
    Ok(true)
}

/// What some knobs at other values come to: `meaning=2 owner=3`, a line for each argument.
pub(crate) fn try_out(data: &Path, tries: &[String]) -> Result<bool> {
    let sets: Vec<Set> = SETS.iter().chain([&"mixed"]).map(|name| read(data, name)).collect::<Result<_>>()?;
    let indexes: Vec<Index> =
        sets.iter().map(|set| Index::new(set.documents.clone(), Meaning::shipped(), Weights::SHIPPED)).collect();
    for tried in tries {
        let mut weights = Weights::SHIPPED;
        for setting in tried.split(' ').filter(|setting| setting.contains('=')) {
            let (name, value) = setting.split_once('=').ok_or("write knob=value")?;
            let (_, knob) = KNOBS.iter().find(|(known, _)| known.replace(' ', "-") == name).ok_or_else(|| format!("no knob {name}"))?;
            *knob(&mut weights) = value.parse()?;
        }
        let scores: Vec<f64> = sets.iter().zip(&indexes).map(|(set, index)| score(std::slice::from_ref(set), std::slice::from_ref(index), &weights, |_| true)).collect();
        println!("{} | {:.2} | {tried}", scores.iter().map(|score| format!("{score:6.2}")).collect::<Vec<_>>().join(" "), mean(scores.iter().take(SETS.len()).copied()));
    }
    Ok(true)
}

fn climb(sets: &[Set], indexes: &[Index], taken: impl Fn(usize) -> bool + Copy + Sync) -> Weights {
    let mut best = Weights::SHIPPED;
    let mut top = score(sets, indexes, &best, taken);
    loop {
        let before = top;
        for (name, knob) in KNOBS {
            for step in STEPS {
                let mut tried = best.clone();
                let value = knob(&mut tried);
                *value = if name.ends_with("length") { (*value * step).min(1.0) } else { *value * step };
                let reached = score(sets, indexes, &tried, taken);
                if reached > top + WORTH_IT {
                    eprintln!("  {name} x{step}: {top:.2} -> {reached:.2}");
                    (best, top) = (tried, reached);
                }
            }
        }
        if top <= before {
            return best;
        }
    }
}

/// The mean over the sets.
fn score(sets: &[Set], indexes: &[Index], weights: &Weights, taken: impl Fn(usize) -> bool + Sync) -> f64 {
    let one = |(set, index): (&Set, &Index)| {
        let index = index.weighed(weights.clone());
        let chosen = |query: &&crate::data::Query| taken(query.fold);
        let queries: Vec<&crate::data::Query> = set.queries.iter().filter(chosen).collect();
        mean(queries.iter().map(|query| 100.0 * crate::measure::recall(&answers(&index, &query.text), &query.relevant)))
    };
    std::thread::scope(|scope| {
        let jobs: Vec<_> = sets.iter().zip(indexes).map(|pair| scope.spawn(move || one(pair))).collect();
        mean(jobs.into_iter().filter_map(|job| job.join().ok()))
    })
}
