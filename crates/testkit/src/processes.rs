//! Processes as the operating system lists them in `/proc`: their parents, groups, command lines and memory.

/// A process at the moment when it was read.
#[derive(Clone, Debug)]
pub struct ListedProcess {
    pub pid: u32,
    pub parent: u32,
    pub group: u32,
    /// Whether it has ended, and its parent has not waited for it yet.
    pub is_zombie: bool,
    /// The program and its arguments; empty for a zombie.
    pub command: Vec<String>,
}

impl ListedProcess {
    /// Reads a process; `None` if there is none with this id.
    pub fn read(pid: u32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name of the program may contain anything; it ends at the last bracket.
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let is_zombie = fields.next()? == "Z";
        let (parent, group) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).split_terminator('\0').map(str::to_owned).collect();
        Some(Self { pid, parent, group, is_zombie, command })
    }

    /// Returns whether a part of the command line contains a text.
    pub fn names(&self, text: &str) -> bool {
        self.command.iter().any(|part| part.contains(text))
    }
}

/// Returns all processes, except those that end while the list is read.
pub fn all() -> Vec<ListedProcess> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(ListedProcess::read).collect()
}

/// Returns all descendants of a process.
pub fn descendants(of: u32) -> Vec<ListedProcess> {
    let all = all();
    let mut found: Vec<ListedProcess> = Vec::new();
    let mut parents = vec![of];
    while let Some(parent) = parents.pop() {
        for child in all.iter().filter(|process| process.parent == parent) {
            parents.push(child.pid);
            found.push(child.clone());
        }
    }
    found
}

/// Returns whether a process has not ended.
pub fn is_alive(pid: u32) -> bool {
    ListedProcess::read(pid).is_some_and(|process| !process.is_zombie)
}

/// Returns a memory field of `/proc/PID/status` in bytes, such as `VmRSS`; `None` if the process has ended.
pub fn memory(pid: u32, field: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    Some(line.split_ascii_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{ListedProcess, descendants, is_alive, memory};

    #[test]
    fn a_child_is_listed_until_its_parent_has_waited_for_it() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let (own, pid) = (std::process::id(), child.id());
        let listed = descendants(own).into_iter().find(|process| process.pid == pid).unwrap();
        assert!(listed.parent == own && !listed.is_zombie && is_alive(pid), "{listed:?}");
        assert!(memory(pid, "VmRSS").unwrap() > 0);
        child.kill().unwrap();
        while is_alive(pid) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let zombie = ListedProcess::read(pid).unwrap();
        assert!(zombie.is_zombie && zombie.command.is_empty() && memory(pid, "VmRSS").is_none(), "{zombie:?}");
        child.wait().unwrap();
        assert!(ListedProcess::read(pid).is_none());
    }
}
