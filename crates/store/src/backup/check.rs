//! Checks that a backup is complete and valid before it is restored.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use super::format::{Column, Decoder, Kind, Record, Value};
use super::{BackupError, TABLES};
use crate::migrations;
use crate::rows::RunState;
use crate::seal::key_of;

/// The most keys that a backup's cells may be sealed with; more than a key file may hold.
const MAX_KEYS: usize = 256;

/// The highest fence in a backup. A restore increments fences, which must not overflow.
const MAX_FENCE: i64 = i64::MAX / 4;

/// The contents of a complete, valid backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    pub schema: i64,
    pub rows: BTreeMap<String, u64>,
    /// The text of the key file, if the backup includes one.
    pub keys: Option<String>,
    /// The numbers of the keys that suspended cells in the backup are sealed with.
    pub sealed_with: BTreeSet<u32>,
    /// The fingerprints of the store's keys, by number.
    pub marks: BTreeMap<u32, String>,
    pub(super) digest: [u8; 32],
}

/// Reads a whole backup and checks it.
pub fn check(from: &mut (dyn Read + Send)) -> Result<Checked, BackupError> {
    let mut decoder = Decoder::begin(from)?;
    if decoder.schema > migrations::VERSION {
        return Err(BackupError::TooNew { found: decoder.schema, known: migrations::VERSION });
    }
    let mut checked = Checked {
        schema: decoder.schema,
        rows: BTreeMap::new(),
        keys: None,
        sealed_with: BTreeSet::new(),
        marks: BTreeMap::new(),
        digest: [0; 32],
    };
    let mut table: Option<(String, Vec<Column>)> = None;
    loop {
        match decoder.next()? {
            Record::Table { name, columns } => {
                if !TABLES.contains(&name.as_str()) || checked.rows.insert(name.clone(), 0).is_some() {
                    return Err(BackupError::Damaged("a table is unknown or occurs twice"));
                }
                table = Some((name, columns));
            }
            Record::Row(values) => {
                let (name, columns) = table.as_ref().ok_or(BackupError::Damaged("a row precedes the first table"))?;
                fits(columns, &values)?;
                checked.note(name, columns, &values)?;
            }
            Record::Keys(text) if checked.keys.is_none() => checked.keys = Some(text),
            Record::Keys(_) => return Err(BackupError::Damaged("it contains two key files")),
            Record::End { digest } => {
                checked.digest = digest;
                return Ok(checked);
            }
        }
    }
}

impl Checked {
    fn note(&mut self, table: &str, columns: &[Column], values: &[Value]) -> Result<(), BackupError> {
        if let Some(count) = self.rows.get_mut(table) {
            *count += 1;
        }
        let field =
            |name: &str| columns.iter().zip(values).find(|(column, _)| column.name == name).map(|(_, value)| value);
        match table {
            "runs" => {
                let known = |state: &String| RunState::ALL.iter().any(|one| one.as_str() == state);
                match (field("state"), field("fence")) {
                    (Some(Value::Text(state)), Some(Value::Integer(fence)))
                        if known(state) && (0..MAX_FENCE).contains(fence) => {}
                    _ => return Err(BackupError::Damaged("a run has an invalid state or fence")),
                }
                if let Some(Value::Bytes(snapshot)) = field("snapshot") {
                    self.sealed_with.insert(key_of(snapshot).ok_or(BackupError::Damaged("a cell is not sealed"))?);
                }
            }
            "sealing_keys" => {
                if let (Some(Value::Integer(id)), Some(Value::Text(mark))) = (field("key_id"), field("mark")) {
                    let id = u32::try_from(*id).map_err(|_| BackupError::Damaged("a key number is invalid"))?;
                    self.marks.insert(id, mark.clone());
                }
            }
            _ => {}
        }
        if self.sealed_with.len() > MAX_KEYS || self.marks.len() > MAX_KEYS {
            return Err(BackupError::Damaged("it refers to too many keys"));
        }
        Ok(())
    }
}

/// Checks that a row has a value of the right kind for each column.
pub(super) fn fits(columns: &[Column], values: &[Value]) -> Result<(), BackupError> {
    let fits = |(column, value): (&Column, &Value)| {
        matches!(
            (column.kind, value),
            (_, Value::Null)
                | (Kind::Integer, Value::Integer(_))
                | (Kind::Text, Value::Text(_))
                | (Kind::Bytes, Value::Bytes(_))
        )
    };
    if columns.len() == values.len() && columns.iter().zip(values).all(fits) {
        Ok(())
    } else {
        Err(BackupError::Damaged("a row does not match its table"))
    }
}
