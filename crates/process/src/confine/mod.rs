//! Confines this process before it becomes a command: resource limits, no privileges, Landlock for files, and seccomp
//! for what Landlock does not cover.
//!
//! Not covered: the metadata of files. Landlock does not restrict `chmod`, `chown`, `utime` and extended attributes, nor
//! `stat`, so a command can change modes and times of files outside its folders, as far as the user may.

#[cfg(target_os = "linux")]
mod files;
#[cfg(target_os = "linux")]
mod system_calls;

use std::path::PathBuf;

use rustix::process::{Resource, Rlimit, getrlimit, nice, setrlimit};
use serde::{Deserialize, Serialize};

/// What a command and the processes that it starts may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandLimits {
    /// Processes at once. If there are more, the keeper ends the command.
    pub processes: usize,
    /// Bytes of one file that it writes.
    pub file_bytes: u64,
    /// Open files of one process.
    pub open_files: u64,
}

/// What a confined command may access.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// Folders that it may read and change.
    pub writable: Vec<Folder>,
    /// Folders that it may read, with programs that it may run.
    pub readable: Vec<Folder>,
    pub network: Network,
}

/// A folder that was opened before. If another one has taken its path since, the command is not started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Folder {
    pub path: PathBuf,
    pub device: u64,
    pub inode: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// No sockets at all, except pairs of connected ones.
    #[default]
    Denied,
    /// Internet sockets. Sockets in the file system stay denied: they lead to agents, containers and the desktop.
    Allowed,
}

/// How far this system can confine a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Support {
    /// Whether commands can neither signal processes outside nor connect to abstract sockets (Linux 6.12).
    pub scopes: bool,
}

/// The processes and threads of the user that may exist when a command starts another one. It is far above what a
/// desktop needs and far below what exhausts the process ids. Root is not bound by it.
const MAX_USER_TASKS: u64 = 8_192;

/// Commands give way to the programs of the user, and to their own keeper.
const NICENESS: i32 = 5;

/// System files and folders that a confined command may read, with the programs in them.
pub const SYSTEM_READABLE: [&str; 61] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/snap",
    "/nix/store",
    "/run/current-system",
    "/etc/alternatives",
    "/etc/bash.bashrc",
    "/etc/ca-certificates",
    "/etc/debian_version",
    "/etc/fonts",
    "/etc/gitconfig",
    "/etc/group",
    "/etc/hostname",
    "/etc/hosts",
    "/etc/inputrc",
    "/etc/java",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/locale.alias",
    "/etc/locale.conf",
    "/etc/localtime",
    "/etc/lsb-release",
    "/etc/machine-info",
    "/etc/magic",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/openssl",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/perl",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/openssl.cnf",
    "/etc/protocols",
    "/etc/python3",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/shells",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/terminfo",
    "/etc/timezone",
    "/proc/cpuinfo",
    "/proc/filesystems",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/sys/kernel",
    "/proc/sys/vm",
    "/proc/uptime",
    "/proc/version",
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
    "/sys/kernel/mm/transparent_hugepage",
];

/// Devices that a confined command may read and write.
pub const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Returns how far commands can be confined here, or why they cannot be.
pub fn support() -> Result<Support, String> {
    #[cfg(target_os = "linux")]
    return files::support();
    #[cfg(not(target_os = "linux"))]
    Err("commands can be confined only on Linux".to_owned())
}

/// Applies the limits and the confinement to this process, which has one thread.
pub(crate) fn apply(limits: &CommandLimits, confinement: Option<&Confinement>) -> Result<(), String> {
    // Makes the command the first to be killed when memory runs out. Best effort.
    drop(std::fs::write("/proc/self/oom_score_adj", "1000"));
    // This fails only if the process may not lower its priority; the command then competes more with others.
    let _unchanged = nice(NICENESS);
    for (resource, max) in [
        (Resource::Core, 0),
        (Resource::Fsize, limits.file_bytes),
        (Resource::Nofile, limits.open_files),
        (Resource::Nproc, MAX_USER_TASKS),
    ] {
        let max = getrlimit(resource).maximum.map_or(max, |maximum| maximum.min(max));
        setrlimit(resource, Rlimit { current: Some(max), maximum: Some(max) })
            .map_err(|error| format!("cannot set a resource limit: {error}"))?;
    }
    let Some(confinement) = confinement else { return Ok(()) };
    #[cfg(target_os = "linux")]
    {
        drop_privileges().map_err(|error| format!("cannot drop privileges: {error}"))?;
        files::restrict(confinement)?;
        system_calls::filter(confinement.network)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _unused = confinement;
        Err("commands can be confined only on Linux".to_owned())
    }
}

/// Gives up all capabilities, also for programs that are started later, and the privileges of `setuid` programs.
#[cfg(target_os = "linux")]
fn drop_privileges() -> rustix::io::Result<()> {
    use rustix::thread::{
        CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
        remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
    };
    set_no_new_privs(true)?;
    let now = capabilities(None)?;
    if now.effective.is_empty() && now.permitted.is_empty() && now.inheritable.is_empty() {
        return Ok(());
    }
    if now.effective.contains(CapabilitySet::SETPCAP) {
        for number in 0..u64::BITS {
            let capability = CapabilitySet::from_bits_retain(1 << number);
            // The first number that the kernel does not know ends the list.
            let Ok(is_present) = capability_is_in_bounding_set(capability) else { break };
            if is_present {
                remove_capability_from_bounding_set(capability)?;
            }
        }
    }
    clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
}
