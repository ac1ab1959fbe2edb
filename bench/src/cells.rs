//! The cells that both sides run, each time with a unique source text.

use serde_json::{Map, Value};

use crate::Result;

static TEXTS: &str = include_str!("../peer/cells.json");

/// A cell and the JSON of what it must return.
#[derive(Clone, Debug)]
pub(crate) struct Text {
    pub(crate) source: String,
    pub(crate) expect: String,
}

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
    pub(crate) fn seed(&mut self, count: usize) -> u64 {
        let first = self.next;
        self.next += count as u64;
        first
    }

    pub(crate) fn text(&mut self, name: &str) -> Result<Text> {
        let number = self.seed(1);
        let cell = self.texts.get(name).ok_or_else(|| format!("no cell `{name}` in cells.json"))?;
        let source = cell.get("source").and_then(Value::as_str).ok_or("a cell without source")?;
        let expect = match (cell.get("expect"), cell.get("plus_k")) {
            (Some(expect), Some(_)) => {
                (expect.as_u64().ok_or("`plus_k` requires a number in `expect`")? + number).to_string()
            }
            (Some(expect), None) => expect.to_string(),
            (None, _) => return Err("a cell without `expect`".into()),
        };
        Ok(Text { source: source.replace("__K__", &number.to_string()), expect })
    }

    pub(crate) fn many(&mut self, name: &str, count: usize) -> Result<Vec<Text>> {
        (0..count).map(|_| self.text(name)).collect()
    }

    /// The names of cells that only compute; their value does not depend on their number.
    pub(crate) fn computing(&self) -> Vec<String> {
        let computing = self.texts.iter().filter(|(_, cell)| cell.get("plus_k").is_none());
        computing.map(|(name, _)| name.clone()).collect()
    }
}

impl Text {
    pub(crate) fn check(&self, value: &str) -> Result<()> {
        if value == self.expect {
            return Ok(());
        }
        Err(format!("`{}` returned {value}, not {}", self.source, self.expect).into())
    }
}
