//! Scores weights that are given as arguments, to compare them with the shipped ones.

use std::path::Path;

use catalog::search::{EmbeddingTable, Index, Weights};

use crate::Result;
use crate::data::{MIXED, SETS, Set, read};
use crate::measure::{mean, recall};
use crate::quality::answers;

/// The name of a weight, and its field.
type Knob = (&'static str, fn(&mut Weights) -> &mut f32);

/// The weights that can be changed. In arguments, a name has `-` instead of spaces.
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
    ("repeats", |w| &mut w.max_repeats),
    ("halve", |w| &mut w.meaning_halved_at_words),
    ("near-enough", |w| &mut w.min_similarity),
    ("name length", |w| &mut w.length[0]),
    ("description length", |w| &mut w.length[1]),
    ("parameter names length", |w| &mut w.length[2]),
    ("parameter descriptions length", |w| &mut w.length[3]),
    ("owner length", |w| &mut w.length[4]),
];

/// Prints the scores for each argument, a list of changed weights such as `meaning=2 owner=3`. Words without `=` are
/// ignored. Returns `true`, because no bar applies.
pub(crate) fn try_weights(data: &Path, tries: &[String]) -> Result<bool> {
    let sets: Vec<Set> = SETS.iter().chain([&MIXED]).map(|name| read(data, name)).collect::<Result<_>>()?;
    let indexes: Vec<Index> =
        sets.iter().map(|set| Index::new(set.documents.clone(), EmbeddingTable::shipped(), Weights::SHIPPED)).collect();
    for tried in tries {
        let mut weights = Weights::SHIPPED;
        for setting in tried.split(' ').filter(|setting| setting.contains('=')) {
            let (name, value) = setting.split_once('=').ok_or("write knob=value")?;
            let (_, knob) = KNOBS
                .iter()
                .find(|(known, _)| known.replace(' ', "-") == name)
                .ok_or_else(|| format!("unknown knob {name}"))?;
            *knob(&mut weights) = value.parse()?;
        }
        let scores: Vec<f64> = sets.iter().zip(&indexes).map(|(set, index)| score(set, index, &weights)).collect();
        println!(
            "{} | {:.2} | {tried}",
            scores.iter().map(|score| format!("{score:6.2}")).collect::<Vec<_>>().join(" "),
            mean(scores.iter().take(SETS.len()).copied())
        );
    }
    Ok(true)
}

/// Returns the mean recall of a set with these weights, in percent.
fn score(set: &Set, index: &Index, weights: &Weights) -> f64 {
    let index = index.with_weights(weights.clone());
    mean(set.queries.iter().map(|query| 100.0 * recall(&answers(&index, &query.text), &query.relevant)))
}
