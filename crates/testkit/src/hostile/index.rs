//! `index.json`: the hostile cells of a folder, their configuration and their allowed outcomes.

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
    #[serde(default = "default_language")]
    pub language: String,
    #[serde(default)]
    pub driver: Driver,
    /// The allowed outcomes.
    pub expect: Vec<Expectation>,
    #[serde(default)]
    pub needs: Needs,
    #[serde(default = "default_max_wall_ms")]
    pub max_wall_ms: u64,
    #[serde(default)]
    pub side_effects: BTreeMap<String, CountRange>,
    /// Texts that must not appear in results or the transcript.
    #[serde(default)]
    pub forbid: Vec<String>,
    /// The file's text.
    #[serde(skip)]
    pub source: String,
}

/// Whether a suspended cell is resumed with `wait`.
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
    /// The allowed error codes; `null` allows a failure without a code. Any code is allowed if the field is absent.
    #[serde(default)]
    pub code: Option<Vec<Option<String>>>,
    /// The exact value; `null` is a value, too.
    #[serde(default, deserialize_with = "deserialize_some")]
    pub value: Option<Value>,
    #[serde(default, deserialize_with = "deserialize_some")]
    pub value_subset: Option<Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct Needs {
    #[serde(default)]
    pub config: Map<String, Value>,
}

/// The allowed number of effects of a tool.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct CountRange {
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

/// Keeps an explicit `null` apart from an absent field.
fn deserialize_some<'de, D: serde::Deserializer<'de>>(from: D) -> std::result::Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

fn default_language() -> String {
    "javascript".to_owned()
}

fn default_max_wall_ms() -> u64 {
    6_000
}
