//! Measures the share of relevant tools among the first eight, for each set.

use std::path::Path;

use catalog::search::{EmbeddingTable, Index, Weights};
use figures::{Bar, Claim, Facts};

use crate::Result;
use crate::data::{MIXED, SETS, Set, read};
use crate::measure::{SHOWN, mean, ndcg, paired_interval, recall};
use crate::peers::incumbent::Incumbent;
use crate::peers::plain::Plain;

/// The scores of every request of a set.
pub(crate) struct Answers {
    pub(crate) recall: Vec<f64>,
    pub(crate) ndcg: Vec<f64>,
}

impl Answers {
    pub(crate) fn of(set: &Set, rank: impl Fn(&str) -> Vec<usize>) -> Self {
        let ranked: Vec<Vec<usize>> = set.queries.iter().map(|query| rank(&query.text)).collect();
        let score = |measure: fn(&[usize], &[usize]) -> f64| {
            ranked.iter().zip(&set.queries).map(|(ranked, query)| 100.0 * measure(ranked, &query.relevant)).collect()
        };
        Self { recall: score(recall), ndcg: score(ndcg) }
    }
}

pub(crate) fn answers(index: &Index, query: &str) -> Vec<usize> {
    index.rank(query, SHOWN, |_| true).into_iter().map(|hit| hit.position).collect()
}

/// The bars of the scores. No set may be worse than the incumbent beyond its 95 % interval.
pub(crate) const CLAIMS: [Claim; 6] = [
    ("recall_mean_of_seven", Bar::AtLeast(81.0)),
    ("recall_above_incumbent", Bar::AtLeast(4.0)),
    ("recall_livemcp_agent", Bar::AtLeast(76.0)),
    ("recall_livemcp_task", Bar::AtLeast(63.0)),
    ("recall_mixed", Bar::AtLeast(72.0)),
    ("recall_worst_upper_difference", Bar::AtLeast(0.0)),
];

/// Measures the scores and prints them.
pub(crate) fn run(data: &Path, facts: &mut Facts) -> Result<()> {
    println!(
        "{:18}{:>8}{:>10}{:>10}{:>8}{:>8}   ours - incumbent, 95 %",
        "R@8, dev", "plain", "incumbent", "words", "ours", "nDCG"
    );
    let mut rows = Vec::new();
    for name in SETS.into_iter().chain([MIXED]) {
        let set = read(data, name)?;
        let (plain, incumbent) = (Plain::new(&set.documents), Incumbent::new(&set.documents));
        let words = Index::new(set.documents.clone(), None, Weights::SHIPPED);
        let ours = Index::new(set.documents.clone(), EmbeddingTable::shipped(), Weights::SHIPPED);
        let plain = Answers::of(&set, |query| plain.rank(query, SHOWN));
        let incumbent = Answers::of(&set, |query| incumbent.rank(query, SHOWN));
        let words = Answers::of(&set, |query| answers(&words, query));
        let ours = Answers::of(&set, |query| answers(&ours, query));
        let (low, high) = paired_interval(&ours.recall, &incumbent.recall);
        let average = |answers: &Answers| mean(answers.recall.iter().copied());
        println!(
            "{name:18}{:8.1}{:10.1}{:10.1}{:8.1}{:8.1}   [{low:.1}, {high:.1}]",
            average(&plain),
            average(&incumbent),
            average(&words),
            average(&ours),
            mean(ours.ndcg.iter().copied())
        );
        rows.push((name, average(&incumbent), average(&ours), high));
    }
    let seven = |of: fn(&(&str, f64, f64, f64)) -> f64| mean(rows.iter().filter(|row| row.0 != MIXED).map(of));
    let (incumbent, ours) = (seven(|row| row.1), seven(|row| row.2));
    println!("{:18}{:8}{incumbent:10.1}{:10}{ours:8.1}\n", "mean of seven", "", "");
    let of = |name: &str| rows.iter().find(|row| row.0 == name).map_or(0.0, |row| row.2);
    facts.add("recall_mean_of_seven", ours);
    facts.add("recall_above_incumbent", ours - incumbent);
    facts.add("recall_livemcp_agent", of("livemcp_agent"));
    facts.add("recall_livemcp_task", of("livemcp_task"));
    facts.add("recall_mixed", of(MIXED));
    facts.add("recall_worst_upper_difference", rows.iter().map(|row| row.3).fold(f64::INFINITY, f64::min));
    Ok(())
}
