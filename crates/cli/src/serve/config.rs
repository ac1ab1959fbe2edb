//! The configuration file of `cellmate mcp`: which servers, which policy, who is asked.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use contract::config::AgentsConfig;
use contract::config::pattern::Pattern;
use mcp::server::Asking;
use mcp::{Limits, ServerSpec};
use serde_json::{Map, Value};

/// What a file says, decided. A problem with one server leaves that server out and nothing else.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) servers: Vec<ServerSpec>,
    pub(super) config: AgentsConfig,
    pub(super) asking: Asking,
    pub(super) pass: Vec<Pattern>,
    pub(super) problems: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum ConfigError {
    #[error("cannot read `{path}`: {source}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("`{path}`: {reason}")]
    Wrong { path: PathBuf, reason: String },
}

const KEYS: [&str; 4] = ["mcpServers", "tools", "agents", "approvals"];

pub(super) fn load(path: Option<&Path>) -> Result<Loaded, ConfigError> {
    let Some(path) = path else { return read(&Map::new(), Path::new("")) };
    let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    let file: Map<String, Value> = serde_json::from_str(&text).map_err(|error| wrong(path, error.to_string()))?;
    read(&file, path)
}

fn read(file: &Map<String, Value>, path: &Path) -> Result<Loaded, ConfigError> {
    if let Some(key) = file.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(wrong(path, format!("`{key}` is not known here; there are {}", KEYS.join(", "))));
    }
    let section = |name: &str| file.get(name).unwrap_or(&Value::Null);
    let config = AgentsConfig::resolve(section("tools"), section("agents"));
    let config = config
        .map_err(|errors| wrong(path, errors.iter().map(|error| error.to_string()).collect::<Vec<_>>().join("; ")))?;
    let (asking, pass) = approvals(section("approvals")).map_err(|reason| wrong(path, reason))?;
    let (mut servers, mut problems) = (Vec::new(), Vec::new());
    for (name, entry) in section("mcpServers").as_object().into_iter().flatten() {
        match server(name, entry) {
            Ok(Some(spec)) => servers.push(spec),
            Ok(None) => {}
            Err(reason) => problems.push(format!("MCP server `{name}` is left out: {reason}")),
        }
    }
    Ok(Loaded { servers, config, asking, pass, problems })
}

/// `{ "ask": "changes" | "never" | [patterns], "pass": [patterns] }`
fn approvals(given: &Value) -> Result<(Asking, Vec<Pattern>), String> {
    let asking = match given.get("ask") {
        None | Some(Value::Null) => Asking::Changes,
        Some(Value::String(word)) if word == "changes" => Asking::Changes,
        Some(Value::String(word)) if word == "never" => Asking::Nobody,
        Some(list @ Value::Array(_)) => Asking::Named(patterns("approvals.ask", list)?),
        Some(_) => return Err("`approvals.ask`: expected \"changes\", \"never\" or a list of patterns".to_owned()),
    };
    let pass = given.get("pass").map_or_else(|| Ok(Vec::new()), |list| patterns("approvals.pass", list))?;
    Ok((asking, pass))
}

fn patterns(place: &str, list: &Value) -> Result<Vec<Pattern>, String> {
    let items = list.as_array().ok_or_else(|| format!("`{place}`: expected a list of patterns"))?;
    let read = |item: &Value| {
        let text = item.as_str().ok_or_else(|| format!("`{place}`: expected a pattern, found `{item}`"))?;
        Pattern::parse(text).map_err(|bad| format!("`{place}`: expected {bad}, found `{text}`"))
    };
    items.iter().map(read).collect()
}

/// Nothing where it is disabled.
fn server(name: &str, entry: &Value) -> Result<Option<ServerSpec>, String> {
    if entry.get("disabled") == Some(&Value::Bool(true)) {
        return Ok(None);
    }
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let Some(command) = entry.get("command").and_then(text) else {
        let remote = entry.get("url").is_some();
        let why = if remote { "servers over HTTP are not connected yet" } else { "it has no `command`" };
        return Err(why.to_owned());
    };
    let args = match entry.get("args") {
        None => Some(Vec::new()),
        Some(list) => list.as_array().and_then(|list| list.iter().map(text).collect()),
    };
    let env = match entry.get("env") {
        None => Some(BTreeMap::new()),
        Some(map) => map.as_object().and_then(|map| map.iter().map(|(k, v)| Some((k.clone(), text(v)?))).collect()),
    };
    Ok(Some(ServerSpec {
        name: name.to_owned(),
        command,
        args: args.ok_or("`args` is no list of strings")?,
        env: env.ok_or("`env` is no object of strings")?,
        cwd: entry.get("cwd").and_then(Value::as_str).map(PathBuf::from),
        trusted: entry.get("trusted") == Some(&Value::Bool(true)),
        limits: Limits::DEFAULT,
    }))
}

fn wrong(path: &Path, reason: String) -> ConfigError {
    ConfigError::Wrong { path: path.to_owned(), reason }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use mcp::server::Asking;
    use serde_json::{Map, Value, json};

    use super::read;

    fn file(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn a_bad_server_is_left_out_and_a_bad_key_is_refused() {
        let loaded = read(
            &file(json!({
                "mcpServers": {
                    "good": {"command": "a", "args": ["b"], "env": {"C": "d"}, "trusted": true},
                    "off": {"command": "a", "disabled": true},
                    "far": {"url": "https://example.com/mcp"},
                    "odd": {"command": "a", "args": "b"},
                },
                "approvals": {"ask": ["mcp:good:*"], "pass": ["mcp:good:read"]},
            })),
            Path::new("f"),
        )
        .unwrap();
        assert_eq!(loaded.servers.len(), 1);
        assert_eq!(loaded.problems.len(), 2, "{:?}", loaded.problems);
        assert!(matches!(loaded.asking, Asking::Named(ref patterns) if patterns.len() == 1));
        for bad in [json!({"mcpservers": {}}), json!({"approvals": {"ask": 1}}), json!({"tools": {"codeMode": 3}})] {
            assert!(read(&file(bad.clone()), Path::new("f")).is_err(), "{bad}");
        }
        assert_eq!(read(&Map::new(), Path::new("f")).unwrap().asking, Asking::Changes);
    }
}
