//! `docs/reference/configuration.md`: every setting of the schema that `cellmate config schema` prints, and no other.

use serde_json::Value;

use super::{compare, read, root};
use crate::person::Person;

/// The section with the list of all settings.
const SECTION: &str = "\n## All settings\n";

/// Settings whose keys are those of another setting, and which: their own rows say so.
const ALIKE: [&str; 10] = [
    "servers",
    "mcp_servers",
    "context_servers",
    "mcp",
    "agents.list",
    "agents.entries",
    "agents.defaults",
    "agents.<name>.tools",
    "tools.byProvider",
    "tools.sandbox",
];

/// How descriptions of settings of OpenClaw that have no effect begin. The page lists them by section.
const UNUSED: &str = "Not used: ";

struct Setting {
    path: String,
    default: String,
    meaning: String,
}

fn schema() -> Value {
    Person::new().run(&["config", "schema", "--json"]).json()
}

/// Adds the settings below a schema.
fn add(schema: &Value, path: &str, settings: &mut Vec<Setting>) {
    let join = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    for (key, below) in schema["properties"].as_object().into_iter().flatten() {
        let meaning = below["description"].as_str().unwrap_or_default().replace('|', "\\|");
        if !below.is_object() || meaning.starts_with(UNUSED) {
            continue;
        }
        let path = join(key);
        let default = below.get("default").map_or_else(String::new, |value| format!("`{value}`"));
        settings.push(Setting { path: path.clone(), default, meaning });
        if !ALIKE.contains(&path.as_str()) {
            add(below, &path, settings);
        }
    }
    if schema["additionalProperties"].is_object() {
        add(&schema["additionalProperties"], &join("<name>"), settings);
    }
    if schema["items"].is_object() {
        add(&schema["items"], &format!("{path}[]"), settings);
    }
    schema["anyOf"].as_array().into_iter().flatten().for_each(|option| add(option, path, settings));
}

#[test]
fn the_page_lists_every_setting_of_the_schema() {
    let mut settings = Vec::new();
    add(&schema(), "", &mut settings);
    settings.sort_by(|one, other| one.path.cmp(&other.path));
    settings.dedup_by(|one, other| one.path == other.path);
    assert!(settings.len() > 80, "only {} settings", settings.len());
    let mut table = "| setting | default | meaning |\n|---|---|---|\n".to_owned();
    for Setting { path, default, meaning } in &settings {
        table += &format!("| `{path}` | {default} | {} |\n", meaning.trim_end_matches('.'));
    }
    let path = root().join("docs/reference/configuration.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, after) = page.split_once(SECTION).unwrap();
    let (introduction, rest) = after.split_once("\n| setting |").unwrap();
    let (_, rest) = rest.split_once("\n\n").unwrap_or((rest, ""));
    compare(&path, &format!("{before}{SECTION}{introduction}\n{table}\n{rest}"));
}

/// Whether the schema has this path. A name in `<>` or any other key stands for a key that users choose.
fn has(schema: &Value, path: &[&str]) -> bool {
    let Some((key, rest)) = path.split_first() else { return true };
    let key = key.split('[').next().unwrap();
    let options = schema["anyOf"].as_array().into_iter().flatten();
    std::iter::once(schema).chain(options).any(|one| {
        let named = one["properties"].get(key);
        let chosen = Some(&one["additionalProperties"]).filter(|any| any.is_object());
        let item = Some(&one["items"]).filter(|items| items.is_object());
        let is_open = named.is_some_and(|named| named.get("type").is_none() && named.get("properties").is_none());
        named.is_some_and(|below| is_open && below["anyOf"].is_null() || has(below, rest))
            || chosen.is_some_and(|below| has(below, rest))
            || item.is_some_and(|below| has(below, path))
    })
}

#[test]
fn every_setting_that_the_page_names_exists() {
    let schema = schema();
    let sections = ["tools", "agents", "approvals", "plugins", "models", "gateway", "store", "mcpServers"];
    let page = read("docs/reference/configuration.md");
    let is_path = |span: &&str| {
        let is_plain = |letter: char| letter.is_alphanumeric() || "_.<>[]".contains(letter);
        span.chars().all(is_plain) && span.split_once('.').is_some_and(|(first, _)| sections.contains(&first))
    };
    let prose = page.lines().filter(|line| !line.starts_with("```"));
    let named: Vec<&str> = prose.flat_map(|line| line.split('`').skip(1).step_by(2)).filter(is_path).collect();
    assert!(named.len() > 80, "only {} settings were found", named.len());
    let unknown: Vec<&&str> = named.iter().filter(|path| !has(&schema, &path.split('.').collect::<Vec<_>>())).collect();
    assert!(unknown.is_empty(), "{unknown:?} are not settings");
}
