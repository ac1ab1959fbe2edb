//! `models`: the providers that the gateway calls, in OpenClaw's shape.
//!
//! Keys and headers are kept as they are written: they may be references such as `${secret:NAME}`, which the gateway
//! resolves when it starts.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};

use super::error::{ConfigError, Path};
use super::openclaw::keys;
use super::reader::{self, ConfigReader, choose};
use crate::limits::PROVIDER_TIMEOUT_SECONDS;

/// The resolved configuration of all providers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelsConfig {
    /// By id. Providers whose API the gateway does not speak are left out; [`super::openclaw::unused`] lists them.
    pub providers: BTreeMap<String, ProviderConfig>,
}

/// A provider of models.
#[derive(Clone, PartialEq)]
pub struct ProviderConfig {
    pub base_url: String,
    /// The key as the configuration has it: the key itself, or a reference to it.
    pub api_key: Option<String>,
    pub api: ModelApi,
    /// Further headers of every request, by name; values as they are written.
    pub headers: BTreeMap<String, String>,
    /// What is known about single models. Models that are not listed can be used too.
    pub models: Vec<ModelConfig>,
    /// How long the provider may send nothing.
    pub timeout_seconds: u64,
    /// Whether responses are streamed.
    pub streams: bool,
    pub quirks: ProviderQuirks,
    /// Further fields of every request.
    pub extra: Map<String, Value>,
    /// Whether a public name may resolve to an address of a private network.
    pub allow_private: bool,
}

impl fmt::Debug for ProviderConfig {
    /// Leaves out key, headers and address, which may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderConfig").field("api", &self.api).field("models", &self.models).finish_non_exhaustive()
    }
}

/// The API that a provider speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelApi {
    /// OpenAI Chat Completions.
    Chat,
    /// OpenAI Responses.
    Responses,
    /// Anthropic Messages.
    Messages,
}

impl ModelApi {
    /// OpenClaw's names and the short ones.
    pub const WORDS: [(&'static str, Self); 6] = [
        ("openai-completions", Self::Chat),
        ("openai-responses", Self::Responses),
        ("anthropic-messages", Self::Messages),
        ("chat", Self::Chat),
        ("responses", Self::Responses),
        ("messages", Self::Messages),
    ];

    /// Returns OpenClaw's name of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "openai-completions",
            Self::Responses => "openai-responses",
            Self::Messages => "anthropic-messages",
        }
    }
}

/// What is known about one model of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelConfig {
    pub id: String,
    pub name: Option<String>,
    /// The most tokens of a request and its response together.
    pub context_window: Option<u64>,
    /// The most tokens of a response.
    pub max_tokens: Option<u64>,
}

/// How a provider differs from the vendor whose API it imitates. The fields have the names and meanings of
/// `wire::upstream::Quirks`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProviderQuirks {
    pub uses_max_tokens: bool,
    pub developer_role: bool,
    pub reasoning_content: bool,
    pub no_stream_options: bool,
    pub system_messages: bool,
    pub no_cache_control: bool,
}

/// The keys of `quirks`, each with its description.
pub(super) const QUIRKS: [(&str, &str); 6] = [
    ("maxTokens", "Chat: the output limit is sent as `max_tokens`."),
    ("developerRole", "Chat: instructions have the role `developer`."),
    ("reasoningContent", "Chat: every assistant message has a `reasoning_content`."),
    ("noStreamOptions", "Chat: `stream_options` is not sent."),
    ("systemMessages", "Messages: instructions inside the conversation have the role `system`."),
    ("noCacheControl", "Messages: `cache_control` is not sent."),
];

impl ModelsConfig {
    /// Resolves the value of `models`; `null` for a configuration without it.
    ///
    /// Keys of OpenClaw that have no meaning here are accepted; [`super::openclaw::unused`] lists them.
    pub fn resolve(models: &Value) -> Result<Self, Vec<ConfigError>> {
        let mut errors = Vec::new();
        let read = match models {
            Value::Null => None,
            given => reader::object(given, &Path::root("models"), &mut errors, Self::read),
        };
        if errors.is_empty() { Ok(read.unwrap_or_default()) } else { Err(errors) }
    }

    fn read(reader: &mut ConfigReader<'_, '_>) -> Self {
        reader.accept_table(keys::MODELS);
        reader.accept_unknown();
        let providers =
            reader.field("providers").map(|(value, path, errors)| reader::entries(value, &path, errors, read_provider));
        Self { providers: providers.unwrap_or_default() }
    }

    /// Returns the provider and the model that `provider/model` names. The model may contain slashes, and the provider is
    /// compared without regard to case.
    pub fn find<'n>(&self, name: &'n str) -> Option<(&str, &ProviderConfig, &'n str)> {
        let (provider, model) = name.trim().split_once('/')?;
        let is = |id: &&String| id.eq_ignore_ascii_case(provider);
        let id = self.providers.keys().find(|id| id.as_str() == provider).or_else(|| self.providers.keys().find(is))?;
        let config = self.providers.get(id)?;
        (!model.is_empty()).then_some((id.as_str(), config, model))
    }
}

fn read_provider(value: &Value, path: &Path, errors: &mut Vec<ConfigError>) -> Option<ProviderConfig> {
    if keys::has_foreign_api(value) {
        return None;
    }
    reader::object(value, path, errors, |reader| {
        reader.accept_table(keys::MODEL_PROVIDER);
        reader.accept_unknown();
        let base_url = required(reader, "baseUrl", "the address of the provider's API", read_address);
        let api_key = reader.field("apiKey").and_then(|(value, path, errors)| read_secret(value, &path, errors));
        let api = required(reader, "api", "the API that the provider speaks", |value, path, errors| {
            choose(value, path, &ModelApi::WORDS).map_err(|error| errors.push(error)).ok()
        });
        let headers =
            reader.field("headers").map(|(value, path, errors)| reader::entries(value, &path, errors, read_secret));
        let models = reader.field("models").map(|(value, path, errors)| read_models(value, &path, errors));
        let config = ProviderConfig {
            base_url: base_url.unwrap_or_default(),
            api_key,
            api: api.unwrap_or(ModelApi::Chat),
            headers: headers.unwrap_or_default(),
            models: models.unwrap_or_default(),
            timeout_seconds: reader.number(&PROVIDER_TIMEOUT_SECONDS).unwrap_or(PROVIDER_TIMEOUT_SECONDS.default),
            streams: reader.flag("stream").unwrap_or(true),
            quirks: reader.object("quirks", read_quirks).unwrap_or_default(),
            extra: read_extra(reader).unwrap_or_default(),
            allow_private: reader.flag("allowPrivate").unwrap_or(false),
        };
        // Without these the provider cannot be called; the error is reported.
        (base_url_is_given(&config) && api.is_some()).then_some(config)
    })
    .flatten()
}

fn base_url_is_given(config: &ProviderConfig) -> bool {
    !config.base_url.is_empty()
}

/// Reads a field that a provider must have.
fn required<T>(
    reader: &mut ConfigReader<'_, '_>,
    key: &'static str,
    expected: &str,
    read: impl FnOnce(&Value, &Path, &mut Vec<ConfigError>) -> Option<T>,
) -> Option<T> {
    if reader.raw(key).is_none() {
        let error = ConfigError::wrong_value(&reader.path().child(key), &Value::Null, expected);
        reader.report(error);
    }
    let (value, path, errors) = reader.field(key)?;
    read(value, &path, errors)
}

fn read_address(value: &Value, path: &Path, errors: &mut Vec<ConfigError>) -> Option<String> {
    let is_address =
        |text: &&str| ["http://", "https://", "${"].iter().any(|start| text.to_ascii_lowercase().starts_with(start));
    let text = value.as_str().map(str::trim).filter(is_address);
    if text.is_none() {
        // The value is not shown, because it may contain a password.
        errors.push(ConfigError::secret_value(path, "an http or https address"));
    }
    text.map(str::to_owned)
}

/// Reads a text that may be secret, or OpenClaw's reference `{source: "env", id}` to a variable.
fn read_secret(value: &Value, path: &Path, errors: &mut Vec<ConfigError>) -> Option<String> {
    let variable = || {
        let is_variable = value.get("source").and_then(Value::as_str) == Some("env");
        let id = value.get("id").and_then(Value::as_str).filter(|id| is_variable && !id.trim().is_empty())?;
        Some(format!("${{{id}}}"))
    };
    let text = value.as_str().filter(|text| !text.trim().is_empty()).map(str::to_owned).or_else(variable);
    if text.is_none() {
        // The value is not shown, because it may be a secret.
        let expected = "a string such as `${secret:NAME}` or `${VARIABLE}`";
        errors.push(ConfigError::secret_value(path, expected));
    }
    text
}

fn read_models(value: &Value, path: &Path, errors: &mut Vec<ConfigError>) -> Vec<ModelConfig> {
    let Value::Array(items) = value else {
        errors.push(ConfigError::wrong_value(path, value, "a list of models"));
        return Vec::new();
    };
    let model = |(position, item): (usize, &Value)| {
        let path = path.item(position);
        reader::object(item, &path, errors, |reader| {
            reader.accept_table(keys::MODEL);
            reader.accept_unknown();
            let id = required(reader, "id", "the model's id", |value, path, errors| {
                let id = value.as_str().filter(|id| !id.trim().is_empty());
                if id.is_none() {
                    errors.push(ConfigError::wrong_value(path, value, "the model's id"));
                }
                id.map(str::to_owned)
            });
            let (name, context_window) = (reader.text("name", "a name"), reader.whole("contextWindow", 1));
            let max_tokens = reader.whole("maxTokens", 1);
            id.map(|id| ModelConfig { id, name, context_window, max_tokens })
        })
        .flatten()
    };
    items.iter().enumerate().filter_map(model).collect()
}

fn read_quirks(reader: &mut ConfigReader<'_, '_>) -> ProviderQuirks {
    let mut is = |key: &'static str| reader.flag(key).unwrap_or(false);
    ProviderQuirks {
        uses_max_tokens: is("maxTokens"),
        developer_role: is("developerRole"),
        reasoning_content: is("reasoningContent"),
        no_stream_options: is("noStreamOptions"),
        system_messages: is("systemMessages"),
        no_cache_control: is("noCacheControl"),
    }
}

/// Fields of a request that give the model tools. They are forbidden in `extra`: a run's tools are those of its surface.
const TOOL_FIELDS: [&str; 6] = ["functions", "mcp_servers", "plugins", "tool_choice", "tools", "web_search_options"];

fn read_extra(reader: &mut ConfigReader<'_, '_>) -> Option<Map<String, Value>> {
    let (value, path, errors) = reader.field("extra")?;
    let Value::Object(fields) = value else {
        errors.push(ConfigError::wrong_value(&path, value, "an object"));
        return None;
    };
    for (key, value) in fields.iter().filter(|(key, _)| TOOL_FIELDS.contains(&key.as_str())) {
        errors.push(ConfigError::wrong_value(
            &path.child(key),
            value,
            "no tools here (`tools` decides which tools a run has)",
        ));
    }
    Some(fields.clone())
}

#[cfg(test)]
mod tests;
