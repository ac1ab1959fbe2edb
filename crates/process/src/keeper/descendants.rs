//! The descendants of a keeper: the processes in its group, and those it adopted after they left the group.

use std::collections::{HashMap, HashSet};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, wait};

/// How often, at most, new descendants are searched and stopped before all are killed. A search takes milliseconds, and
/// each round leaves only those that were started during it.
const STOP_ROUNDS: usize = 20;

/// The result of reaping ended processes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReapResult {
    /// How the leader ended, if it did.
    pub(super) leader: Option<WaitStatus>,
    pub(super) none_left: bool,
}

/// Makes this process the parent of every descendant that loses its own parent, even in another group or session.
pub(super) fn adopt() {
    #[cfg(target_os = "linux")]
    {
        // On a kernel without this call, the keeper still has its process group.
        let _unsupported = rustix::process::set_child_subreaper(Some(getpid()));
        // A command that kills programs by name must not kill their keepers.
        let _cosmetic = rustix::thread::set_name(c"cellmate-keeper");
    }
}

/// Reaps all children that have ended.
pub(super) fn reap(leader: Option<Pid>) -> ReapResult {
    let mut reaped = ReapResult { leader: None, none_left: false };
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if Some(pid) == leader => reaped.leader = Some(status),
            Ok(Some(_)) => {}
            Ok(None) => return reaped,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => {
                reaped.none_left = true;
                return reaped;
            }
        }
    }
}

/// Kills all descendants and the rest of the group.
///
/// They are stopped first: a process that starts others all the time would otherwise replace the killed ones faster than
/// they are found. Those that are missed become this process's children and are killed next time.
pub(super) fn kill() {
    let mut stopped = HashSet::new();
    for _ in 0..STOP_ROUNDS {
        // The list is read first: a process that replaces itself all the time would be gone before the table is read.
        let mut is_done = true;
        for found in [(|| listed(usize::MAX)) as fn() -> Vec<i32>, find] {
            let new: Vec<i32> = found().into_iter().filter(|pid| stopped.insert(*pid)).collect();
            send(&new, Signal::STOP);
            is_done &= new.is_empty();
        }
        if is_done {
            break;
        }
    }
    send(&find(), Signal::KILL);
}

/// Sends SIGTERM to the descendants that have left the group.
pub(super) fn terminate_others() {
    let us = getpid().as_raw_nonzero().get();
    let others: Vec<i32> =
        tree(&table(), us).into_iter().filter(|(_, group)| *group != us).map(|(pid, _)| pid).collect();
    send(&others, Signal::TERM);
}

/// Whether this process has more descendants than that.
pub(super) fn are_more_than(most: usize) -> bool {
    listed(most).len() > most
}

/// Returns the descendants that the kernel lists as children, until there are more than `most`. It reads only their own
/// entries, so it is much faster than the table of all processes; kernels without such lists return none.
fn listed(most: usize) -> Vec<i32> {
    let mut found = Vec::new();
    let mut open = vec![getpid().as_raw_nonzero().get()];
    while let Some(pid) = open.pop().filter(|_| found.len() <= most) {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for thread in threads {
            let children = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            let children: Vec<i32> = children.split_ascii_whitespace().filter_map(|child| child.parse().ok()).collect();
            found.extend(&children);
            open.extend(children);
        }
    }
    found
}

fn send(processes: &[i32], signal: Signal) {
    for pid in processes.iter().copied().filter_map(Pid::from_raw) {
        // The process may have ended in between.
        let _already_ended = kill_process(pid, signal);
    }
}

/// Returns all descendants, and the rest of the group.
fn find() -> Vec<i32> {
    let us = getpid().as_raw_nonzero().get();
    tree(&table(), us).into_iter().map(|(pid, _)| pid).collect()
}

/// A process: its id, its parent and its group.
type Process = (i32, i32, i32);

/// Returns all processes of the system.
fn table() -> Vec<Process> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let described = numbers.filter_map(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (parent, group) = parent_and_group(&stat)?;
        Some((pid, parent, group))
    });
    described.collect()
}

/// Returns the descendants of a process and the members of its group, each with its group.
fn tree(processes: &[Process], root: i32) -> Vec<(i32, i32)> {
    let mut children: HashMap<i32, Vec<(i32, i32)>> = HashMap::new();
    for (pid, parent, group) in processes {
        children.entry(*parent).or_default().push((*pid, *group));
    }
    let mut open: Vec<(i32, i32)> = children.get(&root).cloned().unwrap_or_default();
    open.extend(processes.iter().filter(|(_, _, group)| *group == root).map(|(pid, _, group)| (*pid, *group)));
    let mut seen = HashSet::from([root]);
    let mut found = Vec::new();
    while let Some((pid, group)) = open.pop() {
        if seen.insert(pid) {
            found.push((pid, group));
            open.extend(children.get(&pid).into_iter().flatten());
        }
    }
    found
}

/// Parses the parent and the group out of `/proc/PID/stat`. The process name before them may contain anything,
/// including parentheses and spaces; it ends at the last parenthesis.
fn parent_and_group(stat: &str) -> Option<(i32, i32)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(1);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::{parent_and_group, tree};

    #[test]
    fn descendants_are_found_at_any_depth_and_in_any_group() {
        let processes = [(10, 1, 10), (11, 10, 10), (12, 11, 12), (13, 12, 13), (20, 1, 10), (30, 1, 30), (31, 30, 30)];
        let mut found = tree(&processes, 10);
        found.sort_unstable();
        assert_eq!(found, [(11, 10), (12, 12), (13, 13), (20, 10)]);
        // Ids that are reused while the table is read can form a circle.
        assert_eq!(tree(&[(5, 6, 5), (6, 5, 5)], 5), [(6, 5)]);
    }

    #[test]
    fn parent_and_group_are_found_after_any_process_name() {
        assert_eq!(parent_and_group("12 (cat) S 7 8 9 0"), Some((7, 8)));
        assert_eq!(parent_and_group("12 (a) S 1 1 (b c) R 7 8 9"), Some((7, 8)));
        for odd in ["", "12 (cat", "12 (cat) S", "12 (cat) S x y"] {
            assert_eq!(parent_and_group(odd), None, "{odd}");
        }
    }
}
