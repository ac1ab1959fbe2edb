use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use contract::limits::{MAX_PLUGIN_FILES, MAX_PLUGIN_VERSIONS};
use serde_json::json;

use super::{ContentError, PluginError, PluginFolder, inspect};

/// Writes the folder of a plugin with this version.
fn write_plugin(folder: &Path, version: &str) {
    fs::create_dir_all(folder.join("lib")).unwrap();
    let manifest = json!({
        "id": "demo", "name": "Demo", "version": version, "description": "A demo.", "command": ["./run.sh"],
        "tools": [{"name": "say", "description": "Says."}],
    });
    fs::write(folder.join("cellmate.plugin.json"), manifest.to_string()).unwrap();
    fs::write(folder.join("run.sh"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(folder.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(folder.join("lib/data.txt"), "x").unwrap();
}

struct Place {
    folder: tempfile::TempDir,
    plugins: PluginFolder,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let plugins = PluginFolder::new(folder.path().join("state/plugins"));
        write_plugin(&folder.path().join("source"), "1.0.0");
        Self { folder, plugins }
    }

    fn source(&self) -> std::path::PathBuf {
        self.folder.path().join("source")
    }

    fn add(&self) -> Result<super::InstalledPlugin, PluginError> {
        self.plugins.add(&self.source(), &inspect(&self.source())?.hash, 7)
    }
}

#[test]
fn a_plugin_is_copied_and_its_copy_is_verified() {
    let place = Place::new();
    fs::create_dir(place.source().join("__pycache__")).unwrap();
    fs::write(place.source().join("__pycache__/x.pyc"), "x").unwrap();
    let added = place.add().unwrap();
    assert_eq!(added.verify().unwrap().version, "1.0.0");
    let mode = |path: &str| fs::metadata(added.folder.join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("run.sh"), mode("lib/data.txt"), mode("lib")), (0o700, 0o600, 0o700));
    assert!(!added.folder.join("__pycache__").exists());
    // The source is no longer needed, and its changes have no effect.
    fs::remove_dir_all(place.source()).unwrap();
    assert!(place.plugins.get("demo").unwrap().verify().is_ok());
}

#[test]
fn any_change_of_the_copy_is_refused() {
    let changes: [fn(&Path); 6] = [
        |folder| fs::write(folder.join("run.sh"), "#!/bin/sh\nrm").unwrap(),
        |folder| fs::write(folder.join("new.txt"), "").unwrap(),
        |folder| fs::remove_file(folder.join("lib/data.txt")).unwrap(),
        |folder| fs::set_permissions(folder.join("lib/data.txt"), fs::Permissions::from_mode(0o700)).unwrap(),
        |folder| fs::rename(folder.join("lib/data.txt"), folder.join("lib/other.txt")).unwrap(),
        |folder| {
            fs::remove_file(folder.join("run.sh")).unwrap();
            symlink("/bin/sh", folder.join("run.sh")).unwrap();
        },
    ];
    for change in changes {
        let place = Place::new();
        let added = place.add().unwrap();
        change(&added.folder);
        let error = place.plugins.get("demo").unwrap().verify().unwrap_err();
        assert!(matches!(error, PluginError::Changed { .. }), "{error}");
        // Adding it again repairs the copy.
        assert!(place.add().unwrap().verify().is_ok());
    }
}

#[test]
fn versions_are_kept_and_can_be_rolled_back_to() {
    let place = Place::new();
    let first = place.add().unwrap();
    assert!(matches!(place.plugins.rollback("demo", None), Err(PluginError::NoEarlierVersion(_))));
    write_plugin(&place.source(), "2.0.0");
    let second = place.add().unwrap();
    assert_ne!(first.record.active, second.record.active);
    assert_eq!(second.verify().unwrap().version, "2.0.0");
    assert_eq!(place.plugins.rollback("demo", None).unwrap().version, "1.0.0");
    assert_eq!(place.plugins.get("demo").unwrap().verify().unwrap().version, "1.0.0");
    assert_eq!(place.plugins.rollback("demo", Some("2.0.0")).unwrap().hash, second.record.active);
    assert!(matches!(place.plugins.rollback("demo", Some("3")), Err(PluginError::NoSuchVersion { .. })));
    for number in 3..10 {
        write_plugin(&place.source(), &format!("{number}.0.0"));
        place.add().unwrap();
    }
    let now = place.plugins.get("demo").unwrap();
    assert_eq!(now.record.versions.len(), MAX_PLUGIN_VERSIONS);
    let folders = fs::read_dir(now.folder.parent().unwrap()).unwrap().count();
    assert_eq!(folders, MAX_PLUGIN_VERSIONS + 1, "the versions and the data");
}

#[test]
fn a_plugin_is_switched_and_removed_with_everything_it_has() {
    let place = Place::new();
    assert!(place.plugins.list().unwrap().is_empty());
    let added = place.add().unwrap();
    assert!(added.record.enabled && added.data.is_dir());
    assert!(place.plugins.disable("demo").unwrap() && !place.plugins.disable("demo").unwrap());
    assert!(!place.plugins.get("demo").unwrap().record.enabled);
    // A new version of a disabled plugin stays disabled.
    write_plugin(&place.source(), "2.0.0");
    assert!(!place.add().unwrap().record.enabled);
    place.plugins.remove("demo").unwrap();
    assert!(!added.data.exists() && place.plugins.list().unwrap().is_empty());
    for id in ["demo", "../demo", "."] {
        assert!(matches!(place.plugins.remove(id), Err(PluginError::Unknown(_))), "{id}");
    }
}

#[test]
fn a_source_with_links_too_many_files_or_no_manifest_is_refused() {
    let place = Place::new();
    symlink("/etc/passwd", place.source().join("link")).unwrap();
    assert!(matches!(place.add(), Err(PluginError::Content(ContentError::Special(_)))));
    fs::remove_file(place.source().join("link")).unwrap();
    let expected = inspect(&place.source()).unwrap().hash;
    fs::write(place.source().join("lib/data.txt"), "changed after the user saw it").unwrap();
    assert!(matches!(place.plugins.add(&place.source(), &expected, 7), Err(PluginError::ChangedDuringCopy)));
    for number in 0..MAX_PLUGIN_FILES {
        fs::write(place.source().join(format!("lib/{number}")), "").unwrap();
    }
    assert!(matches!(place.add(), Err(PluginError::Content(ContentError::TooManyFiles(_)))));
    let empty = tempfile::tempdir().unwrap();
    let error = inspect(empty.path()).unwrap_err().to_string();
    assert!(error.contains("cellmate.plugin.json"), "{error}");
    assert!(inspect(Path::new("/no/such/folder")).is_err());
}

#[test]
fn a_damaged_index_is_an_error_and_names_no_folder() {
    let place = Place::new();
    place.add().unwrap();
    let index = place.plugins.index_file();
    let good = fs::read_to_string(&index).unwrap();
    for bad in
        ["{".to_owned(), good.replace("\"demo\"", "\"../demo\""), good.replace("\"version\": 1", "\"version\": 2")]
    {
        assert_ne!(bad, good);
        fs::write(&index, bad).unwrap();
        assert!(matches!(place.plugins.list(), Err(PluginError::Index(_))));
        assert!(matches!(place.plugins.disable("demo"), Err(PluginError::Index(_))));
    }
}
