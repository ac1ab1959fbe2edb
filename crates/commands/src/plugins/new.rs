//! `cellmate plugins new`: writes a small plugin that works, to begin with.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

use ::tools::plugins::{MANIFEST_FILE, Manifest};
use clap::{Args, ValueEnum};
use client_config::display::for_shell;
use serde_json::json;

use crate::render;

#[derive(Debug, Args)]
pub(super) struct NewArguments {
    /// Folder to create; its name is the plugin's id.
    folder: PathBuf,
    /// Language of the plugin.
    #[arg(long, value_enum, default_value_t = Template::Python)]
    template: Template,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Template {
    Python,
    Shell,
}

/// A file of a template.
struct TemplateFile {
    name: &'static str,
    text: &'static str,
    mode: u32,
}

impl Template {
    fn files(self) -> [TemplateFile; 2] {
        match self {
            Self::Python => [
                TemplateFile {
                    name: MANIFEST_FILE,
                    text: include_str!("templates/python/cellmate.plugin.json"),
                    mode: 0o644,
                },
                TemplateFile { name: "main.py", text: include_str!("templates/python/main.py"), mode: 0o644 },
            ],
            Self::Shell => [
                TemplateFile {
                    name: MANIFEST_FILE,
                    text: include_str!("templates/shell/cellmate.plugin.json"),
                    mode: 0o644,
                },
                TemplateFile { name: "main.sh", text: include_str!("templates/shell/main.sh"), mode: 0o755 },
            ],
        }
    }
}

/// The id in the templates, which is replaced.
const TEMPLATE_ID: &str = "my-plugin";

pub(super) fn run(arguments: &NewArguments) -> ExitCode {
    match write(arguments) {
        Ok(files) if arguments.json => render::print_json(&json!({"folder": arguments.folder, "files": files})),
        Ok(_) => {
            let folder = for_shell(&arguments.folder.display().to_string());
            let tested = for_shell(&as_path(&arguments.folder).display().to_string());
            render::print(&format!("created {folder}; try it with `cellmate plugins test {tested} --call greet`\n"));
        }
        Err(message) => return render::fatal(&message),
    }
    ExitCode::SUCCESS
}

/// Returns the folder as a path that cannot be taken for the id of an installed plugin.
fn as_path(folder: &Path) -> PathBuf {
    match folder.components().next() {
        Some(Component::Normal(_)) => Path::new(".").join(folder),
        _ => folder.to_owned(),
    }
}

fn write(arguments: &NewArguments) -> Result<Vec<&'static str>, String> {
    let folder = &arguments.folder;
    let id = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let files = arguments.template.files();
    for file in files.iter().filter(|file| file.name == MANIFEST_FILE) {
        let text = file.text.replace(TEMPLATE_ID, id);
        // The name of the folder must be a valid id.
        Manifest::read(text.as_bytes(), &folder.join(file.name)).map_err(|error| error.to_string())?;
    }
    let failed = |path: &Path, error: &io::Error| format!("cannot write `{}`: {error}", path.display());
    fs::create_dir(folder).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            format!("`{}` exists already; choose another folder, or remove it first", folder.display())
        }
        io::ErrorKind::NotFound => {
            format!("cannot create `{}`: the folder above it does not exist; create it first", folder.display())
        }
        _ => failed(folder, &error),
    })?;
    for file in &files {
        let path = folder.join(file.name);
        let created = fs::OpenOptions::new().write(true).create_new(true).mode(file.mode).open(&path);
        created
            .and_then(|mut opened| opened.write_all(file.text.replace(TEMPLATE_ID, id).as_bytes()))
            .map_err(|error| failed(&path, &error))?;
    }
    Ok(files.iter().map(|file| file.name).collect())
}
