//! What tools take in a request, to compare one face of a catalog with another.

use serde_json::json;

use super::{VisibleTool, direct, visible};
use crate::Catalog;

impl VisibleTool {
    /// Name, description and schema as JSON; what a provider wraps around them is not counted.
    pub fn bytes(&self) -> usize {
        let VisibleTool { name, description, parameters } = self;
        json!({"name": name, "description": description, "parameters": parameters}).to_string().len()
    }
}

/// What the whole catalog would take if every tool was shown by itself.
pub(crate) fn direct_bytes(catalog: &Catalog) -> usize {
    let tools = direct::sorted(catalog.tools.clone());
    let names = direct::names(&tools);
    visible::direct(&tools, names).iter().map(VisibleTool::bytes).sum()
}
