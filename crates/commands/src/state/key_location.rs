//! The key file that the environment or the user's own configuration names.

use std::path::PathBuf;

use client_config::{Places, users_section};

pub(super) const KEY_FILE_VARIABLE: &str = "CELLMATE_KEY_FILE";

/// Returns the named key file, if any.
pub(crate) fn configured_key_file(places: &Places) -> Option<PathBuf> {
    if let Some(path) = places.variable(KEY_FILE_VARIABLE) {
        return Some(PathBuf::from(path));
    }
    // If the configuration cannot be read, loading it reports that.
    let (_, section) = users_section(places, "store").ok()??;
    let path = section.get("keyFile")?.as_str()?;
    Some(places.resolve(&places.expand(path).ok()?))
}
