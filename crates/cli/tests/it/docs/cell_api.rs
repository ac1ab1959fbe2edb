//! `docs/reference/cell-api.md`: the globals of a cell, as the sandbox defines them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::read;
use crate::person::Person;

/// Globals whose functions the page lists.
const OBJECTS: [&str; 4] = ["console", "output", "API", "tools"];

/// The sections whose tables list globals.
const SECTIONS: [&str; 5] = [
    "\n## Tools\n",
    "\n## Output\n",
    "\n## Stored outputs and values\n",
    "\n## Timers and the web\n",
    "\n## The language\n",
];

/// Returns the names that a cell finds: globals, and `object.function` for the objects above.
fn defined() -> BTreeSet<String> {
    let cell = format!(
        "const names = Object.getOwnPropertyNames;
         const below = {OBJECTS:?}.flatMap((name) => names(globalThis[name]).map((one) => `${{name}}.${{one}}`));
         return [...names(globalThis), ...below];"
    );
    let result = Person::new().run(&["exec", "--json", "-e", &cell]).json();
    result["value"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

/// Returns the part of a code span that names a global or a function of one of the objects.
fn name(span: &str) -> Option<String> {
    let is_name = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '.' | '$');
    let span = span.split_once('<').map_or(span, |(before, _)| before.trim_end_matches('.'));
    let path =
        span.split(|letter| !is_name(letter)).next().filter(|path| !path.is_empty() && !path.starts_with('.'))?;
    let global = path.split('.').next()?;
    Some(if OBJECTS.contains(&global) { path.to_owned() } else { global.to_owned() })
}

/// Returns the names in the tables of the page. In the last section they are in the second column.
fn documented() -> BTreeSet<String> {
    let page = read("docs/reference/cell-api.md");
    let mut names = BTreeSet::new();
    for section in SECTIONS {
        let text = page.split(section).nth(1).unwrap_or_else(|| panic!("no section {section:?}"));
        let text = text.split("\n## ").next().unwrap();
        let column = if section.contains("language") { 1 } else { 0 };
        let cells = text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").nth(column));
        names.extend(cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).filter_map(name));
    }
    names
}

#[test]
fn the_page_of_the_cell_api_names_every_global_and_no_other() {
    let (defined, mut documented) = (defined(), documented());
    // A function implies its object.
    documented.extend(OBJECTS.map(str::to_owned));
    let missing: Vec<_> = defined.difference(&documented).collect();
    let superfluous: Vec<_> = documented.difference(&defined).collect();
    assert!(missing.is_empty() && superfluous.is_empty(), "not documented: {missing:?}; not defined: {superfluous:?}");
}

#[test]
fn globals_that_the_page_calls_unavailable_are_not_there() {
    let page = read("docs/reference/cell-api.md");
    let line = page.lines().find(|line| line.starts_with("Not available:")).unwrap();
    let names: Vec<&str> = line.split('`').skip(1).step_by(2).collect();
    assert!(names.len() > 5, "{names:?}");
    let cell = format!("return {names:?}.filter((name) => name in globalThis)");
    let result = Person::new().run(&["exec", "--json", "-e", &cell]).json();
    assert_eq!(result["value"], Value::Array(Vec::new()), "{result}");
}
