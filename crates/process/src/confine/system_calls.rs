//! Seccomp: denies system calls that reach beyond what Landlock restricts. They fail with `EPERM`.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};

use super::{Network, files};

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Denied whatever their arguments are. Most need privileges, which a command does not have, so that this only reduces
/// the kernel's attack surface; the others are named.
const DENIED: [i64; 47] = [
    // An io_uring performs system calls that no filter sees.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Namespaces and mounts.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    // Keyrings hold secrets of the user's session.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // System V and POSIX message queues, semaphores and memory are shared with all processes of the user.
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_semget,
    libc::SYS_msgget,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    // The kernel and the machine.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_open_by_handle_at,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    libc::SYS_fanotify_init,
];

/// Requests that put input into a terminal.
const TERMINAL_INPUT: [u64; 2] = [libc::TIOCSTI, libc::TIOCLINUX];

/// Flags of `clone` that create namespaces.
const NEW_NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// The type of a socket is in these bits; the others are flags.
const SOCKET_TYPE: u64 = 0xf;

/// Programs for the x32 interface of x86-64 use the same numbers with this bit, and some numbers of their own.
#[cfg(target_arch = "x86_64")]
const X32: i64 = 0x4000_0000;

/// Filters the system calls of this thread and of the processes that it starts or becomes.
pub(super) fn filter(network: Network) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("cannot filter system calls: {error}");
    let denied = denied(network).map_err(|error| failed(&error))?;
    // The C library then uses `clone`, whose flags can be checked.
    let missing = Rules::from([(libc::SYS_clone3, Vec::new())]);
    for (rules, errno) in [(denied, libc::EPERM), (missing, libc::ENOSYS)] {
        let program = program(rules, errno).map_err(|error| failed(&error))?;
        apply_filter(&program).map_err(|error| failed(&error))?;
    }
    Ok(())
}

fn program(rules: Rules, errno: i32) -> Result<BpfProgram, String> {
    let arch = std::env::consts::ARCH.try_into().map_err(|_| "unknown processor".to_owned())?;
    let deny = SeccompAction::Errno(errno.unsigned_abs());
    // Programs for another processor architecture, such as 32-bit ones, are killed.
    SeccompFilter::new(rules, SeccompAction::Allow, deny, arch)
        .and_then(TryInto::try_into)
        .map_err(|error| error.to_string())
}

fn denied(network: Network) -> Result<Rules, seccompiler::BackendError> {
    let mut rules: Rules = DENIED.into_iter().map(|call| (call, Vec::new())).collect();
    // Before Linux 6.2, Landlock does not restrict it.
    if !files::restricts_truncation() {
        rules.insert(libc::SYS_truncate, Vec::new());
    }
    rules.insert(libc::SYS_socket, sockets(network)?);
    // A pair of datagram sockets can also send to sockets in the file system; connected streams cannot.
    let datagrams = [libc::SOCK_DGRAM, libc::SOCK_RAW]
        .map(|kind| when(&[(1, SeccompCmpOp::MaskedEq(SOCKET_TYPE), u64::from(kind.unsigned_abs()))]));
    rules.insert(libc::SYS_socketpair, datagrams.into_iter().collect::<Result<_, _>>()?);
    let namespaces = NEW_NAMESPACES.map(|flag| {
        let flag = u64::from(flag.unsigned_abs());
        when(&[(0, SeccompCmpOp::MaskedEq(flag), flag)])
    });
    rules.insert(libc::SYS_clone, namespaces.into_iter().collect::<Result<_, _>>()?);
    let terminals = || TERMINAL_INPUT.map(|request| when(&[(1, SeccompCmpOp::Eq, request)])).into_iter();
    rules.insert(libc::SYS_ioctl, terminals().collect::<Result<_, _>>()?);
    #[cfg(target_arch = "x86_64")]
    {
        rules.extend([(libc::SYS_iopl, Vec::new()), (libc::SYS_ioperm, Vec::new())]);
        let x32: Rules = rules.iter().map(|(call, rules)| (call | X32, rules.clone())).collect();
        rules.extend(x32);
        // `ioctl` and `kexec_load` of x32.
        rules.insert(514 | X32, terminals().collect::<Result<_, _>>()?);
        rules.insert(528 | X32, Vec::new());
    }
    Ok(rules)
}

fn sockets(network: Network) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let family = |family: i32| u64::from(family.unsigned_abs());
    let [v4, v6, netlink] = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK].map(family);
    match network {
        Network::Denied => Ok(Vec::new()),
        Network::Allowed => {
            let others = when(&[(0, SeccompCmpOp::Ne, v4), (0, SeccompCmpOp::Ne, v6), (0, SeccompCmpOp::Ne, netlink)])?;
            // The C library reads the machine's addresses with it before it connects.
            let route = family(libc::NETLINK_ROUTE);
            let netlink = when(&[(0, SeccompCmpOp::Eq, netlink), (2, SeccompCmpOp::Ne, route)])?;
            Ok(vec![others, netlink])
        }
    }
}

/// Returns a rule that applies if all arguments compare as listed.
fn when(conditions: &[(u8, SeccompCmpOp, u64)]) -> Result<SeccompRule, seccompiler::BackendError> {
    let conditions = conditions.iter().map(|(argument, operator, value)| {
        SeccompCondition::new(*argument, SeccompCmpArgLen::Dword, operator.clone(), *value)
    });
    SeccompRule::new(conditions.collect::<Result<_, _>>()?)
}
