//! The size of tools in a request, to compare the surfaces of a catalog.

use serde_json::json;

use super::{VisibleTool, direct, visible};
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
    let tools = direct::sorted(catalog.tools.clone());
    let names = direct::names(&tools);
    visible::direct(&tools, names).iter().map(VisibleTool::bytes).sum()
}
