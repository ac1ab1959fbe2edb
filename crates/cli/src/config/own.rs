//! Cellmate's own configuration files.

use std::path::PathBuf;

use super::places::Places;
use super::server::Source;

/// Returns our configuration files by precedence, whether they exist or not.
pub(crate) fn own_files(places: &Places) -> Vec<(PathBuf, Source)> {
    let named = places.named_files();
    if !named.is_empty() {
        return named.into_iter().map(|path| (path, Source::Named)).collect();
    }
    let user = places.user_file().map(|path| (path, Source::User));
    user.into_iter().chain(places.project_files().into_iter().map(|path| (path, Source::Project))).collect()
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::own_files;
    use crate::config::Places;

    fn places(named: &[&str], environment: &[(&str, &str)]) -> Places {
        let named: Vec<PathBuf> = named.iter().map(PathBuf::from).collect();
        let owned = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Places::of(&named, PathBuf::from("/none/project"), owned.collect())
    }

    fn files(places: &Places) -> Vec<String> {
        own_files(places).iter().map(|(path, source)| format!("{} {}", source.as_str(), path.display())).collect()
    }

    #[test]
    fn a_named_file_is_read_alone_and_otherwise_the_users_comes_before_the_projects() {
        let home = ("HOME", "/home/me");
        assert_eq!(
            files(&places(&["a.json5", "/b"], &[home, ("CELLMATE_CONFIG", "/c")])),
            ["named /none/project/a.json5", "named /b"]
        );
        assert_eq!(files(&places(&[], &[home, ("CELLMATE_CONFIG", "/c")])), ["named /c"]);
        let both = ["user /home/me/.config/cellmate/config.json5", "project /none/project/.cellmate.json5"];
        assert_eq!(files(&places(&[], &[home])), both);
        assert_eq!(files(&places(&[], &[home, ("XDG_CONFIG_HOME", "relative")])), both);
        let moved = places(&[], &[home, ("XDG_CONFIG_HOME", "/x")]);
        assert_eq!(moved.user_file().as_deref(), Some(Path::new("/x/cellmate/config.json5")));
        assert_eq!(files(&places(&[], &[])), ["project /none/project/.cellmate.json5"]);
    }
}
