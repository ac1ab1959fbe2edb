//! Merges all configuration files, by precedence and trust, and collects their problems.
//!
//! The user's own files come first, then the user's files of imported clients, then the files of the project, each only
//! while the user trusts its content. So no project's server takes the name of a user's.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use contract::limits::MAX_CONFIG_ENTRIES;
use mcp::{Login, Transport};
use serde_json::{Map, Value};

use crate::clients::Client;
use crate::document::{self, Format, ServerContainer};
use crate::entry::{self, ParsedEntry};
use crate::files::{self, FileError};
use crate::places::{Places, Scope};
use crate::project::Restrictions;
use crate::references::References;
use crate::server::{Origin, Problem, ServerEntry, Source};
use crate::tree::{Lines, Member, SyntaxError, Tree, effective};
use crate::trust::{Trust, TrustRecord, TrustStore};
use crate::variables::{Variables, parse_env_file};
use crate::{display, secrets};

/// The most servers that are used; a machine could hardly run more.
pub(crate) const MAX_SERVERS: usize = 256;

/// The merged configuration of all files.
#[derive(Clone, PartialEq)]
pub struct LoadedConfig {
    /// The servers, in the order of the files; names are unique.
    pub servers: Vec<ServerEntry>,
    /// Everything but servers in our own files, such as `tools` and `agents`; an object.
    pub settings: Value,
    /// Parts of the files that cannot be used, and why.
    pub problems: Vec<Problem>,
    /// The files that were read.
    pub files: Vec<PathBuf>,
    /// The variables and secrets that each server's entry refers to, by the server's name; also of entries that cannot be
    /// used because one is not set.
    pub references: BTreeMap<String, References>,
    /// Every path whose change can change this configuration, whether it exists or not.
    pub watched: Vec<PathBuf>,
}

impl LoadedConfig {
    /// Returns the variables and secrets that all servers and the settings refer to.
    pub fn all_references(&self) -> References {
        let mut all = References::of_settings(&self.settings);
        self.references.values().for_each(|references| all.extend(references));
        all
    }
}

impl fmt::Debug for LoadedConfig {
    /// Leaves out the settings, which may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded")
            .field("servers", &self.servers)
            .field("problems", &self.problems)
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

/// A file of the user's own that cannot be used. Unlike problems in other files, this is fatal.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("`{}` does not exist; create it with `cellmate servers add`", display::path(.0))]
    Missing(PathBuf),
    #[error("`{}`: {why}", display::path(file))]
    File { file: PathBuf, why: FileError },
    #[error("`{}`: {why}", display::path(file))]
    Syntax { file: PathBuf, why: SyntaxError },
    #[error(
        "`{}`: expected an object, found {found}; write `{{ mcpServers: {{ … }} }}`, or run `cellmate servers add`",
        display::path(file)
    )]
    NoObject { file: PathBuf, found: &'static str },
}

/// Reads and merges all configuration files.
pub fn load(places: &Places) -> Result<LoadedConfig, ConfigError> {
    let mut loader = ConfigLoader::new(places);
    loader.take_users_files()?;
    loader.take_projects_files();
    loader.loaded.settings = Value::Object(loader.settings);
    Ok(loader.loaded)
}

/// Returns our configuration files by precedence, whether they exist or not.
pub fn own_files(places: &Places) -> Vec<(PathBuf, Source)> {
    let named = places.named_files();
    if !named.is_empty() {
        return named.into_iter().map(|path| (path, Source::Named)).collect();
    }
    let user = places.user_file().map(|path| (path, Source::User));
    user.into_iter().chain(places.project_files().into_iter().map(|path| (path, Source::Project))).collect()
}

/// Returns a section of the settings, such as `approvals`, from the first of the user's own files that has it, and the
/// file. A project's file is ignored: it comes with the project and does not speak for the user.
pub fn users_section(places: &Places, section: &str) -> Result<Option<(PathBuf, Value)>, ConfigError> {
    for (file, _) in own_files(places).into_iter().filter(|(_, source)| source.is_the_users()) {
        let failed = |why| ConfigError::File { file: file.clone(), why };
        let Some(text) = files::read(&file).map_err(failed)? else { continue };
        let parsed = Format::of(&file).parse_cellmate(&text);
        let tree = parsed.map_err(|why| ConfigError::Syntax { file: file.clone(), why })?;
        if let Some(found) = document::settings(&tree).get(section) {
            return Ok(Some((file, found.clone())));
        }
    }
    Ok(None)
}

/// Returns the project's files that would be read if the user trusted them, whether they exist or not.
pub fn project_files(places: &Places) -> Result<Vec<(PathBuf, Option<Client>)>, ConfigError> {
    let mut loader = ConfigLoader::new(places);
    loader.take_users_files()?;
    Ok(loader.project_files())
}

/// Returns a note if the file that was edited is a project's and is not read, because the user does not trust it.
pub fn trust_note(file: &Path, places: &Places) -> Option<String> {
    let (_, source) = own_files(places).into_iter().find(|(own, _)| own == file)?;
    if source != Source::Project {
        return None;
    }
    let content = files::read_bytes(file).ok()?.unwrap_or_default();
    match TrustStore::of(places).judge(file, &content) {
        // The file stays trusted after an edit by Cellmate.
        Trust::Trusted(_) => None,
        Trust::Changed(_) => Some(
            "this project's file has changed since you trusted it, so it is not read; \
             review it, then run `cellmate config trust`"
                .to_owned(),
        ),
        Trust::Never => {
            Some("this project's file is not trusted yet, so it is not read; run `cellmate config trust`".to_owned())
        }
    }
}

/// Returns the command that trusts the project's files, with the named files, which decide what clients are imported.
fn trust_command(places: &Places) -> String {
    let named = places.named.iter().map(|file| format!(" --config {}", display::for_shell(&display::path(file))));
    format!("cellmate config trust{}", named.collect::<String>())
}

struct ConfigLoader<'p> {
    places: &'p Places,
    trust: TrustStore,
    loaded: LoadedConfig,
    settings: Map<String, Value>,
    names: BTreeSet<String>,
    imports: Vec<Client>,
    /// Folders that an earlier version trusted without recording the content of their files. Only used in messages.
    once_trusted: Vec<PathBuf>,
    /// The trust record of the project's file that is being read.
    record: Option<TrustRecord>,
}

impl<'p> ConfigLoader<'p> {
    fn new(places: &'p Places) -> Self {
        Self {
            places,
            trust: TrustStore::of(places),
            loaded: LoadedConfig {
                servers: Vec::new(),
                settings: Value::Null,
                problems: Vec::new(),
                files: Vec::new(),
                references: BTreeMap::new(),
                watched: Vec::new(),
            },
            settings: Map::new(),
            names: BTreeSet::new(),
            imports: Vec::new(),
            once_trusted: Vec::new(),
            record: None,
        }
    }

    fn take_users_files(&mut self) -> Result<(), ConfigError> {
        self.loaded.watched.extend(self.places.secrets.as_ref().and_then(|secrets| secrets.file()));
        for (file, source) in own_files(self.places).into_iter().filter(|(_, source)| source.is_the_users()) {
            self.own(&file, source)?;
        }
        for client in self.imports.clone() {
            for file in client.files(Scope::User, self.places) {
                self.loaded.watched.push(file.clone());
                match files::read_users(&file) {
                    Ok(Some(text)) => self.take_clients_text(client, &file, &text),
                    Ok(None) => {}
                    Err(why) => self.problem(&file, None, None, why.to_string()),
                }
            }
        }
        Ok(())
    }

    fn take_projects_files(&mut self) {
        for (file, client) in self.project_files() {
            // If the home folder is the project, its files are the user's and have been read.
            if self.loaded.files.contains(&file) {
                continue;
            }
            self.loaded.watched.push(file.clone());
            self.loaded.watched.extend(self.trust.record_file(&file));
            let Some((text, record)) = self.trusted_text(&file) else { continue };
            self.record = Some(record);
            match client {
                Some(client) => self.take_clients_text(client, &file, &text),
                None => self.take_projects_text(&file, &text),
            }
            self.record = None;
        }
    }

    fn project_files(&self) -> Vec<(PathBuf, Option<Client>)> {
        let own = own_files(self.places).into_iter().filter(|(_, source)| *source == Source::Project);
        let of_client = |client: Client| {
            client.files(Scope::Project, self.places).into_iter().map(move |file| (file, Some(client)))
        };
        own.map(|(file, _)| (file, None)).chain(self.imports.iter().copied().flat_map(of_client)).collect()
    }

    /// Returns the text of a project's file if the user trusts it.
    ///
    /// The file is read once, so that the text that is parsed is the one that was hashed.
    fn trusted_text(&mut self, file: &Path) -> Option<(String, TrustRecord)> {
        let content = match files::read_bytes(file) {
            Ok(content) => content?,
            Err(why) => {
                self.problem(file, None, None, format!("this project's file is not read: {why}"));
                return None;
            }
        };
        let command = trust_command(self.places);
        let message = match self.trust.judge(file, &content) {
            Trust::Trusted(record) => match files::text(content) {
                Ok(text) => return Some((text, record)),
                Err(why) => why.to_string(),
            },
            Trust::Changed(_) => format!(
                "it has changed since you trusted it, so it is not read: run `{command} --dry-run` to see which \
                 servers changed, then `{command}` to trust it"
            ),
            Trust::Never if self.was_once_trusted(file) => format!(
                "its folder is in `trustedProjects`, where an earlier version added it without recording the file's \
                 content, so it is not read: review it, then run `{command}`"
            ),
            Trust::Never => {
                format!("this project's file is not read until you trust it: review it, then run `{command}`")
            }
        };
        self.problem(file, None, None, message);
        None
    }

    fn was_once_trusted(&self, file: &Path) -> bool {
        let Some(folder) = file.parent() else { return false };
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let folder = real(folder);
        self.once_trusted.iter().any(|trusted| folder.starts_with(real(trusted)))
    }

    /// Reads a file of the user's own, which must be valid.
    fn own(&mut self, file: &Path, source: Source) -> Result<(), ConfigError> {
        self.loaded.watched.push(file.to_owned());
        let read = if source == Source::Named { files::read_named(file) } else { files::read(file) };
        let text = match read.map_err(|why| ConfigError::File { file: file.to_owned(), why })? {
            None if source == Source::Named => return Err(ConfigError::Missing(file.to_owned())),
            None => return Ok(()),
            Some(text) => text,
        };
        let tree =
            Format::of(file).parse_cellmate(&text).map_err(|why| ConfigError::Syntax { file: file.to_owned(), why })?;
        if !tree.is_map() {
            return Err(ConfigError::NoObject { file: file.to_owned(), found: tree.sort() });
        }
        match self.client_of(file) {
            Some(client) => self.take_clients_servers(client, file, source, &Lines::of(&text), &tree),
            None => {
                self.take_settings(file, &Lines::of(&text), &tree);
                self.take_servers(file, source, &Lines::of(&text), &tree);
            }
        }
        Ok(())
    }

    /// Returns the client that a file belongs to; `None` for ours, and for OpenClaw's, which has our format.
    fn client_of(&self, file: &Path) -> Option<Client> {
        let of = |client: &Client, scope| client.files(scope, self.places).iter().any(|one| one == file);
        let mut others = Client::ALL.into_iter().filter(|client| *client != Client::OpenClaw);
        others.find(|client| of(client, Scope::User) || of(client, Scope::Project))
    }

    fn take_settings(&mut self, file: &Path, lines: &Lines, tree: &Tree) {
        for (key, value) in document::settings(tree) {
            // The first file with a key wins.
            if !self.settings.contains_key(&key) {
                self.settings.insert(key, value);
            }
        }
        self.note_misspelt(file, lines, tree);
        match document::string_list(tree, "trustedProjects") {
            Ok(folders) => self.once_trusted.extend(folders.into_iter().map(|folder| self.places.resolve(folder))),
            Err(found) => self.wrong_list(file, lines, "trustedProjects", found),
        }
        match document::string_list(tree, "imports") {
            Ok(names) => self.take_imports(file, &names),
            Err(found) => self.wrong_list(file, lines, "imports", found),
        }
    }

    fn note_misspelt(&mut self, file: &Path, lines: &Lines, tree: &Tree) {
        if let Some((member, meant)) = document::misspelt(tree) {
            let line = lines.line(member.key_span.start);
            self.problem(file, Some(line), None, format!("`{}`: did you mean `{meant}`?", display::plain(&member.key)));
        }
    }

    fn take_imports(&mut self, file: &Path, names: &[&str]) {
        for name in names {
            match Client::parse(name) {
                Some(client) if self.imports.contains(&client) => {}
                Some(client) => self.imports.push(client),
                None => {
                    let known = Client::ALL.map(Client::name).join(", ");
                    let message =
                        format!("`imports`: unknown client `{}`; expected one of {known}", display::plain(name));
                    self.problem(file, None, None, message);
                }
            }
        }
    }

    fn wrong_list(&mut self, file: &Path, lines: &Lines, key: &str, found: &Tree) {
        let message = format!("`{key}`: expected a list of strings, found {}", found.sort());
        self.problem(file, Some(lines.line(found.span.start)), None, message);
    }

    /// Reads the servers of another client's file. Errors in it are reported as problems, and are not fatal.
    fn take_clients_text(&mut self, client: Client, file: &Path, text: &str) {
        match Format::of(file).parse(text) {
            Ok(tree) => self.take_clients_servers(client, file, Source::Import(client), &Lines::of(text), &tree),
            Err(why) => self.problem(file, Some(why.line), None, why.why),
        }
    }

    /// Reads the servers and restrictions of a project's own file. Its other settings are reported and not applied.
    fn take_projects_text(&mut self, file: &Path, text: &str) {
        let tree = match Format::of(file).parse_cellmate(text) {
            Ok(tree) => tree,
            Err(why) => return self.problem(file, Some(why.line), None, why.why),
        };
        let lines = Lines::of(text);
        self.note_misspelt(file, &lines, &tree);
        let mut restrictions = Restrictions::read(&tree);
        for refusal in std::mem::take(&mut restrictions.refused) {
            self.problem(file, Some(lines.line(refusal.offset)), None, refusal.message);
        }
        restrictions.add_to(&mut self.settings);
        self.take_servers(file, Source::Project, &lines, &tree);
    }

    fn take_clients_servers(&mut self, client: Client, file: &Path, source: Source, lines: &Lines, tree: &Tree) {
        self.loaded.files.push(file.to_owned());
        let variables = variables(self.places, tree);
        for servers in document::clients_servers(tree, client, self.places) {
            self.take(file, source, lines, &servers, &variables);
        }
    }

    fn take_servers(&mut self, file: &Path, source: Source, lines: &Lines, tree: &Tree) {
        self.loaded.files.push(file.to_owned());
        let variables = variables(self.places, tree);
        for servers in document::servers(tree) {
            self.take(file, source, lines, &servers, &variables);
        }
    }

    fn take(
        &mut self,
        file: &Path,
        source: Source,
        lines: &Lines,
        servers: &ServerContainer<'_>,
        variables: &Variables,
    ) {
        for (position, member) in effective(servers.members).enumerate() {
            let line = lines.line(member.key_span.start);
            if position == MAX_CONFIG_ENTRIES {
                let message = format!("it has more than {MAX_CONFIG_ENTRIES} servers; the rest is not read");
                return self.problem(file, Some(line), None, message);
            }
            let origin = Origin { file: file.to_owned(), line, source };
            let read = || entry::read(&member.key, &member.value, origin, variables, servers.dialect);
            // An invalid entry takes its name, too: a server from another file must not silently replace it.
            if !self.names.insert(member.key.clone()) {
                if self.record.is_some() && read().is_ok_and(|entry| self.is_shadowed(&entry.server)) {
                    let message = "your own configuration has a different server with that name, which is used \
                         instead; rename one of them";
                    self.problem(file, Some(line), Some(&member.key), message.to_owned());
                }
                continue;
            }
            let references = References::of_entry(&member.value, servers.dialect);
            self.loaded.references.insert(member.key.clone(), references);
            match read().map_err(|error| error.to_string()).and_then(|entry| self.finish(file, line, entry)) {
                Ok(server) => self.add(file, line, member, server),
                Err(message) => self.problem(file, Some(line), Some(&member.key), message),
            }
        }
    }

    /// Whether the user's configuration has a different server with the same name.
    fn is_shadowed(&self, server: &ServerEntry) -> bool {
        let in_project = |file: &PathBuf| self.project_files().iter().any(|(project, _)| project == file);
        let other = self.loaded.servers.iter().find(|other| other.name == server.name);
        other.is_some_and(|other| other.transport != server.transport && !in_project(&other.origin.file))
    }

    fn add(&mut self, file: &Path, line: usize, member: &Member, server: ServerEntry) {
        if server.starts_cellmate() {
            // In a client's file this is how the client connects to cellmate, so it is skipped silently.
            if server.origin.source.is_ours() {
                let message = "it would start cellmate itself, recursively; remove it".to_owned();
                self.problem(file, Some(line), Some(&member.key), message);
            }
        } else if self.loaded.servers.len() == MAX_SERVERS {
            let message = format!("more than {MAX_SERVERS} servers are configured; remove some");
            self.problem(file, Some(line), Some(&member.key), message);
        } else {
            secrets::register_server(&server.transport, server.hidden_arguments());
            self.loaded.servers.push(server);
        }
    }

    fn finish(&mut self, file: &Path, line: usize, entry: ParsedEntry) -> Result<ServerEntry, String> {
        let ParsedEntry { mut server, env_file, notes } = entry;
        for note in notes {
            self.problem(file, Some(line), Some(&server.name), note);
        }
        if let Transport::Http { login, .. } = &mut server.transport {
            // Without a folder for tokens there is no login.
            *login = login.take().zip(self.places.tokens()).map(|(login, tokens)| Login { tokens, ..login });
        }
        if let (Some(path), Transport::Stdio { env, .. }) = (env_file, &mut server.transport) {
            let path = self.places.resolve(&path.display().to_string());
            self.loaded.watched.push(path.clone());
            let about = |why: &dyn fmt::Display| format!("its `envFile` `{}` {why}", display::path(&path));
            let content = files::read_bytes(&path).map_err(|why| about(&format_args!("cannot be used: {why}")))?;
            let content = content.ok_or_else(|| about(&"does not exist"))?;
            // The env file comes with the project, too, and sets the environment of the server's process.
            if self.record.as_ref().is_some_and(|record| !record.has_env_file(&path, &content)) {
                let command = trust_command(self.places);
                let why = "has changed since you trusted the file that names it: review it, then run";
                return Err(about(&format_args!("{why} `{command}`")));
            }
            let text = files::text(content).map_err(|why| about(&format_args!("cannot be used: {why}")))?;
            for (name, value) in parse_env_file(&text) {
                env.entry(name).or_insert(value);
            }
        }
        Ok(server)
    }

    fn problem(&mut self, file: &Path, line: Option<usize>, server: Option<&str>, message: String) {
        self.loaded.problems.push(Problem { file: file.to_owned(), line, server: server.map(str::to_owned), message });
    }
}

pub(crate) fn variables(places: &Places, tree: &Tree) -> Variables {
    Variables { inputs: document::inputs(tree), ..places.variables() }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::own_files;
    use crate::Places;

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
