//! Quality measures of an answer: how many of the relevant tools are among the first eight, and at which rank.

/// Number of tools in an answer.
pub(crate) const SHOWN: usize = 8;

/// Recall: the share of the relevant tools that are in the answer, of those that fit.
pub(crate) fn recall(ranked: &[usize], relevant: &[usize]) -> f64 {
    let found = ranked.iter().take(SHOWN).filter(|tool| relevant.contains(tool)).count();
    found as f64 / relevant.len().clamp(1, SHOWN) as f64
}

/// Normalised discounted cumulative gain: like recall, but lower ranks count less.
pub(crate) fn ndcg(ranked: &[usize], relevant: &[usize]) -> f64 {
    let gain = |place: usize| 1.0 / (place as f64 + 2.0).log2();
    let places = ranked.iter().take(SHOWN).enumerate().filter(|(_, tool)| relevant.contains(tool));
    let ideal: f64 = (0..relevant.len().min(SHOWN)).map(gain).sum();
    places.map(|(place, _)| gain(place)).sum::<f64>() / ideal.max(f64::MIN_POSITIVE)
}

pub(crate) fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (sum, count) = values.into_iter().fold((0.0, 0_usize), |(sum, count), value| (sum + value, count + 1));
    sum / count.max(1) as f64
}

/// The 95 % bootstrap interval of the mean difference between two rankings.
pub(crate) fn paired_interval(ours: &[f64], theirs: &[f64]) -> (f64, f64) {
    let differences: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours - theirs).collect();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draws: Vec<f64> = (0..1_000)
        .map(|_| {
            mean((0..differences.len()).map(|_| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let at = (random >> 33) as usize % differences.len();
                differences.get(at).copied().unwrap_or_default()
            }))
        })
        .collect();
    draws.sort_by(f64::total_cmp);
    let at = |place: usize| draws.get(place).copied().unwrap_or_default();
    (at(25), at(974))
}
