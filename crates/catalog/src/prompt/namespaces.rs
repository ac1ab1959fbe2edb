//! Plugins' namespaces: in the description of `exec` if they all fit there, otherwise in that of its parameter `code`,
//! which clients do not cut.

use super::units::units;
use crate::Catalog;
use crate::namespace::Namespace;
use crate::text::clean;

/// The maximum length of all namespaces in the description of `exec`.
const IN_DESCRIPTION_UNITS: usize = 300;

/// The maximum length of all namespaces in the description of the parameter, and of one's description and prompt.
const IN_PARAMETER_BYTES: usize = 5 << 10;
const DESCRIPTION_BYTES: usize = 240;
const PROMPT_BYTES: usize = 1 << 10;

/// Replaces the namespaces in the description of `exec` if they are described at the parameter.
const ELSEWHERE: &str = "Plugins' namespaces are described at `code`.";

/// Returns the section of the description of `exec`, which is empty if there are no namespaces, and the text for the
/// parameter, if they do not fit into `room`.
pub(super) fn placed(catalog: &Catalog, room: usize) -> (String, Option<String>) {
    if catalog.namespaces.is_empty() {
        return (String::new(), None);
    }
    let mut text = "Namespaces (globals):".to_owned();
    for entry in entries(catalog) {
        text += &format!("\n{entry}");
        if units(&text) > room.min(IN_DESCRIPTION_UNITS) {
            return (ELSEWHERE.to_owned(), Some(of_parameter(catalog)));
        }
    }
    (text, None)
}

fn of_parameter(catalog: &Catalog) -> String {
    let count = catalog.namespaces.iter().len();
    let mut used = 0;
    let fits = |line: &String| {
        used += line.len() + 1;
        used <= IN_PARAMETER_BYTES
    };
    let mut lines: Vec<String> = entries(catalog).take_while(fits).collect();
    if lines.len() < count {
        lines.push(format!("- {} more: Object.keys(namespaces) names them.", count - lines.len()));
    }
    format!("Namespaces, as globals and as `namespaces.<name>`:\n{}", lines.join("\n"))
}

/// Returns the namespaces in the order of their globals.
fn entries(catalog: &Catalog) -> impl Iterator<Item = String> {
    catalog.namespaces.iter().map(|(global, namespace)| entry(global, namespace))
}

fn entry(global: &str, namespace: &Namespace) -> String {
    let description = clean(&namespace.description, DESCRIPTION_BYTES);
    let prompt = namespace.prompt.as_deref().map(|prompt| clean(prompt, PROMPT_BYTES)).unwrap_or_default();
    let parts = [format!("- {global}: {description}"), prompt];
    parts.iter().map(|part| part.trim_end()).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n  ")
}
