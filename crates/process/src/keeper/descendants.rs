//! The descendants of a keeper: the processes in its group, and those it adopted after they left the group.

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, wait};

/// The result of reaping ended processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reaped {
    pub(super) leader_ended: bool,
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
pub(super) fn reap(leader: Option<Pid>) -> Reaped {
    let mut reaped = Reaped { leader_ended: false, none_left: false };
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, _))) => reaped.leader_ended |= Some(pid) == leader,
            Ok(None) => return reaped,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => {
                reaped.none_left = true;
                return reaped;
            }
        }
    }
}

/// Kills this process's children and the rest of its group. Their children become its own and are killed next time.
pub(super) fn kill() {
    let us = getpid();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    for pid in numbers.filter_map(Pid::from_raw).filter(|pid| *pid != us) {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
        let us = us.as_raw_nonzero().get();
        if parent_and_group(&stat).is_some_and(|(parent, group)| parent == us || group == us) {
            // The process may have ended in between.
            let _already_ended = kill_process(pid, Signal::KILL);
        }
    }
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
    use super::parent_and_group;

    #[test]
    fn parent_and_group_are_found_after_any_process_name() {
        assert_eq!(parent_and_group("12 (cat) S 7 8 9 0"), Some((7, 8)));
        assert_eq!(parent_and_group("12 (a) S 1 1 (b c) R 7 8 9"), Some((7, 8)));
        for odd in ["", "12 (cat", "12 (cat) S", "12 (cat) S x y"] {
            assert_eq!(parent_and_group(odd), None, "{odd}");
        }
    }
}
