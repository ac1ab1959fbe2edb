//! Reading and editing the configuration files of MCP clients, and our own files in the same format.
//!
//! [`load`] merges all files by precedence and trust; [`Change`] edits one in place and keeps its comments. Parsing is
//! pure (`json5`, `toml`, `document`, `entry`, `variables`); `files` reads files, and `edit` writes them.
//!
//! Secrets that are read here are registered with the log's [redactor](telemetry::Redactor).

#![cfg_attr(not(test), warn(clippy::print_stdout))]

mod clients;
mod connection;
pub mod display;
mod document;
mod edit;
mod entry;
mod files;
mod forwarding;
mod gateway;
mod import;
mod inspect;
mod json5;
mod key_path;
mod load;
mod login;
mod places;
mod project;
mod references;
mod review;
mod secrets;
mod server;
mod take_over;
mod toml;
mod tree;
mod trust;
mod variables;

pub use clients::{Client, ForwardedVariables};
pub use connection::{ConnectionRecord, Connections, DisconnectError, MovedServer, disconnect};
pub use edit::{Change, EditError, Intent, Switch, WriteError, WrittenFile};
pub use entry::{LONGEST_TIME_LIMIT, SHORTEST_TIME_LIMIT};
pub use files::{ContentHash, FileError};
pub use gateway::{BadAddress, BadAgentName, GatewayAddress, GatewayRecord, connect_gateway, disconnect_gateway};
pub use import::{ImportError, ImportFile, ImportOutcome, ImportedServers};
pub use inspect::{ConfigFile, FileState, ListedFile, Position, listed_files, parse_value};
pub use key_path::{BadKeyPath, KeyPath};
pub use load::{ConfigError, LoadedConfig, load, own_files, project_files, trust_note, users_section};
pub use places::{Places, Scope, TOOL_LISTS};
pub use references::References;
pub use review::{ProjectReview, check_entry, write_change};
pub use secrets::register_url;
pub use server::{Origin, Problem, ServerEntry, Source};
pub use take_over::{TakenOver, other_servers, take_over};
pub use tree::SyntaxError;
pub use trust::{ServerChanges, TrustRecord, TrustStore};
pub use variables::{ExpansionError, SECRET_NAME_RULE, SecretSource, is_secret_name};

#[cfg(test)]
mod tests;
