//! `index.json`: which cells there are, what they need, and what may come of them.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::Result;

#[derive(Clone, Debug, Deserialize)]
pub struct Index {
    #[serde(default)]
    pub default_config: Map<String, Value>,
    pub cells: Vec<Cell>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Cell {
    pub id: String,
    pub file: String,
    #[serde(default)]
    pub category: String,
    pub title: String,
    #[serde(default = "javascript")]
    pub language: String,
    #[serde(default)]
    pub driver: Driver,
    /// One of them must be what came of it.
    pub expect: Vec<Expectation>,
    #[serde(default)]
    pub needs: Needs,
    #[serde(default = "patience")]
    pub max_wall_ms: u64,
    #[serde(default)]
    pub side_effects: BTreeMap<String, Times>,
    /// Texts that must not come out.
    #[serde(default)]
    pub forbid: Vec<String>,
    /// The file's text.
    #[serde(skip)]
    pub source: String,
}

/// How often a cell is gone on with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Driver {
    #[default]
    Auto,
    ExecOnly,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Expectation {
    pub status: String,
    /// Where it is given, the failure has one of these; `null` is a failure without a code.
    #[serde(default)]
    pub code: Option<Vec<Option<String>>>,
    /// `null` is a value to expect, too.
    #[serde(default, deserialize_with = "given")]
    pub value: Option<Value>,
    #[serde(default, deserialize_with = "given")]
    pub value_subset: Option<Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct Needs {
    #[serde(default)]
    pub config: Map<String, Value>,
}

/// How often a tool may have had its effect.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Times {
    pub min: Option<u64>,
    pub max: Option<u64>,
}

impl Index {
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join("index.json");
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut index: Self = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        for cell in &mut index.cells {
            let path = folder.join(&cell.file);
            cell.source = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(index)
    }
}

fn given<'de, D: serde::Deserializer<'de>>(from: D) -> std::result::Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

fn javascript() -> String {
    "javascript".to_owned()
}

fn patience() -> u64 {
    6_000
}
