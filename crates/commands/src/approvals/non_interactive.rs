//! Whether the user allows approving calls without a terminal.

use client_config::{Places, display, users_section};
use serde_json::Value;

/// Reads `approvals.nonInteractive` from the user's own file, or from the files named instead of it.
///
/// A project's file is ignored: it comes with the project and does not speak for the user.
pub(super) fn is_allowed(places: &Places) -> Result<bool, String> {
    // As with all settings, the first file with the section wins.
    let found = users_section(places, "approvals").map_err(|error| error.to_string())?;
    let Some((file, approvals)) = found else { return Ok(false) };
    match approvals.get("nonInteractive") {
        None => Ok(false),
        Some(Value::Bool(allowed)) => Ok(*allowed),
        Some(_) => Err(format!("`{}`: `approvals.nonInteractive`: expected true or false", display::path(&file))),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use client_config::Places;

    use super::is_allowed;

    fn places(folder: &Path, named: &[&str]) -> Places {
        let named: Vec<_> = named.iter().map(|name| folder.join(name)).collect();
        let environment = [("HOME", "home"), ("XDG_CONFIG_HOME", "config")];
        let environment =
            environment.map(|(name, below)| (name.to_owned(), folder.join(below).to_str().unwrap().to_owned()));
        Places::of(&named, folder.join("project"), environment.into())
    }

    #[test]
    fn only_the_users_own_files_can_allow_non_interactive_approval() {
        const YES: &str = "{ approvals: { nonInteractive: true } }";
        type Case<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str], Result<bool, &'a str>);
        let cases: [Case<'_>; 8] = [
            (&[], &[], Ok(false)),
            (&[("config/cellmate/config.json5", YES)], &[], Ok(true)),
            (&[("config/cellmate/config.json5", "{ approvals: {} }")], &[], Ok(false)),
            (&[("config/cellmate/config.json5", "{ approvals: { nonInteractive: false } }")], &[], Ok(false)),
            (&[("config/cellmate/config.json5", "{ approvals: { nonInteractive: 1 } }")], &[], Err("true or false")),
            (&[("project/.cellmate.json5", YES)], &[], Ok(false)),
            (
                &[
                    ("config/cellmate/config.json5", "{ trustedProjects: ['~/../project', '.'] }"),
                    ("project/.cellmate.json5", YES),
                ],
                &[],
                Ok(false),
            ),
            (&[("mine.json5", YES)], &["mine.json5"], Ok(true)),
        ];
        for (files, named, expected) in cases {
            let folder = tempfile::tempdir().unwrap();
            for (name, text) in files {
                let path = folder.path().join(name);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            let found = is_allowed(&places(folder.path(), named));
            match expected {
                Ok(allowed) => assert_eq!(found, Ok(allowed), "{files:?}"),
                Err(why) => assert!(found.unwrap_err().contains(why), "{files:?}"),
            }
        }
    }
}
