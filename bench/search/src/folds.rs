//! Cross-validation of the weights: they are chosen on four fifths of the requests and scored on the last fifth, five
//! times.

use std::path::Path;

use catalog::search::{EmbeddingTable, Index, Weights};
use figures::{Bar, Claim, Facts};

use crate::Result;
use crate::data::{FOLDS, SETS, Set, read};
use crate::measure::{SHOWN, mean};
use crate::peers::incumbent::Incumbent;
use crate::quality::{Answers, answers};

/// The values of two weights to choose from, around the shipped ones.
const MEANING: [f32; 3] = [3.0, 4.0, 5.0];
const SATURATION: [f32; 3] = [0.7, 1.2, 2.0];

/// The smallest difference that passes: our mean recall over all folds, minus that of the incumbent, in percentage points.
pub(crate) const CLAIM: Claim = ("recall_folds_above_incumbent", Bar::AtLeast(4.0));

/// Prints the recall of each fold, and adds the difference to the incumbent to the facts.
pub(crate) fn run(data: &Path, facts: &mut Facts) -> Result<()> {
    let sets: Vec<Set> = SETS.iter().map(|name| read(data, name)).collect::<Result<_>>()?;
    let choices: Vec<Weights> = MEANING
        .into_iter()
        .flat_map(|meaning| SATURATION.map(|saturation| Weights { meaning, saturation, ..Weights::SHIPPED }))
        .collect();
    let mut ours: Vec<Vec<Answers>> = choices.iter().map(|_| Vec::new()).collect();
    let mut theirs = Vec::new();
    for set in &sets {
        let incumbent = Incumbent::new(&set.documents);
        theirs.push(Answers::of(set, |query| incumbent.rank(query, SHOWN)));
        let index = Index::new(set.documents.clone(), EmbeddingTable::shipped(), Weights::SHIPPED);
        for (weights, all) in choices.iter().zip(&mut ours) {
            let index = index.with_weights(weights.clone());
            all.push(Answers::of(set, |query| answers(&index, query)));
        }
    }
    let mut scores = Vec::new();
    for fold in 0..FOLDS {
        let best = ours
            .iter()
            .zip(&choices)
            .max_by(|(a, _), (b, _)| score(&sets, a, |of| of != fold).total_cmp(&score(&sets, b, |of| of != fold)));
        let Some((chosen, weights)) = best else { continue };
        let (us, them) = (score(&sets, chosen, |of| of == fold), score(&sets, &theirs, |of| of == fold));
        println!(
            "fold {fold}: ours {us:.1}, incumbent {them:.1} (meaning {}, saturation {})",
            weights.meaning, weights.saturation
        );
        scores.push((us, them));
    }
    let (us, them) = (mean(scores.iter().map(|fold| fold.0)), mean(scores.iter().map(|fold| fold.1)));
    println!("five folds: ours {us:.1}, incumbent {them:.1}");
    facts.add(CLAIM.0, us - them);
    Ok(())
}

/// Returns the mean over all sets of the recall of the requests in the selected folds.
fn score(sets: &[Set], answers: &[Answers], is_selected: impl Fn(usize) -> bool) -> f64 {
    mean(sets.iter().zip(answers).map(|(set, answers)| {
        let chosen = set.queries.iter().zip(&answers.recall).filter(|(query, _)| is_selected(query.fold));
        mean(chosen.map(|(_, recall)| *recall))
    }))
}
