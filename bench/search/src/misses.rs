//! Prints the requests whose answers lack relevant tools.

use std::path::Path;

use catalog::search::{EmbeddingTable, Index, Weights};

use crate::Result;
use crate::data::read;
use crate::measure::recall;
use crate::quality::answers;

pub(crate) fn run(data: &Path, name: &str) -> Result<bool> {
    let set = read(data, name)?;
    let index = Index::new(set.documents.clone(), EmbeddingTable::shipped(), Weights::SHIPPED);
    for query in &set.queries {
        let ranked = answers(&index, &query.text);
        if recall(&ranked, &query.relevant) == 1.0 {
            continue;
        }
        println!("? {}", query.text);
        let id =
            |position: &usize| set.documents.get(*position).map(|document| document.id.as_str()).unwrap_or_default();
        for wanted in query.relevant.iter().filter(|wanted| !ranked.contains(wanted)) {
            let all = index.rank(&query.text, usize::MAX, |_| true);
            let place = all.iter().position(|hit| hit.position == *wanted);
            println!("   wanted {} at {place:?}: {:?}", id(wanted), index.explain(&query.text, *wanted));
        }
        println!("   got {:?}", ranked.iter().map(id).collect::<Vec<_>>());
    }
    Ok(true)
}
