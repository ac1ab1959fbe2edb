//! Settings with which an agent asks a gateway for its models, and records of them, so that exactly they can be removed.
//!
//! The gateway's token is never written: an agent's file names the file or the variable that has it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use contract::json::measure;
use contract::limits::MAX_JSON_VALUES;
use serde_json::{Value, json};
use url::{Host, Url};

use crate::clients::Client;
use crate::connection::Connections;
use crate::display;
use crate::edit::{Change, EditError, Intent};
use crate::files;
use crate::places::{Places, Scope};
use crate::tree::Tree;

const VERSION: u64 = 1;

/// The model that every gateway serves: its default agent.
const MODEL: &str = "openclaw";

/// The length of an agent's name.
const MAX_AGENT_BYTES: usize = 64;

/// The name of the provider in an agent's file.
const PROVIDER: &str = "cellmate";

/// The variable in which Codex finds the token.
const TOKEN_VARIABLE: &str = "CELLMATE_TOKEN";

/// Variables of Claude Code that choose a model. Each kind has its own, or a subagent would ask for an unknown model.
const CLAUDE_MODELS: [&str; 4] = [
    "ANTHROPIC_MODEL",
    "ANTHROPIC_DEFAULT_OPUS_MODEL",
    "ANTHROPIC_DEFAULT_SONNET_MODEL",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL",
];

/// Variables with credentials that Claude Code prefers to its `apiKeyHelper`.
const CLAUDE_CREDENTIALS: [&str; 2] = ["ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY"];

/// A gateway's address, and the file with a token for it.
#[derive(Clone, Debug)]
pub struct GatewayAddress {
    /// The gateway's URL, without `/v1` and a slash at the end.
    base: String,
    is_local: bool,
    is_encrypted: bool,
    token_file: PathBuf,
    /// The model that clients ask for: an agent of the gateway.
    model: String,
}

/// Why a text is not the address of a gateway. The text is left out, because it may contain a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the address is not that of a gateway; write it as `cellmate gateway` prints it, for example http://127.0.0.1:18789, \
     without a user, a query or a fragment"
)]
pub struct BadAddress;

/// Why a text is not the name of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an agent's name has 1 to {MAX_AGENT_BYTES} letters, digits, dots, hyphens and underscores")]
pub struct BadAgentName;

impl GatewayAddress {
    /// Chooses an agent of the gateway, instead of its default one.
    pub fn for_agent(self, name: &str) -> Result<Self, BadAgentName> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        if !(1..=MAX_AGENT_BYTES).contains(&name.len()) || !name.bytes().all(is_plain) {
            return Err(BadAgentName);
        }
        Ok(Self { model: format!("{MODEL}/{name}"), ..self })
    }

    pub fn parse(text: &str, token_file: PathBuf) -> Result<Self, BadAddress> {
        let url = Url::parse(text).map_err(|_| BadAddress)?;
        let is_plain = url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none()
            && matches!(url.scheme(), "http" | "https");
        let host = url.host().filter(|_| is_plain).ok_or(BadAddress)?;
        let is_local = match host {
            Host::Domain(name) => name == "localhost",
            Host::Ipv4(address) => address.is_loopback(),
            Host::Ipv6(address) => address.is_loopback(),
        };
        let base = url.as_str().trim_end_matches('/');
        let base = base.strip_suffix("/v1").unwrap_or(base).trim_end_matches('/').to_owned();
        Ok(Self {
            base,
            is_local,
            is_encrypted: is_local || url.scheme() == "https",
            token_file,
            model: MODEL.to_owned(),
        })
    }

    /// Whether the gateway is on this machine.
    pub fn is_local(&self) -> bool {
        self.is_local
    }

    fn token_file(&self) -> String {
        self.token_file.display().to_string()
    }
}

/// A value that `connect` writes.
struct Setting {
    path: Vec<&'static str>,
    value: Value,
}

impl Client {
    /// Agents that can ask a gateway for their models.
    pub const WITH_GATEWAY: [Self; 3] = [Self::ClaudeCode, Self::Codex, Self::OpenCode];

    /// Returns the user's files that may contain the agent's settings, starting with the one that the agent itself would
    /// create. Empty if the client cannot use a gateway, or if there is no home folder.
    pub fn gateway_files(self, places: &Places) -> Vec<PathBuf> {
        match self {
            Self::ClaudeCode => {
                let folder = places.variable("CLAUDE_CONFIG_DIR").map(PathBuf::from);
                let folder = folder.or_else(|| Some(places.home.as_ref()?.join(".claude")));
                folder.iter().map(|folder| folder.join("settings.json")).collect()
            }
            Self::Codex | Self::OpenCode => self.files(Scope::User, places),
            Self::ClaudeDesktop
            | Self::Cursor
            | Self::VsCode
            | Self::Windsurf
            | Self::Gemini
            | Self::Zed
            | Self::Mcporter
            | Self::OpenClaw => Vec::new(),
        }
    }

    fn gateway_settings(self, gateway: &GatewayAddress) -> Vec<Setting> {
        let setting = |path: &[&'static str], value: Value| Setting { path: path.to_vec(), value };
        let api = format!("{}/v1", gateway.base);
        let (token_file, model) = (gateway.token_file(), &gateway.model);
        match self {
            Self::ClaudeCode => {
                let models = CLAUDE_MODELS.map(|variable| setting(&["env", variable], json!(model)));
                [setting(&["env", "ANTHROPIC_BASE_URL"], json!(gateway.base))]
                    .into_iter()
                    .chain(models)
                    .chain([setting(&["apiKeyHelper"], json!(print_command(&token_file)))])
                    .collect()
            }
            Self::Codex => {
                let provider = json!({
                    "name": PROVIDER, "base_url": api, "wire_api": "responses", "env_key": TOKEN_VARIABLE,
                });
                vec![
                    setting(&["model"], json!(model)),
                    setting(&["model_provider"], json!(PROVIDER)),
                    setting(&["model_providers", PROVIDER], provider),
                ]
            }
            Self::OpenCode => {
                let provider = json!({
                    "npm": "@ai-sdk/openai-compatible", "name": PROVIDER,
                    "options": {"baseURL": api, "apiKey": format!("{{file:{token_file}}}")},
                    "models": {model: {"name": model}},
                });
                vec![
                    setting(&["model"], json!(format!("{PROVIDER}/{model}"))),
                    setting(&["provider", PROVIDER], provider),
                ]
            }
            Self::ClaudeDesktop
            | Self::Cursor
            | Self::VsCode
            | Self::Windsurf
            | Self::Gemini
            | Self::Zed
            | Self::Mcporter
            | Self::OpenClaw => Vec::new(),
        }
    }

    /// Returns an instruction for the user: how to make the agent use the gateway.
    pub fn gateway_step(self, gateway: &GatewayAddress) -> String {
        match self {
            Self::Codex => format!(
                "set the token where you start Codex: export {TOKEN_VARIABLE}=\"$({})\"",
                print_command(&gateway.token_file())
            ),
            client => format!("start a new session of {}", client.name()),
        }
    }
}

/// Returns a shell command that prints a file.
fn print_command(file: &str) -> String {
    format!("cat {}", display::for_shell(file))
}

/// A setting that `connect` wrote.
#[derive(Clone, PartialEq)]
struct WrittenSetting {
    path: Vec<String>,
    written: Value,
    /// The value that was there before.
    replaced: Option<Value>,
}

impl WrittenSetting {
    fn keys(&self) -> Vec<&str> {
        self.path.iter().map(String::as_str).collect()
    }
}

/// What `connect` changed in an agent's file so that it uses a gateway.
#[derive(Clone, PartialEq)]
pub struct GatewayRecord {
    client: Client,
    file: PathBuf,
    settings: Vec<WrittenSetting>,
    /// The paths of objects that were added to hold the settings.
    added: Vec<Vec<String>>,
}

impl fmt::Debug for GatewayRecord {
    /// Leaves out the settings, whose replaced values may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewayRecord").field("client", &self.client).field("file", &self.file).finish_non_exhaustive()
    }
}

impl GatewayRecord {
    /// Records the values that the settings replace. `earlier` is the record of a `connect` that was not undone.
    fn before(client: Client, theirs: &Change, settings: &[Setting], earlier: Option<Self>) -> Result<Self, EditError> {
        let tree = theirs.tree_before()?;
        let (mut recorded, mut added) = earlier.map(|earlier| (earlier.settings, earlier.added)).unwrap_or_default();
        for setting in settings {
            let there = tree.at(&setting.path).map(Tree::to_json);
            let path: Vec<String> = setting.path.iter().map(|key| (*key).to_owned()).collect();
            let known = recorded.iter().position(|one| one.path == path).map(|at| recorded.remove(at));
            // A value that an earlier `connect` wrote is not the user's.
            let replaced = match known {
                Some(known) if there.as_ref() == Some(&known.written) => known.replaced,
                _ => there,
            };
            for length in 1..path.len() {
                let above = setting.path.get(..length).unwrap_or_default();
                let keys: Vec<String> = above.iter().map(|key| (*key).to_owned()).collect();
                if tree.at(above).is_none() && !added.contains(&keys) {
                    added.push(keys);
                }
            }
            recorded.push(WrittenSetting { path, written: setting.value.clone(), replaced });
        }
        Ok(Self { client, file: theirs.file.clone(), settings: recorded, added })
    }

    fn to_json(&self) -> Value {
        let settings = self.settings.iter();
        let settings = settings.map(|one| json!({"path": one.path, "written": one.written, "replaced": one.replaced}));
        json!({
            "version": VERSION, "client": self.client.name(), "file": self.file,
            "settings": settings.collect::<Vec<_>>(), "added": self.added,
        })
    }

    fn read(text: &str) -> Option<Self> {
        if measure(text.as_bytes()).values > MAX_JSON_VALUES {
            return None;
        }
        let read: Value = serde_json::from_str(text).ok()?;
        (read.get("version")?.as_u64()? == VERSION).then_some(())?;
        let path = |keys: &Value| -> Option<Vec<String>> {
            keys.as_array()?.iter().map(|key| Some(key.as_str()?.to_owned())).collect()
        };
        let setting = |one: &Value| {
            let replaced = one.get("replaced").filter(|replaced| !replaced.is_null()).cloned();
            Some(WrittenSetting { path: path(one.get("path")?)?, written: one.get("written")?.clone(), replaced })
        };
        Some(Self {
            client: Client::parse(read.get("client")?.as_str()?)?,
            file: PathBuf::from(read.get("file")?.as_str()?),
            settings: read.get("settings")?.as_array()?.iter().map(setting).collect::<Option<_>>()?,
            added: read.get("added")?.as_array()?.iter().map(path).collect::<Option<_>>()?,
        })
    }
}

impl Connections {
    /// Returns the record of an agent's settings for a gateway; one that cannot be read counts as missing.
    pub fn gateway_record(&self, client: Client, file: &Path) -> Option<GatewayRecord> {
        let text = files::read_users(&self.record_path(&stem(client), file)?).ok()??;
        GatewayRecord::read(&text).filter(|record| record.client == client && record.file == file)
    }

    /// Writes a record, atomically, in place of an earlier one.
    pub fn write_gateway(&self, record: &GatewayRecord) -> io::Result<()> {
        let path = self.record_path(&stem(record.client), &record.file);
        let path = path.ok_or_else(|| io::Error::other("cannot find the home folder; set HOME"))?;
        files::write_private(&path, &record.to_json().to_string())
    }

    /// Removes the record of an agent's settings for a gateway, if there is one.
    pub fn remove_gateway(&self, client: Client, file: &Path) -> io::Result<()> {
        self.remove_record(&stem(client), file)
    }
}

/// Returns how the name of a record's file begins.
fn stem(client: Client) -> String {
    format!("{}-gateway", client.name())
}

/// Adds the settings for a gateway to an agent's file. Returns the record for `disconnect`, and notes for the user.
pub fn connect_gateway(
    client: Client,
    gateway: &GatewayAddress,
    theirs: &mut Change,
    places: &Places,
    earlier: Option<GatewayRecord>,
) -> Result<(GatewayRecord, Vec<String>), EditError> {
    let settings = client.gateway_settings(gateway);
    for setting in &settings {
        theirs.set(&setting.path, &setting.value)?;
        theirs.reveal(&setting.path, &setting.value);
    }
    let mut notes = Vec::new();
    if client == Client::ClaudeCode {
        let tree = theirs.tree()?;
        let is_set = |name: &&str| tree.at(&["env", name]).is_some() || places.variable(name).is_some();
        let preferred = CLAUDE_CREDENTIALS.into_iter().filter(is_set);
        notes.extend(
            preferred.map(|name| format!("{name} is set, and Claude Code prefers it to the gateway's token; unset it")),
        );
    }
    if !gateway.is_encrypted {
        notes.push("the token is sent without encryption; use an https address for another machine".to_owned());
    }
    if !gateway.token_file.is_file() {
        notes.push(format!(
            "{} does not exist yet; start `cellmate gateway`, or write a token of `cellmate tokens create` to it",
            display::path(&gateway.token_file)
        ));
    }
    Ok((GatewayRecord::before(client, theirs, &settings, earlier)?, notes))
}

/// Removes the recorded settings from an agent's file and restores the values that they replaced. Settings that were
/// changed since then stay. Returns a note for each of those.
pub fn disconnect_gateway(
    theirs: &mut Change,
    record: &GatewayRecord,
    intent: Intent,
) -> Result<Vec<String>, EditError> {
    let stays = match intent {
        Intent::Write => "stays",
        Intent::Show => "would stay",
    };
    let mut notes = Vec::new();
    for setting in &record.settings {
        let keys = setting.keys();
        let there = theirs.tree()?.at(&keys).map(Tree::to_json);
        match (there, &setting.replaced) {
            (Some(there), _) if there != setting.written => {
                notes.push(format!("`{}` {stays}: it was changed since", display::plain(&keys.join("."))));
            }
            (Some(_), Some(replaced)) => theirs.set(&keys, replaced)?,
            (Some(_), None) => theirs.remove(&keys)?,
            (None, _) => {}
        }
        theirs.reveal(&keys, &setting.written);
    }
    let is_empty = |tree: &Tree| tree.is_map() && tree.members().is_empty();
    // The innermost objects first.
    for added in record.added.iter().rev() {
        let keys: Vec<&str> = added.iter().map(String::as_str).collect();
        if theirs.tree()?.at(&keys).is_some_and(is_empty) {
            theirs.remove(&keys)?;
        }
    }
    Ok(notes)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use serde_json::json;

    use super::{BadAddress, GatewayAddress, GatewayRecord, connect_gateway, disconnect_gateway};
    use crate::edit::{Change, Intent};
    use crate::{Client, Connections, Places};

    fn gateway(address: &str) -> GatewayAddress {
        GatewayAddress::parse(address, PathBuf::from("/state/to ken")).unwrap()
    }

    #[test]
    fn an_address_loses_its_v1_and_one_with_other_parts_is_refused() {
        for (text, base, is_encrypted) in [
            ("http://127.0.0.1:18789", "http://127.0.0.1:18789", true),
            ("http://localhost:18789/v1/", "http://localhost:18789", true),
            ("http://[::1]:1/", "http://[::1]:1", true),
            ("https://agents.example/team/v1", "https://agents.example/team", true),
            ("http://10.0.0.7:18789", "http://10.0.0.7:18789", false),
            ("http://localhost.example", "http://localhost.example", false),
        ] {
            let read = gateway(text);
            assert_eq!((read.base.as_str(), read.is_encrypted), (base, is_encrypted), "{text}");
        }
        for text in
            ["", "codex", "127.0.0.1:18789", "ftp://x", "http://me@x", "http://:p@x", "http://x?k", "http://x#k"]
        {
            assert_eq!(GatewayAddress::parse(text, PathBuf::new()).err(), Some(BadAddress), "{text}");
        }
    }

    #[test]
    fn a_record_is_read_as_written_and_a_second_connect_keeps_the_users_values() {
        let folder = tempfile::tempdir().unwrap();
        let home = [("HOME".to_owned(), folder.path().display().to_string())];
        let places = Places::of(&[], PathBuf::from("/none"), home.into());
        let connections = Connections::of(&places);
        let file = folder.path().join("settings.json");
        let before = r#"{"env": {"ANTHROPIC_MODEL": "mine"}}"#;
        std::fs::write(&file, before).unwrap();
        for address in ["http://127.0.0.1:1", "http://127.0.0.1:2"] {
            let mut theirs = Change::open(&file).unwrap();
            let earlier = connections.gateway_record(Client::ClaudeCode, &file);
            let (record, _) =
                connect_gateway(Client::ClaudeCode, &gateway(address), &mut theirs, &places, earlier).unwrap();
            connections.write_gateway(&record).unwrap();
            assert_eq!(connections.gateway_record(Client::ClaudeCode, &file), Some(record));
            std::fs::write(&file, theirs.after()).unwrap();
        }
        assert_eq!(connections.gateway_record(Client::Codex, &file), None);
        let record = connections.gateway_record(Client::ClaudeCode, &file).unwrap();
        let mut theirs = Change::open(&file).unwrap();
        assert_eq!(disconnect_gateway(&mut theirs, &record, Intent::Write).unwrap(), [""; 0]);
        assert_eq!(theirs.tree().unwrap().to_json(), json!({"env": {"ANTHROPIC_MODEL": "mine"}}));
        connections.remove_gateway(Client::ClaudeCode, &file).unwrap();
        assert_eq!(connections.gateway_record(Client::ClaudeCode, &file), None);
    }

    #[test]
    fn a_damaged_record_is_not_read() {
        for text in
            ["", "{}", r#"{"version": 2}"#, r#"{"version": 1, "client": "codex", "file": "/x", "settings": [1]}"#]
        {
            assert!(GatewayRecord::read(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_chosen_agent_is_the_model_of_every_client_and_other_names_are_refused() {
        let support = gateway("http://127.0.0.1:1").for_agent("support").unwrap();
        for (client, path, expected) in [
            (Client::ClaudeCode, &["env", "ANTHROPIC_DEFAULT_HAIKU_MODEL"][..], "openclaw/support"),
            (Client::Codex, &["model"], "openclaw/support"),
            (Client::OpenCode, &["model"], "cellmate/openclaw/support"),
        ] {
            let settings = client.gateway_settings(&support);
            let model = settings.iter().find(|setting| setting.path == path).unwrap();
            assert_eq!(model.value, json!(expected), "{client:?}");
        }
        let long = "x".repeat(65);
        for bad in ["", "a b", "a/b", "a\u{1b}[31m", "ä", long.as_str()] {
            assert!(gateway("http://127.0.0.1:1").for_agent(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_command_of_claude_code_quotes_the_path() {
        let settings = Client::ClaudeCode.gateway_settings(&gateway("http://127.0.0.1:1"));
        assert_eq!(settings.last().unwrap().value, json!("cat '/state/to ken'"));
    }
}
