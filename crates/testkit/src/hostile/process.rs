//! The host process as the operating system sees it: child processes, sockets, and files around it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::mcp_server;
use crate::processes::{ListedProcess, descendants};

/// The name in a worker's command line.
const WORKER: &str = "cellmate-worker";

/// Returns the process ids of this process's workers.
pub(super) fn workers() -> Vec<u32> {
    descendants(std::process::id()).into_iter().filter(is_worker).map(|process| process.pid).collect()
}

fn is_worker(process: &ListedProcess) -> bool {
    process.command.first().is_some_and(|name| name == WORKER)
}

/// Describes unexpected child processes and sockets through which data could leave the machine.
pub(super) fn unexpected(workers: usize) -> Vec<String> {
    let own = std::process::id();
    let children = descendants(own);
    let (mut found, mut working) = (Vec::new(), 0);
    for child in &children {
        let ListedProcess { pid, command, .. } = child;
        // A zombie has an empty command line until its parent reaps it.
        if is_worker(child) {
            working += 1;
        } else if !command.is_empty() && !command.iter().any(|argument| argument == mcp_server::ARGUMENT) {
            found.push(format!("unexpected process {pid}: {command:?}"));
        }
    }
    if working > workers {
        found.push(format!("there are {working} workers instead of {workers}"));
    }
    for pid in children.iter().map(|child| child.pid).chain([own]) {
        found.extend(
            internet_sockets(pid).into_iter().map(|socket| format!("process {pid} has an internet socket: {socket}")),
        );
    }
    found
}

/// Returns the open internet sockets of a process. A worker's descriptors may be unreadable for this process; that is
/// fine, because its system call filter does not let it create sockets.
fn internet_sockets(pid: u32) -> Vec<String> {
    let inodes: BTreeSet<String> = ["tcp", "tcp6", "udp", "udp6", "raw", "raw6"]
        .iter()
        .filter_map(|table| std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).ok())
        .flat_map(|table| table.lines().skip(1).filter_map(inode).collect::<Vec<_>>())
        .collect();
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
    let links = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links.filter_map(|link| link.to_str().map(str::to_owned)).filter(|link| inodes.contains(link)).collect()
}

/// Returns the socket of a table line in the form that the links in `/proc/PID/fd` use.
fn inode(line: &str) -> Option<String> {
    line.split_whitespace().nth(9).map(|inode| format!("socket:[{inode}]"))
}

/// Lists everything below these folders.
pub(super) fn listing(folders: &[PathBuf]) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for folder in folders {
        list(folder, &mut found);
    }
    found
}

fn list(folder: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            list(&path, found);
        }
        found.insert(path);
    }
}

pub(super) fn new_files(before: &BTreeSet<PathBuf>, after: &BTreeSet<PathBuf>) -> Vec<String> {
    after.difference(before).map(|path| format!("`{}` is new", path.display())).collect()
}
