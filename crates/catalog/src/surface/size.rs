//! The size of tools in a request, to compare the surfaces of a catalog.

use serde_json::{Value, json};

use super::{ChosenBy, DirectTools, Surface, VisibleTool, visible};
use crate::Catalog;

impl VisibleTool {
    /// The size of name, description and schema as JSON, without the provider's envelope.
    pub fn bytes(&self) -> usize {
        let VisibleTool { name, description, parameters } = self;
        json!({"name": name, "description": description, "parameters": parameters}).to_string().len()
    }
}

/// Returns the size of the whole catalog if every tool were shown directly.
pub(crate) fn direct_bytes(catalog: &Catalog) -> usize {
    bytes_of(&DirectTools::new(catalog.tools.clone(), 0))
}

pub(super) fn bytes_of(tools: &DirectTools) -> usize {
    visible::direct(tools).iter().map(VisibleTool::bytes).sum()
}

/// What a surface shows and costs, and what the other ways to show the same catalog would cost, in bytes of tool
/// definitions. For logs, telemetry and people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SurfaceReport {
    pub surface: &'static str,
    pub chosen_by: ChosenBy,
    /// The tools of the catalog.
    pub tools: usize,
    /// The definitions that the model sees.
    pub visible_tools: usize,
    pub visible_bytes: usize,
    /// What the catalog would take if every tool were shown directly.
    pub direct_bytes: usize,
    /// What `exec` and `wait` would take.
    pub code_bytes: usize,
}

impl SurfaceReport {
    /// Reports a surface that shows these tools. `code` are `exec` and `wait` as the same entry point would show them.
    pub fn new(
        (surface, chosen_by): (&Surface, ChosenBy),
        visible: &[VisibleTool],
        code: &[VisibleTool],
        catalog: &Catalog,
    ) -> Self {
        let bytes = |tools: &[VisibleTool]| tools.iter().map(VisibleTool::bytes).sum();
        Self {
            surface: surface.as_str(),
            chosen_by,
            tools: catalog.len(),
            visible_tools: visible.len(),
            visible_bytes: bytes(visible),
            direct_bytes: catalog.direct_bytes(),
            code_bytes: bytes(code),
        }
    }

    pub fn to_json(&self) -> Value {
        json!({
            "surface": self.surface,
            "chosenBy": self.chosen_by.as_str(),
            "tools": self.tools,
            "visibleTools": self.visible_tools,
            "visibleBytes": self.visible_bytes,
            "directBytes": self.direct_bytes,
            "codeBytes": self.code_bytes,
        })
    }
}
