//! Who descends from a keeper: those in its process group, and those it adopted when they left it.

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, wait};

/// What a look at the dead found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reaped {
    pub(super) leader_ended: bool,
    pub(super) nobody_left: bool,
}

/// Whoever loses its parent among our descendants becomes our child, also in a group or session of its own.
pub(super) fn adopt() {
    #[cfg(target_os = "linux")]
    {
        // Where the kernel knows neither, the group is still ours.
        let _older_kernel = rustix::process::set_child_subreaper(Some(getpid()));
        // So that who ends programs by name does not end the keepers with them.
        let _cosmetic = rustix::thread::set_name(c"mcp-keeper");
    }
}

/// Takes leave of the dead.
pub(super) fn reap(leader: Option<Pid>) -> Reaped {
    let mut reaped = Reaped { leader_ended: false, nobody_left: false };
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, _))) => reaped.leader_ended |= Some(pid) == leader,
            Ok(None) => return reaped,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => {
                reaped.nobody_left = true;
                return reaped;
            }
        }
    }
}

/// Kills our children and the rest of our group; their own children are ours next time.
pub(super) fn kill() {
    let us = getpid();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    for pid in numbers.filter_map(Pid::from_raw).filter(|pid| *pid != us) {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
        let us = us.as_raw_nonzero().get();
        if parent_and_group(&stat).is_some_and(|(parent, group)| parent == us || group == us) {
            let _gone_meanwhile = kill_process(pid, Signal::KILL);
        }
    }
}

/// The name before these may hold anything, brackets and spaces too; it ends at the last bracket.
fn parent_and_group(stat: &str) -> Option<(i32, i32)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(1);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::parent_and_group;

    #[test]
    fn a_process_is_parsed_whatever_its_name() {
        assert_eq!(parent_and_group("12 (cat) S 7 8 9 0"), Some((7, 8)));
        assert_eq!(parent_and_group("12 (a) S 1 1 (b c) R 7 8 9"), Some((7, 8)));
        for odd in ["", "12 (cat", "12 (cat) S", "12 (cat) S x y"] {
            assert_eq!(parent_and_group(odd), None, "{odd}");
        }
    }
}
