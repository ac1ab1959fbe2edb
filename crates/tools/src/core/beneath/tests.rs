use std::fs::File;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use contract::config::RootAccess;
use rustix::fs::{CWD, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::{Links, Resolver};
use crate::core::roots::Root;

const BOTH: [Resolver; 2] = [Resolver::Kernel, Resolver::Walk];

/// A root with files and links of all kinds, and a folder beside it that must not be reached.
struct World {
    folder: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(path("root/a/b")).unwrap();
        std::fs::create_dir_all(path("outside")).unwrap();
        std::fs::write(path("root/a/b/file"), "inside").unwrap();
        std::fs::write(path("root/file"), "inside").unwrap();
        std::fs::write(path("outside/file"), "outside").unwrap();
        for (link, target) in [
            ("root/down", "a/b"),
            ("root/a/up", "../file"),
            ("root/a/b/around", "../../a/b/../../file"),
            ("root/out", "../outside"),
            ("root/a/out", "../../outside/file"),
            ("root/a/b/sneaky", "../../down/../../../outside/file"),
            ("root/loop", "loop"),
            ("root/one", "two"),
            ("root/two", "one"),
            ("root/absolute", "/etc/passwd"),
            ("root/magic", "/proc/self/root"),
            ("root/self", "/proc/self/cwd"),
            ("root/nothing", "not/there"),
        ] {
            symlink(target, path(link)).unwrap();
        }
        // An absolute link is refused even if it stays inside.
        symlink(path("root/file"), path("root/inside")).unwrap();
        Self { folder }
    }

    fn root(&self, resolver: Resolver) -> Root {
        Root::open(&self.folder.path().join("root"), RootAccess::Write).unwrap().with_resolver(resolver)
    }
}

fn read(root: &Root, path: &str, links: Links) -> Result<String, Errno> {
    let opened = root.open_below(Path::new(path), OFlags::RDONLY, links)?;
    let mut text = String::new();
    File::from(opened).read_to_string(&mut text).map_err(|error| Errno::from_io_error(&error).unwrap())?;
    Ok(text)
}

#[test]
fn both_resolvers_follow_links_inside_and_refuse_those_that_leave() {
    let world = World::new();
    let cases = [
        ("file", Ok("inside")),
        ("a/b/file", Ok("inside")),
        ("down/file", Ok("inside")),
        ("a/up", Ok("inside")),
        ("a/b/around", Ok("inside")),
        ("down/around", Ok("inside")),
        ("out/file", Err(Errno::XDEV)),
        ("a/out", Err(Errno::XDEV)),
        ("a/b/sneaky", Err(Errno::XDEV)),
        ("absolute", Err(Errno::XDEV)),
        ("inside", Err(Errno::XDEV)),
        ("loop", Err(Errno::LOOP)),
        ("one", Err(Errno::LOOP)),
        ("nothing", Err(Errno::NOENT)),
        ("missing", Err(Errno::NOENT)),
        ("file/below", Err(Errno::NOTDIR)),
        ("a/b", Err(Errno::ISDIR)),
    ];
    for resolver in BOTH {
        let root = world.root(resolver);
        for (path, expected) in &cases {
            assert_eq!(read(&root, path, Links::Follow), expected.map(str::to_owned), "{resolver:?} {path}");
        }
        for path in ["magic/etc/passwd", "self/file"] {
            assert!(matches!(read(&root, path, Links::Follow), Err(Errno::XDEV | Errno::LOOP)), "{resolver:?} {path}");
        }
        for path in ["down/file", "a/up"] {
            assert_eq!(read(&root, path, Links::Refuse), Err(Errno::LOOP), "{resolver:?} {path}");
        }
        assert_eq!(read(&root, "a/b/file", Links::Refuse).unwrap(), "inside");
        assert!(root.open_below(Path::new(""), OFlags::RDONLY | OFlags::DIRECTORY, Links::Refuse).is_ok());
        let long = "x".repeat(300);
        assert_eq!(read(&root, &long, Links::Follow), Err(Errno::NAMETOOLONG), "{resolver:?}");
    }
}

#[test]
fn a_folder_that_becomes_a_link_during_a_walk_never_leads_outside() {
    for resolver in BOTH {
        let world = World::new();
        let root = world.root(resolver);
        let [inside, link] = ["root/a/b", "root/swap"].map(|name| world.folder.path().join(name));
        symlink("../../outside", &link).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // The folder and the link exchange their places as fast as possible.
                while !done.load(Ordering::Relaxed) {
                    renameat_with(CWD, &inside, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                }
            });
            let (mut found, mut refused) = (0, 0);
            for _ in 0..20_000 {
                match read(&root, "a/b/file", Links::Follow) {
                    Ok(text) => {
                        assert_eq!(text, "inside", "{resolver:?}");
                        found += 1;
                    }
                    Err(_) => refused += 1,
                }
            }
            done.store(true, Ordering::Relaxed);
            assert!(found > 0 && refused > 0, "{resolver:?}: both states were seen: {found} {refused}");
        });
    }
}

#[test]
fn a_root_that_is_replaced_stays_the_folder_that_was_opened() {
    for resolver in BOTH {
        let world = World::new();
        let root = world.root(resolver);
        let path = |name: &str| world.folder.path().join(name);
        std::fs::rename(path("root"), path("moved")).unwrap();
        symlink("outside", path("root")).unwrap();
        assert_eq!(read(&root, "file", Links::Follow).unwrap(), "inside", "{resolver:?}");
    }
}

#[test]
fn a_path_through_very_many_links_and_folders_ends() {
    for resolver in BOTH {
        let world = World::new();
        let path = |name: &str| world.folder.path().join("root").join(name);
        std::fs::write(path("end"), "inside").unwrap();
        let mut target = "end".to_owned();
        for number in 0..60 {
            let name = format!("link{number}");
            symlink(&target, path(&name)).unwrap();
            target = name;
        }
        let root = world.root(resolver);
        assert_eq!(read(&root, "link10", Links::Follow).unwrap(), "inside");
        assert_eq!(read(&root, "link59", Links::Follow), Err(Errno::LOOP), "{resolver:?}");
    }
}
