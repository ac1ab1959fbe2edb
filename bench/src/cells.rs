//! The cells that Cellmate and the peer run. Each source text is unique, so that nothing of an earlier one can be reused.

use serde_json::{Map, Value};

use crate::Result;

/// The cells by name. Their source contains `__K__` where the number of a text is inserted.
static TEXTS: &str = include_str!("../peer/cells.json");

/// The source of a cell, and the JSON of the value that it must return.
#[derive(Clone, Debug)]
pub(crate) struct CellText {
    pub(crate) source: String,
    pub(crate) expect: String,
}

/// The cells of `cells.json`, and the number of the next text.
#[derive(Debug)]
pub(crate) struct Cells {
    texts: Map<String, Value>,
    next: u64,
}

impl Cells {
    pub(crate) fn read() -> Result<Self> {
        Ok(Self { texts: serde_json::from_str(TEXTS)?, next: 1 })
    }

    /// Reserves `count` numbers that no other text will use, and returns the first.
    pub(crate) fn reserve_numbers(&mut self, count: usize) -> u64 {
        let first = self.next;
        self.next += count as u64;
        first
    }

    /// Returns a new text of the cell with this name.
    pub(crate) fn text(&mut self, name: &str) -> Result<CellText> {
        let number = self.reserve_numbers(1);
        let cell = self.texts.get(name).ok_or_else(|| format!("no cell `{name}` in cells.json"))?;
        let source = cell.get("source").and_then(Value::as_str).ok_or("a cell without source")?;
        let expect = match (cell.get("expect"), cell.get("plus_k")) {
            (Some(expect), Some(_)) => {
                (expect.as_u64().ok_or("`plus_k` requires a number in `expect`")? + number).to_string()
            }
            (Some(expect), None) => expect.to_string(),
            (None, _) => return Err("a cell without `expect`".into()),
        };
        Ok(CellText { source: source.replace("__K__", &number.to_string()), expect })
    }

    /// Returns `count` new texts of the cell with this name.
    pub(crate) fn texts(&mut self, name: &str, count: usize) -> Result<Vec<CellText>> {
        (0..count).map(|_| self.text(name)).collect()
    }

    /// Returns the names of the cells that measure computing. They are the ones whose value does not depend on the number
    /// of their text.
    pub(crate) fn computing_names(&self) -> Vec<String> {
        let computing = self.texts.iter().filter(|(_, cell)| cell.get("plus_k").is_none());
        computing.map(|(name, _)| name.clone()).collect()
    }
}

impl CellText {
    pub(crate) fn check(&self, value: &str) -> Result<()> {
        if value == self.expect {
            return Ok(());
        }
        Err(format!("`{}` returned {value}, not {}", self.source, self.expect).into())
    }
}
