//! All files together: who wins, who is trusted, what is a problem.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use mcp::{Login, Transport};
use serde_json::{Map, Value};

use super::clients::{Client, Scope};
use super::document::{self, Format, Servers};
use super::entry::{self, Entry};
use super::files::{self, FileError};
use super::own::own_files;
use super::places::Places;
use super::server::{Origin, Problem, ServerEntry, Source};
use super::tree::{Member, SyntaxError, Tree, line_of};
use super::variables::Variables;
use super::{Loaded, env_file, itself, shown};

/// More servers than this are more than a machine can run.
const MAX_SERVERS: usize = 256;

/// Nothing can be begun with such a file: it is the one that says what to begin with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("`{}` does not exist; `cellmate servers add` makes one", .0.display())]
    Missing(PathBuf),
    #[error("`{}`: {why}", file.display())]
    File { file: PathBuf, why: FileError },
    #[error("`{}`: {why}", file.display())]
    Syntax { file: PathBuf, why: SyntaxError },
}

pub(crate) fn load(places: &Places) -> Result<Loaded, ConfigError> {
    let mut gathering = Gathering::new(places);
    for (file, source) in own_files(places) {
        gathering.own(&file, source)?;
    }
    for client in gathering.imports.clone() {
        gathering.import(client);
    }
    gathering.loaded.settings = Value::Object(gathering.settings);
    Ok(gathering.loaded)
}

/// What to say of a file that something was put into and that is not read: a project's, in a folder nobody trusts.
pub(crate) fn trust_note(file: &Path, places: &Places) -> Option<String> {
    let (_, source) = own_files(places).into_iter().find(|(own, _)| own == file)?;
    let mut gathering = Gathering::new(places);
    let read = places.user_file().map(|user| gathering.own(&user, Source::User));
    let trusted = source != Source::Project || (matches!(read, Some(Ok(()))) && gathering.is_trusted(file));
    (!trusted).then(|| {
        "this folder is not trusted yet, so its file is not read; `cellmate servers trust` trusts it".to_owned()
    })
}

struct Gathering<'p> {
    places: &'p Places,
    loaded: Loaded,
    settings: Map<String, Value>,
    names: BTreeSet<String>,
    imports: Vec<Client>,
    /// Folders whose files may start processes.
    trusted: Vec<PathBuf>,
}

impl<'p> Gathering<'p> {
    fn new(places: &'p Places) -> Self {
        Self {
            places,
            loaded: Loaded { servers: Vec::new(), settings: Value::Null, problems: Vec::new(), files: Vec::new() },
            settings: Map::new(),
            names: BTreeSet::new(),
            imports: Vec::new(),
            trusted: Vec::new(),
        }
    }

    /// A file of ours. The user's and a named one must be right; a project's may be anybody's work.
    fn own(&mut self, file: &Path, source: Source) -> Result<(), ConfigError> {
        let read = files::read(file).map_err(|why| ConfigError::File { file: file.to_owned(), why });
        let parsed = read.and_then(|text| match text {
            None if source == Source::Named => Err(ConfigError::Missing(file.to_owned())),
            None => Ok(None),
            Some(text) => match Format::of(file).parse(&text) {
                Ok(tree) => Ok(Some((text, tree))),
                Err(why) => Err(ConfigError::Syntax { file: file.to_owned(), why }),
            },
        });
        let (text, tree) = match parsed {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(()),
            Err(error) if source == Source::Project => {
                self.problem(file, None, None, error.to_string());
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if source == Source::Project && !self.is_trusted(file) {
            let message = "a project's file, which is not read until you trust its folder: \
                 look at it, then run `cellmate servers trust`";
            self.problem(file, None, None, message.to_owned());
            return Ok(());
        }
        match self.client_of(file) {
            Some(client) => self.take_clients_servers(client, file, source, &text, &tree),
            None => {
                self.take_settings(file, &text, &tree);
                self.take_servers(file, source, &text, &tree);
            }
        }
        Ok(())
    }

    /// Whose file it is that somebody named; OpenClaw's is read as if it were ours.
    fn client_of(&self, file: &Path) -> Option<Client> {
        let of = |client: &Client, scope| client.files(scope, self.places).iter().any(|one| one == file);
        let mut others = Client::ALL.into_iter().filter(|client| *client != Client::OpenClaw);
        others.find(|client| of(client, Scope::User) || of(client, Scope::Project))
    }

    fn is_trusted(&self, file: &Path) -> bool {
        let Some(folder) = file.parent() else { return false };
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let folder = real(folder);
        self.trusted.iter().any(|trusted| folder.starts_with(real(trusted)))
    }

    fn take_settings(&mut self, file: &Path, text: &str, tree: &Tree) {
        for (key, value) in document::settings(tree) {
            // First wins, key by key.
            if !self.settings.contains_key(&key) {
                self.settings.insert(key, value);
            }
        }
        if let Some((member, meant)) = document::misspelt(tree) {
            let line = line_of(text, member.key_span.start);
            self.problem(file, Some(line), None, format!("`{}`: did you mean `{meant}`?", shown::plain(&member.key)));
        }
        match document::words(tree, "trustedProjects") {
            Ok(folders) => self.trusted.extend(folders.into_iter().map(|folder| self.places.resolve(folder))),
            Err(found) => self.wrong_list(file, text, "trustedProjects", found),
        }
        match document::words(tree, "imports") {
            Ok(names) => self.take_imports(file, &names),
            Err(found) => self.wrong_list(file, text, "imports", found),
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
                        format!("`imports`: `{}` is no client we know; known are {known}", shown::plain(name));
                    self.problem(file, None, None, message);
                }
            }
        }
    }

    fn wrong_list(&mut self, file: &Path, text: &str, key: &str, found: &Tree) {
        let message = format!("`{key}`: expected a list of texts, found {}", found.sort());
        self.problem(file, Some(line_of(text, found.span.start)), None, message);
    }

    /// What another client has. Whatever is wrong there is a problem, and no more.
    fn import(&mut self, client: Client) {
        for scope in [Scope::Project, Scope::User] {
            for file in client.files(scope, self.places) {
                let text = match files::read(&file) {
                    Ok(Some(text)) => text,
                    Ok(None) => continue,
                    Err(why) => {
                        self.problem(&file, None, None, why.to_string());
                        continue;
                    }
                };
                if scope == Scope::Project && !self.is_trusted(&file) {
                    let message = "a project's file, whose servers are not read until you trust its folder: \
                         look at it, then run `cellmate servers trust`";
                    self.problem(&file, None, None, message.to_owned());
                    continue;
                }
                match Format::of(&file).parse(&text) {
                    Ok(tree) => self.take_clients_servers(client, &file, Source::Import(client), &text, &tree),
                    Err(why) => self.problem(&file, Some(why.line), None, why.why),
                }
            }
        }
    }

    fn take_clients_servers(&mut self, client: Client, file: &Path, source: Source, text: &str, tree: &Tree) {
        self.loaded.files.push(file.to_owned());
        let folder = self.places.folder.display().to_string();
        let variables = variables(self.places, tree);
        for found in client.containers(&folder).iter().filter_map(|path| tree.at(path)) {
            let servers = Servers { path: client.container(), members: found.members(), dialect: client.dialect() };
            self.take(file, source, text, &servers, &variables);
        }
    }

    fn take_servers(&mut self, file: &Path, source: Source, text: &str, tree: &Tree) {
        self.loaded.files.push(file.to_owned());
        let variables = variables(self.places, tree);
        for servers in document::servers(tree) {
            self.take(file, source, text, &servers, &variables);
        }
    }

    fn take(&mut self, file: &Path, source: Source, text: &str, servers: &Servers<'_>, variables: &Variables) {
        for member in servers.members {
            let line = line_of(text, member.key_span.start);
            // A name is taken also by an entry that is no good: another server must not step in for it unasked.
            if !self.names.insert(member.key.clone()) {
                continue;
            }
            let origin = Origin { file: file.to_owned(), line, source };
            let read = entry::read(&member.key, &member.value, origin, variables, servers.dialect);
            match read.map_err(|error| error.to_string()).and_then(|entry| self.finish(file, line, entry)) {
                Ok(server) => self.add(file, line, member, server),
                Err(message) => self.problem(file, Some(line), Some(&member.key), message),
            }
        }
    }

    fn add(&mut self, file: &Path, line: usize, member: &Member, server: ServerEntry) {
        if itself::is_us(&server.transport) {
            // In a client's file that is how it is connected to us; for us it would be a circle.
            if server.origin.source.is_ours() {
                let message = "it starts cellmate itself, which would never end; remove it".to_owned();
                self.problem(file, Some(line), Some(&member.key), message);
            }
        } else if self.loaded.servers.len() == MAX_SERVERS {
            let message = format!("there are more than {MAX_SERVERS} servers; remove some");
            self.problem(file, Some(line), Some(&member.key), message);
        } else {
            self.loaded.servers.push(server);
        }
    }

    fn finish(&mut self, file: &Path, line: usize, entry: Entry) -> Result<ServerEntry, String> {
        let Entry { mut server, env_file, note } = entry;
        if let Some(note) = note {
            self.problem(file, Some(line), Some(&server.name), note);
        }
        if let Transport::Http { login, .. } = &mut server.transport {
            // Without a place to keep tokens nobody logs in.
            *login = login.take().zip(self.places.tokens()).map(|(login, tokens)| Login { tokens, ..login });
        }
        if let (Some(path), Transport::Stdio { env, .. }) = (env_file, &mut server.transport) {
            let path = self.places.resolve(&path.display().to_string());
            let text = files::read(&path).map_err(|why| format!("its `envFile` `{}`: {why}", path.display()))?;
            let text = text.ok_or_else(|| format!("its `envFile` `{}` does not exist", path.display()))?;
            for (name, value) in env_file::parse(&text) {
                env.entry(name).or_insert(value);
            }
        }
        Ok(server)
    }

    fn problem(&mut self, file: &Path, line: Option<usize>, server: Option<&str>, message: String) {
        self.loaded.problems.push(Problem { file: file.to_owned(), line, server: server.map(str::to_owned), message });
    }
}

pub(super) fn variables(places: &Places, tree: &Tree) -> Variables {
    Variables {
        environment: places.environment.clone(),
        home: places.home.clone(),
        folder: places.folder.clone(),
        inputs: document::inputs(tree),
    }
}
