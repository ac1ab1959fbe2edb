//! Reads the OAuth settings of a server's entry, in any client's format.
//!
//! Claude Code and VS Code have `oauth` with `clientId`; Claude Code adds a port, and scopes in one string. Gemini CLI
//! and opencode add a secret and a redirect URL. Codex has the same in snake case, with scopes outside of `oauth`.
//! Cursor has `auth` with upper-case keys.

use std::path::PathBuf;

use mcp::{Callback, Login};

use crate::entry::{EntryError, Fields, optional, string_list, text};
use crate::tree::{Kind, Tree};

const CLIENT_IDS: [&str; 3] = ["clientId", "client_id", "CLIENT_ID"];
const CLIENT_SECRETS: [&str; 3] = ["clientSecret", "client_secret", "CLIENT_SECRET"];
const SCOPES: [&str; 2] = ["scopes", "scope"];
const CALLBACKS: [&str; 3] = ["callbackUrl", "callback_url", "redirectUri"];
const CALLBACK_PORT: &str = "callbackPort";

impl Fields<'_> {
    /// Returns the login settings, or `None` if the entry disables login. The caller sets the folder for tokens.
    pub(crate) fn login(&self) -> Result<Option<Login>, EntryError> {
        let mut login = Login::new(PathBuf::new());
        login.scopes = scopes(self.tree)?;
        let given = ["oauth", "auth"].iter().find_map(|key| Some((*key, self.tree.get(key)?)));
        let (key, below) = match given {
            Some((_, Tree { kind: Kind::Bool(false), .. })) => return Ok(None),
            Some((key, below)) if below.is_map() => (key, self.within(below)),
            // Some clients only state that there is a login. Whether one is needed, the server reports.
            Some((_, Tree { kind: Kind::Bool(true) | Kind::Text(_) | Kind::Null, .. })) | None => {
                return Ok(Some(login));
            }
            Some((key, below)) => return Err(format!("`{key}`: expected an object, found {}", below.sort()).into()),
        };
        let at = |error| within(key, error);
        login.client_id = below.first(&CLIENT_IDS).map_err(at)?;
        login.client_secret = below.first(&CLIENT_SECRETS).map_err(at)?;
        if login.client_secret.is_some() && login.client_id.is_none() {
            return Err(format!("`{key}`: `clientSecret` needs `clientId`; write both").into());
        }
        let scopes = scopes(below.tree).map_err(|why| at(why.into()))?;
        if !scopes.is_empty() {
            login.scopes = scopes;
        }
        if let Some(callback) = below.callback().map_err(at)? {
            login.callback = callback;
        }
        Ok(Some(login))
    }

    fn callback(&self) -> Result<Option<Callback>, EntryError> {
        if let Some(port) = optional(self.tree, CALLBACK_PORT, "a port from 1 to 65535", port)? {
            return Ok(Some(Callback::at_port(port)));
        }
        let Some(url) = self.first(&CALLBACKS)? else { return Ok(None) };
        Callback::parse(&url).map(Some).map_err(|error| format!("invalid redirect URL: {error}").into())
    }

    fn first(&self, keys: &[&str]) -> Result<Option<String>, EntryError> {
        let found = keys.iter().find(|key| self.tree.get(key).is_some());
        Ok(found.map(|key| self.expanded_text(key)).transpose()?.flatten().filter(|text| !text.is_empty()))
    }
}

fn port(tree: &Tree) -> Option<u16> {
    match &tree.kind {
        Kind::Number(number) => u16::try_from(number.as_u64()?).ok().filter(|port| *port > 0),
        Kind::Null | Kind::Bool(_) | Kind::Text(_) | Kind::List(_) | Kind::Map(_) => None,
    }
}

/// Reads scopes from a list, or from one string with spaces between them.
fn scopes(tree: &Tree) -> Result<Vec<String>, String> {
    let Some(key) = SCOPES.iter().find(|key| tree.get(key).is_some()) else { return Ok(Vec::new()) };
    match tree.get(key) {
        Some(found) if found.items().is_some() => string_list(found, key),
        _ => Ok(text(tree, key)?.unwrap_or_default().split_ascii_whitespace().map(str::to_owned).collect()),
    }
}

fn within(key: &str, error: EntryError) -> EntryError {
    match error {
        EntryError::Wrong(message) => EntryError::Wrong(format!("`{key}`: {message}")),
        unset @ EntryError::Unset(_) => unset,
    }
}
