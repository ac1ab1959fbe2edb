//! The configured providers.

use std::collections::BTreeMap;
use std::sync::{Arc, Once};
use std::time::Duration;

use contract::config::{ModelApi, ModelsConfig, ProviderConfig, ProviderQuirks};
use reqwest::Client;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use telemetry::Redactor;
use wire::Wire;
use wire::upstream::Quirks;

use super::address::{Endpoint, Guard, Lookup, Reach, SystemLookup};
use super::client::{Provider, ProviderSettings};
use super::limits::{CONNECT, IDLE_CONNECTION, MAX_HEADERS};
use crate::debug::DebugSettings;

/// The version of Anthropic's API that requests ask for.
const ANTHROPIC_VERSION: &str = "2023-06-01";

/// Headers that belong to the connection or to the format of requests, and cannot be configured.
const FIXED_HEADERS: [&str; 11] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// All configured providers, ready to be called.
#[derive(Clone, Debug)]
pub struct Providers {
    config: Arc<ModelsConfig>,
    by_id: Arc<BTreeMap<String, Provider>>,
}

/// A model and the provider that serves it.
#[derive(Clone, Debug)]
pub struct ModelTarget {
    pub provider: Provider,
    /// The model's id at the provider.
    pub model: String,
    pub context_window: Option<u64>,
    pub max_tokens: Option<u64>,
}

/// Why a provider cannot be used. It contains no values of settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{path}`: {problem}")]
pub struct ProviderSetupError {
    pub path: String,
    pub problem: String,
}

impl Providers {
    /// Creates the configured providers. `expand` resolves references such as `${secret:NAME}` in addresses, keys and
    /// headers; the log's redactor then hides the values.
    pub fn new(
        config: &ModelsConfig,
        expand: &dyn Fn(&str) -> Result<String, String>,
        debug: DebugSettings,
    ) -> Result<Self, Vec<ProviderSetupError>> {
        Self::with_lookup(config, expand, debug, &(Arc::new(SystemLookup) as Arc<dyn Lookup>))
    }

    /// Creates the configured providers, whose names are resolved by `lookup`.
    pub fn with_lookup(
        config: &ModelsConfig,
        expand: &dyn Fn(&str) -> Result<String, String>,
        debug: DebugSettings,
        lookup: &Arc<dyn Lookup>,
    ) -> Result<Self, Vec<ProviderSetupError>> {
        install_cryptography();
        let (mut by_id, mut errors) = (BTreeMap::new(), Vec::new());
        for (id, provider) in &config.providers {
            match create(id, provider, expand, debug, lookup) {
                Ok(provider) => drop(by_id.insert(id.clone(), provider)),
                Err(error) => errors.push(error),
            }
        }
        match errors.is_empty() {
            true => Ok(Self { config: Arc::new(config.clone()), by_id: Arc::new(by_id) }),
            false => Err(errors),
        }
    }

    /// Returns the model that `provider/model` names; `None` if there is no such provider.
    pub fn target(&self, name: &str) -> Option<ModelTarget> {
        let (id, config, model) = self.config.find(name)?;
        let known = config.models.iter().find(|known| known.id == model);
        Some(ModelTarget {
            provider: self.by_id.get(id)?.clone(),
            model: model.to_owned(),
            context_window: known.and_then(|known| known.context_window),
            max_tokens: known.and_then(|known| known.max_tokens),
        })
    }

    /// Returns whether the configuration lists the model that `provider/model` names.
    pub fn is_listed(&self, name: &str) -> bool {
        let found = self.config.find(name);
        found.is_some_and(|(_, config, model)| config.models.iter().any(|known| known.id == model))
    }

    /// Returns the ids of all providers.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.by_id.keys().map(String::as_str)
    }
}

fn create(
    id: &str,
    config: &ProviderConfig,
    expand: &dyn Fn(&str) -> Result<String, String>,
    debug: DebugSettings,
    lookup: &Arc<dyn Lookup>,
) -> Result<Provider, ProviderSetupError> {
    let failed = |key: &str| {
        let path = format!("models.providers.{}.{key}", contract::text::line(id, 100));
        move |problem: String| ProviderSetupError { path, problem }
    };
    let wire = wire(config.api);
    let base = expand(&config.base_url).map_err(failed("baseUrl"))?;
    let allowed = if config.allow_private { Reach::Private } else { Reach::Public };
    let endpoint = Endpoint::new(&base, wire, allowed).map_err(failed("baseUrl"))?;
    let key = config.api_key.as_deref().map(expand).transpose().map_err(failed("apiKey"))?;
    let mut headers = HeaderMap::new();
    if let Some(key) = &key {
        add_key(&mut headers, wire, key.trim()).map_err(failed("apiKey"))?;
    }
    if wire == Wire::Messages {
        headers.insert("anthropic-version", HeaderValue::from_static(ANTHROPIC_VERSION));
    }
    for (name, value) in &config.headers {
        let value = expand(value).map_err(failed("headers"))?;
        add_header(&mut headers, name, &value).map_err(failed("headers"))?;
    }
    let client = Client::builder()
        .user_agent(concat!("cellmate/", env!("CARGO_PKG_VERSION")))
        // A proxy would resolve names itself, and so avoid the check of addresses.
        .no_proxy()
        // Another host would receive the prompt.
        .redirect(Policy::none())
        .dns_resolver(Guard::new(endpoint.reach, Arc::clone(lookup)))
        .connect_timeout(CONNECT)
        .pool_idle_timeout(IDLE_CONNECTION)
        .http1_max_headers(MAX_HEADERS)
        .build()
        .map_err(|error| failed("baseUrl")(format!("the HTTP client cannot be created: {error}")))?;
    Ok(Provider::new(ProviderSettings {
        id: id.to_owned(),
        wire,
        url: endpoint.url,
        has_key: key.is_some(),
        headers,
        client,
        idle: Duration::from_secs(config.timeout_seconds),
        streams: config.streams,
        quirks: quirks(config.quirks),
        extra: config.extra.clone(),
        debug,
    }))
}

/// Adds the header that authenticates requests.
fn add_key(headers: &mut HeaderMap, wire: Wire, key: &str) -> Result<(), String> {
    Redactor::global().register(key);
    let (name, value) = match wire {
        Wire::Chat | Wire::Responses => (AUTHORIZATION, format!("Bearer {key}")),
        Wire::Messages => (HeaderName::from_static("x-api-key"), key.to_owned()),
    };
    if key.is_empty() {
        return Err("the key is empty".to_owned());
    }
    headers.insert(name, secret_value(&value)?);
    Ok(())
}

fn add_header(headers: &mut HeaderMap, name: &str, value: &str) -> Result<(), String> {
    let shown = contract::text::line(name, 100);
    let parsed =
        HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("`{shown}` is not the name of a header"))?;
    if FIXED_HEADERS.contains(&parsed.as_str()) {
        return Err(format!("`{shown}` cannot be set, because the gateway sets it itself; remove it"));
    }
    Redactor::global().register(value);
    if let Some((_, credentials)) = value.split_once(' ') {
        Redactor::global().register(credentials);
    }
    headers.insert(parsed, secret_value(value)?);
    Ok(())
}

fn secret_value(value: &str) -> Result<HeaderValue, String> {
    let parsed = HeaderValue::from_str(value);
    let mut value = parsed.map_err(|_| "the value contains characters that a header cannot have".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

fn wire(api: ModelApi) -> Wire {
    match api {
        ModelApi::Chat => Wire::Chat,
        ModelApi::Responses => Wire::Responses,
        ModelApi::Messages => Wire::Messages,
    }
}

fn quirks(given: ProviderQuirks) -> Quirks {
    Quirks {
        uses_max_tokens: given.uses_max_tokens,
        developer_role: given.developer_role,
        reasoning_content: given.reasoning_content,
        no_stream_options: given.no_stream_options,
        system_messages: given.system_messages,
        no_cache_control: given.no_cache_control,
    }
}

fn install_cryptography() {
    static CRYPTOGRAPHY: Once = Once::new();
    // An error means that the program has already installed a provider, which is then used.
    CRYPTOGRAPHY.call_once(|| {
        if rustls::crypto::ring::default_provider().install_default().is_err() {
            tracing::debug!("the cryptography provider of the program is used");
        }
    });
}

#[cfg(test)]
mod tests;
