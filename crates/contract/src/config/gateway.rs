//! `gateway`: how the gateway serves turns of agents.

use serde_json::Value;

use super::error::{ConfigError, Path};
use super::numbers::Numbers;
use super::openclaw::keys;
use super::reader;
use crate::limits::{self, GATEWAY_NUMBERS};

/// The resolved configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatewayConfig {
    /// How long a request is held open while a turn waits, for example for an approval.
    pub hold_seconds: u64,
    /// How long a call of a client's tool may stay without a result.
    pub client_tool_ttl_seconds: u64,
    /// How long further calls of client tools are collected before they are sent to the client together.
    pub client_tool_wait_ms: u64,
    /// How often a waiting stream sends a sign of life.
    pub keep_alive_seconds: u64,
    /// How long a turn continues after its client has disconnected.
    pub abandoned_seconds: u64,
    /// The most turns that run at once.
    pub max_concurrent_turns: u64,
}

impl GatewayConfig {
    /// Resolves the value of `gateway`; `null` for a configuration without it.
    ///
    /// Keys of OpenClaw that have no meaning here are accepted; [`super::openclaw::unused`] lists them.
    pub fn resolve(gateway: &Value) -> Result<Self, Vec<ConfigError>> {
        let mut errors = Vec::new();
        let numbers = match gateway {
            Value::Null => None,
            given => reader::object(given, &Path::root("gateway"), &mut errors, |reader| {
                reader.accept_table(keys::GATEWAY);
                reader.accept_unknown();
                Numbers::read(reader, &GATEWAY_NUMBERS)
            }),
        };
        if !errors.is_empty() {
            return Err(errors);
        }
        let numbers = numbers.unwrap_or_default();
        Ok(Self {
            hold_seconds: numbers.get(&limits::HOLD_SECONDS),
            client_tool_ttl_seconds: numbers.get(&limits::CLIENT_TOOL_TTL_SECONDS),
            client_tool_wait_ms: numbers.get(&limits::CLIENT_TOOL_WAIT_MS),
            keep_alive_seconds: numbers.get(&limits::KEEP_ALIVE_SECONDS),
            abandoned_seconds: numbers.get(&limits::ABANDONED_SECONDS),
            max_concurrent_turns: numbers.get(&limits::MAX_CONCURRENT_TURNS),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::GatewayConfig;

    #[test]
    fn missing_settings_have_their_defaults() {
        let defaults = GatewayConfig::resolve(&Value::Null).unwrap();
        assert_eq!(defaults, GatewayConfig::resolve(&json!({"port": 18789, "auth": {}, "newKey": 1})).unwrap());
        let expected = GatewayConfig {
            hold_seconds: 240,
            client_tool_ttl_seconds: 86_400,
            client_tool_wait_ms: 250,
            keep_alive_seconds: 10,
            abandoned_seconds: 30,
            max_concurrent_turns: 256,
        };
        assert_eq!(defaults, expected);
    }

    #[test]
    fn numbers_are_clamped_and_typos_are_errors() {
        let ttl = |seconds: u64| {
            GatewayConfig::resolve(&json!({"clientToolTtlSeconds": seconds})).unwrap().client_tool_ttl_seconds
        };
        assert_eq!((ttl(0), ttl(60), ttl(604_800), ttl(u64::MAX)), (60, 60, 604_800, 604_800));
        let errors = GatewayConfig::resolve(&json!({"holdSecond": 1, "keepAliveSeconds": "10s"})).unwrap_err();
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "`gateway.keepAliveSeconds`: expected a whole number from 1 to 300, found `\"10s\"`",
                "`gateway.holdSecond`: unknown key; did you mean `holdSeconds`?",
            ]
        );
        assert!(GatewayConfig::resolve(&json!([])).is_err());
    }
}
