//! The session values that a run has set and that are not in the store yet. Does no I/O.
//!
//! The run reads its own uncommitted values from here. Once they are committed the store has them, and it is read
//! again: another run may have written the key since.

use std::collections::BTreeMap;

use store::{Change, ValueWrite, VersionConflict};

/// A session value that a run has set and no commit has stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UncommittedValue {
    /// `None` if the run has deleted the key.
    pub value: Option<String>,
    pub version: String,
}

#[derive(Debug)]
struct PendingWrite {
    last: UncommittedValue,
    /// The position of the write in the next change; `None` while a commit is in progress.
    index: Option<usize>,
}

/// The uncommitted values of a run, and the results of its conditional writes.
#[derive(Debug, Default)]
pub(super) struct Values {
    pending: BTreeMap<String, PendingWrite>,
    /// Bytes of the pending keys, values and versions.
    bytes: usize,
    conflicts: Vec<VersionConflict>,
    /// The number of commits that have written values.
    commits: u64,
}

impl Values {
    pub(super) fn get(&self, key: &str) -> Option<&UncommittedValue> {
        self.pending.get(key).map(|pending| &pending.last)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &UncommittedValue)> {
        self.pending.iter().map(|(key, pending)| (key.as_str(), &pending.last))
    }

    /// Returns the bytes of the keys, values and versions that are not committed yet.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn commits(&self) -> u64 {
        self.commits
    }

    /// Adds an unconditional write to the change. It replaces an earlier write of the key in the same change, which no
    /// other run can have seen.
    pub(super) fn add(&mut self, change: &mut Change, write: ValueWrite) {
        let last = UncommittedValue { value: write.value.clone(), version: write.version.clone() };
        let key = write.key.clone();
        let before = self.pending.get(&key).and_then(|pending| pending.index);
        let index = match before.and_then(|index| Some((index, change.values.get_mut(index)?))) {
            Some((index, earlier)) => {
                *earlier = write;
                index
            }
            None => {
                change.values.push(write);
                change.values.len() - 1
            }
        };
        self.bytes += bytes_of(&key, &last);
        if let Some(replaced) = self.pending.insert(key.clone(), PendingWrite { last, index: Some(index) }) {
            self.bytes -= bytes_of(&key, &replaced.last);
        }
    }

    /// Marks all values as being written. They are still read from here until the commit has ended.
    pub(super) fn begin_commit(&mut self) {
        self.pending.values_mut().for_each(|pending| pending.index = None);
    }

    /// Forgets the values that a commit has written, unless the run has written them again since.
    pub(super) fn end_commit(&mut self, written: &Change, conflicts: Vec<VersionConflict>) {
        if written.values.is_empty() {
            return;
        }
        self.commits += 1;
        self.pending.retain(|_, pending| pending.index.is_some());
        self.bytes = self.pending.iter().map(|(key, pending)| bytes_of(key, &pending.last)).sum();
        self.conflicts.extend(conflicts);
    }

    /// Takes the conflict of the conditional write with this version; `None` if there is none or it was taken.
    pub(super) fn take_conflict(&mut self, write_version: &str) -> Option<VersionConflict> {
        let index = self.conflicts.iter().position(|conflict| conflict.version == write_version)?;
        Some(self.conflicts.swap_remove(index))
    }
}

fn bytes_of(key: &str, last: &UncommittedValue) -> usize {
    key.len() + last.version.len() + last.value.as_ref().map_or(0, String::len)
}

#[cfg(test)]
mod tests {
    use store::{Change, ValueWrite, VersionConflict};

    use super::Values;

    fn write(key: &str, value: Option<&str>, version: &str) -> ValueWrite {
        ValueWrite { key: key.to_owned(), value: value.map(str::to_owned), version: version.to_owned(), expected: None }
    }

    fn value_of<'a>(values: &'a Values, key: &str) -> Option<Option<&'a str>> {
        values.get(key).map(|uncommitted| uncommitted.value.as_deref())
    }

    #[test]
    fn a_run_reads_its_last_uncommitted_write_and_the_change_keeps_only_that() {
        let (mut values, mut change) = (Values::default(), Change::default());
        values.add(&mut change, write("a", Some("1"), "r:1"));
        values.add(&mut change, write("b", Some("2"), "r:2"));
        assert_eq!(values.bytes(), 2 * "a1r:1".len());
        values.add(&mut change, write("a", None, "r:3"));
        assert_eq!(values.bytes(), "ar:3b2r:2".len());
        assert_eq!(change.values, [write("a", None, "r:3"), write("b", Some("2"), "r:2")]);
        assert_eq!(
            (value_of(&values, "a"), value_of(&values, "b"), value_of(&values, "c")),
            (Some(None), Some(Some("2")), None)
        );
    }

    #[test]
    fn values_are_read_from_memory_until_their_commit_has_ended() {
        let (mut values, mut change) = (Values::default(), Change::default());
        values.add(&mut change, write("a", Some("1"), "r:1"));
        values.add(&mut change, write("b", Some("1"), "r:2"));
        let written = std::mem::take(&mut change);
        values.begin_commit();
        // Written again during the commit, and part of the next change.
        values.add(&mut change, write("b", Some("2"), "r:3"));
        assert_eq!(change.values, [write("b", Some("2"), "r:3")]);
        assert_eq!((value_of(&values, "a"), value_of(&values, "b")), (Some(Some("1")), Some(Some("2"))));
        values.end_commit(&written, Vec::new());
        assert_eq!((value_of(&values, "a"), value_of(&values, "b")), (None, Some(Some("2"))));
        assert_eq!((values.commits(), values.bytes()), (1, "b2r:3".len()));
        values.end_commit(&Change::default(), Vec::new());
        assert_eq!(values.commits(), 1, "a commit without values changes nothing");
    }

    #[test]
    fn a_conflict_is_reported_once_to_the_write_that_it_belongs_to() {
        let mut values = Values::default();
        let conflict = VersionConflict { key: "a".to_owned(), version: "r:1".to_owned(), current: None };
        let written = Change { values: vec![write("a", Some("1"), "r:1")], ..Change::default() };
        values.end_commit(&written, vec![conflict.clone()]);
        assert_eq!(values.take_conflict("r:2"), None);
        assert_eq!(values.take_conflict("r:1"), Some(conflict));
        assert_eq!(values.take_conflict("r:1"), None);
    }
}
