//! Limits and readers that the parts of a manifest share.

use contract::config::ConfigError;
use contract::config::reader::ConfigReader;
use serde_json::Value;

/// The longest id of a plugin or namespace.
pub(super) const MAX_ID_BYTES: usize = 64;

/// The longest name of a tool.
pub(super) const MAX_NAME_BYTES: usize = 128;

/// The longest name, version or description of a plugin, and the longest prompt of a namespace.
pub(super) const MAX_TEXT_BYTES: usize = 2 << 10;

/// The longest argument of the command, and the number of arguments.
pub(super) const MAX_ARGUMENT_BYTES: usize = 4 << 10;
pub(super) const MAX_ARGUMENTS: usize = 64;

/// The number of environment variables, and the longest name.
pub(super) const MAX_VARIABLES: usize = 64;
pub(super) const MAX_VARIABLE_BYTES: usize = 128;

/// The longest schema of a tool's input or output, and of the configuration.
pub(super) const MAX_SCHEMA_BYTES: usize = 128 << 10;

/// Ids that stand for something else. The owner of core tools is among them: a namespace may only call tools of its own
/// plugin, by owner.
pub(super) const RESERVED_IDS: [&str; 8] =
    ["core", "openclaw", "plugin", "plugins", "mcp", "bundle-mcp", "client", "cellmate"];

/// Reads a text that must be there and for which `is_valid` holds.
pub(super) fn required(
    reader: &mut ConfigReader<'_, '_>,
    key: &'static str,
    expected: &str,
    is_valid: impl Fn(&str) -> bool,
) -> Option<String> {
    let path = reader.path().child(key);
    match reader.field(key) {
        Some((Value::String(text), _, _)) if is_valid(text) => Some(text.clone()),
        Some((value, path, errors)) => {
            errors.push(ConfigError::wrong_value(&path, value, expected));
            None
        }
        None => {
            reader.report(ConfigError::wrong_value(&path, &Value::Null, expected));
            None
        }
    }
}

/// Reads a text of at most `bytes` that must be there and must not be blank.
pub(super) fn text(reader: &mut ConfigReader<'_, '_>, key: &'static str, bytes: usize) -> Option<String> {
    let expected = format!("a text of at most {bytes} bytes that is not blank");
    required(reader, key, &expected, |text| !text.trim().is_empty() && text.len() <= bytes)
}

/// Whether a text may be the id of a plugin.
pub(crate) fn is_id(text: &str) -> bool {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    let starts = text.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    is_plain && starts && !text.ends_with('-') && text.len() <= MAX_ID_BYTES && !RESERVED_IDS.contains(&text)
}
