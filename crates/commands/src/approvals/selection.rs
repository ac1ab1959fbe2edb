//! Which pending approvals a command is about: ids or unique beginnings of ids, a run's, or all.

use mcp::server::plain;
use store::Approval;

use super::arguments::Selection;

/// How many ids an error lists.
const MAX_CANDIDATES: usize = 8;

/// The longest id that is repeated in a message.
const MAX_ID_CHARS: usize = 100;

/// The approvals that were selected, in the given order, and what was not found.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ApprovalSelection {
    pub(super) approvals: Vec<Approval>,
    /// A message for each id or run that has nothing pending.
    pub(super) missing: Vec<String>,
}

/// Several ids begin with the given characters, so nothing is selected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is the beginning of {count} ids; type more of it: {candidates}")]
pub(super) struct Ambiguous {
    given: String,
    count: usize,
    candidates: String,
}

/// Returns the selected ones of the pending approvals.
pub(super) fn select(open: &[Approval], selection: &Selection) -> Result<ApprovalSelection, Ambiguous> {
    let mut selected = ApprovalSelection::default();
    if selection.all {
        selected.approvals = open.to_vec();
    } else if let Some(given) = &selection.run {
        let found = by_prefix(given, open.iter().map(|approval| approval.run_id.as_str()))?;
        let of_run = |approval: &&Approval| Some(approval.run_id.as_str()) == found;
        selected.approvals = open.iter().filter(of_run).cloned().collect();
        if found.is_none() {
            let given = plain(given, MAX_ID_CHARS);
            selected.missing.push(format!("run `{given}` has no pending approvals; `cellmate approvals` lists them"));
        }
    } else {
        for given in &selection.ids {
            match find(open, given)? {
                Some(approval) if selected.approvals.contains(approval) => {}
                Some(approval) => selected.approvals.push(approval.clone()),
                None => selected.missing.push(not_pending(given)),
            }
        }
    }
    Ok(selected)
}

/// Returns the pending approval with this id, or the only one whose id begins like this.
pub(super) fn find<'a>(open: &'a [Approval], given: &str) -> Result<Option<&'a Approval>, Ambiguous> {
    let found = by_prefix(given, open.iter().map(|approval| approval.approval_id.as_str()))?;
    Ok(open.iter().find(|approval| Some(approval.approval_id.as_str()) == found))
}

pub(super) fn not_pending(given: &str) -> String {
    let given = plain(given, MAX_ID_CHARS);
    format!("no pending approval `{given}`; it was decided or expired, its run ended, or the id is wrong")
}

/// Returns the id that equals the given text, or the only one that begins with it.
pub(super) fn by_prefix<'a>(given: &str, ids: impl Iterator<Item = &'a str>) -> Result<Option<&'a str>, Ambiguous> {
    let mut matching: Vec<&str> = ids.filter(|id| !given.is_empty() && id.starts_with(given)).collect();
    matching.sort_unstable();
    matching.dedup();
    match matching.as_slice() {
        [] => Ok(None),
        [only] => Ok(Some(only)),
        several if several.contains(&given) => Ok(several.iter().copied().find(|id| *id == given)),
        several => {
            let shown: Vec<String> = several.iter().take(MAX_CANDIDATES).map(|id| plain(id, MAX_ID_CHARS)).collect();
            let more = several.len().saturating_sub(MAX_CANDIDATES);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let candidates = format!("{}{more}", shown.join(", "));
            Err(Ambiguous { given: plain(given, MAX_ID_CHARS), count: several.len(), candidates })
        }
    }
}

#[cfg(test)]
mod tests {
    use store::Approval;

    use super::{Selection, select};

    fn open() -> Vec<Approval> {
        let approval =
            |id: &str, run: &str| Approval { approval_id: id.into(), run_id: run.into(), ..Approval::default() };
        vec![
            approval("apr_1a", "cm_1"),
            approval("apr_1a2", "cm_1"),
            approval("apr_1b", "cm_2"),
            approval("apr_2", "cm_22"),
        ]
    }

    fn ids(selection: &Selection) -> Result<(Vec<String>, usize), String> {
        let selected = select(&open(), selection).map_err(|error| error.to_string())?;
        let ids = selected.approvals.iter().map(|approval| approval.approval_id.to_string()).collect();
        Ok((ids, selected.missing.len()))
    }

    fn named(given: &[&str]) -> Result<(Vec<String>, usize), String> {
        ids(&Selection { ids: given.iter().map(|id| (*id).to_owned()).collect(), ..Selection::default() })
    }

    #[test]
    fn an_id_or_its_unique_beginning_selects_one_approval() {
        assert_eq!(named(&["apr_2"]), Ok((vec!["apr_2".to_owned()], 0)));
        assert_eq!(named(&["apr_1b", "apr_1b"]), Ok((vec!["apr_1b".to_owned()], 0)), "the same one twice");
        assert_eq!(named(&["apr_1a"]), Ok((vec!["apr_1a".to_owned()], 0)), "a whole id is not a beginning");
        assert_eq!(named(&["apr_3", "", "apr_2"]), Ok((vec!["apr_2".to_owned()], 2)));
        let ambiguous = named(&["apr_2", "apr_1"]).unwrap_err();
        assert_eq!(ambiguous, "`apr_1` is the beginning of 3 ids; type more of it: apr_1a, apr_1a2, apr_1b");
    }

    #[test]
    fn a_run_or_everything_can_be_selected() {
        let run = |given: &str| ids(&Selection { run: Some(given.to_owned()), ..Selection::default() });
        assert_eq!(run("cm_1"), Ok((vec!["apr_1a".to_owned(), "apr_1a2".to_owned()], 0)));
        assert_eq!(run("cm_22"), Ok((vec!["apr_2".to_owned()], 0)));
        assert_eq!(run("cm_2"), Ok((vec!["apr_1b".to_owned()], 0)), "a whole id is not a beginning");
        assert_eq!(run("cm_9"), Ok((Vec::new(), 1)));
        assert!(run("cm").unwrap_err().contains("the beginning of 3 ids"));
        assert_eq!(ids(&Selection { all: true, ..Selection::default() }).unwrap().0.len(), 4);
    }

    #[test]
    fn the_candidates_in_an_error_are_bounded() {
        let many: Vec<Approval> = (0..100)
            .map(|number| Approval { approval_id: format!("apr_{number:03}").into(), ..Approval::default() })
            .collect();
        let given = Selection { ids: vec!["apr".to_owned()], ..Selection::default() };
        let error = select(&many, &given).unwrap_err().to_string();
        assert!(error.contains("apr_007 and 92 more") && !error.contains("apr_008"), "{error}");
    }
}
