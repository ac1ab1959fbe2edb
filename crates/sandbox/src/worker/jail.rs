//! The jail: Landlock denies files, network and signals, seccomp all but a few system calls.
//!
//! Landlock applies to the calling thread and those it starts, so it comes before the threads. Seccomp can apply to all
//! threads at once, so it comes after them and need not allow the system calls that create them.

use contract::frame::Jail;

use super::arguments::JailRequest;

#[derive(Debug, thiserror::Error)]
pub(super) enum JailError {
    #[error("the jail is required, but {0}; use a kernel that supports it, or configure a weaker jail")]
    Unavailable(String),
    #[error("cannot {what}: {reason}")]
    System { what: &'static str, reason: String },
}

#[cfg(target_os = "linux")]
pub(super) use linux::{DataUse, close_files, filter_system_calls, limit_data};

#[cfg(not(target_os = "linux"))]
pub(super) use elsewhere::{DataUse, close_files, filter_system_calls, limit_data};

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::BTreeMap;
    use std::fs::File;
    use std::io::Read;

    use landlock::{
        ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetStatus, Scope,
    };
    use rustix::process::{DumpableBehavior, Resource, Rlimit, Signal};
    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    };

    use super::{Jail, JailError, JailRequest};
    use crate::raw::page_scan;
    use crate::worker::serve::THREAD_STACK_BYTES;

    /// Enough for standard streams, the socket and its copies, the image and the page map.
    const MAX_OPEN_FILES: u64 = 32;

    /// Disables core dumps and denies files and the network. Returns how much of that the kernel supports.
    pub(in super::super) fn close_files(wish: JailRequest) -> Result<Jail, JailError> {
        if wish == JailRequest::Off {
            return Ok(Jail::None);
        }
        // Makes the worker the first to be killed when memory runs out: it can be replaced, its host cannot. Best
        // effort.
        drop(std::fs::write("/proc/self/oom_score_adj", "1000"));
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
            .map_err(|error| system("forbid core dumps", error))?;
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
            .map_err(|error| system("follow the parent's death", error))?;
        for (resource, max) in [(Resource::Core, 0), (Resource::Fsize, 0), (Resource::Nofile, MAX_OPEN_FILES)] {
            rustix::process::setrlimit(resource, Rlimit { current: Some(max), maximum: Some(max) })
                .map_err(|error| system("set resource limits", error))?;
        }
        match landlock() {
            Ok(status) => judge(wish, &status),
            Err(error) => missing(wish, format!("Landlock failed: {error}")),
        }
    }

    /// Returns the jail that the required ruleset gives. Partial enforcement counts as none.
    fn judge(wish: JailRequest, status: &RulesetStatus) -> Result<Jail, JailError> {
        match status {
            RulesetStatus::FullyEnforced => Ok(Jail::Full),
            RulesetStatus::PartiallyEnforced => missing(
                wish,
                "this kernel enforces only a part of Landlock (Linux 5.13 and later deny all files)".to_owned(),
            ),
            RulesetStatus::NotEnforced => missing(wish, "this kernel has no Landlock".to_owned()),
        }
    }

    /// The kernel's statistics of this process's memory, opened while files can still be opened.
    #[derive(Debug)]
    pub(in super::super) struct DataUse {
        statm: Option<File>,
    }

    impl DataUse {
        pub(in super::super) fn open() -> Self {
            Self { statm: File::open("/proc/self/statm").ok() }
        }

        /// Returns the current size of private writable memory, which is what `RLIMIT_DATA` counts.
        fn bytes(self, threads: usize) -> u64 {
            let mut text = String::new();
            let read = self.statm.and_then(|mut statm| statm.read_to_string(&mut text).ok());
            let pages = read.and_then(|_| text.split_whitespace().nth(5)?.parse::<u64>().ok());
            pages.map_or_else(
                || IDLE_DATA_BYTES + (threads * THREAD_STACK_BYTES) as u64,
                |pages| pages.saturating_mul(rustix::param::page_size() as u64),
            )
        }
    }

    /// The private writable memory of an idle worker without its threads' stacks: 14 MiB with 80 slots. Used only if
    /// the kernel does not report the real figure.
    const IDLE_DATA_BYTES: u64 = 16 << 20;

    /// Limits how much more private writable memory the worker may take than it has now. Called after all threads have
    /// started. (`RLIMIT_AS` is unsuitable: an idle worker reserves hundreds of gigabytes of address space.)
    pub(in super::super) fn limit_data(
        wish: JailRequest,
        data_use: DataUse,
        threads: usize,
        room: u64,
    ) -> Result<(), JailError> {
        if wish == JailRequest::Off {
            return Ok(());
        }
        let max = data_use.bytes(threads).saturating_add(room);
        rustix::process::setrlimit(Resource::Data, Rlimit { current: Some(max), maximum: Some(max) })
            .map_err(|error| system("limit memory", error))
    }

    /// Applies rulesets without rules: everything they handle is denied.
    ///
    /// The first denies all access to files (Linux 5.13) and determines the jail that is reported. The second adds what
    /// later kernels support: truncation, device controls, the network, signals. Seccomp forbids the system calls for
    /// these on any kernel, so a kernel without them still has a full jail.
    fn landlock() -> Result<RulesetStatus, landlock::RulesetError> {
        let required = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(ABI::V1))?
            .create()?
            .restrict_self()?;
        let newest = ABI::V6;
        Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(newest))?
            .handle_access(AccessNet::from_all(newest))?
            .scope(Scope::from_all(newest))?
            .create()?
            .restrict_self()?;
        Ok(required.ruleset)
    }

    fn missing(wish: JailRequest, what: String) -> Result<Jail, JailError> {
        match wish {
            JailRequest::Required => Err(JailError::Unavailable(what)),
            JailRequest::Preferred | JailRequest::Off => Ok(Jail::Seccomp),
        }
    }

    /// Filters system calls on all threads, the last step of the jail. A call that is not on the list kills the worker.
    pub(in super::super) fn filter_system_calls(wish: JailRequest, files: Jail) -> Result<Jail, JailError> {
        if wish == JailRequest::Off {
            return Ok(Jail::None);
        }
        let filtered = program()
            .and_then(|program| seccompiler::apply_filter_all_threads(&program).map_err(|error| error.to_string()));
        match (filtered, wish) {
            (Ok(()), _) => Ok(files),
            (Err(error), JailRequest::Required) => {
                Err(JailError::Unavailable(format!("this system cannot filter system calls: {error}")))
            }
            (Err(_), JailRequest::Preferred | JailRequest::Off) => Ok(Jail::None),
        }
    }

    fn program() -> Result<BpfProgram, String> {
        let allowed = allowed().map_err(|error| error.to_string())?;
        let arch = std::env::consts::ARCH.try_into().map_err(|_| "unknown processor".to_owned())?;
        // Kill instead of returning an error: after an error, glibc's abort() loops forever.
        SeccompFilter::new(allowed, SeccompAction::KillProcess, SeccompAction::Allow, arch)
            .and_then(TryInto::try_into)
            .map_err(|error| error.to_string())
    }

    type Rules = BTreeMap<i64, Vec<SeccompRule>>;

    fn allowed() -> Result<Rules, seccompiler::BackendError> {
        let mut rules: Rules = [
            libc::SYS_read,
            libc::SYS_write,
            libc::SYS_munmap,
            libc::SYS_mremap,
            libc::SYS_madvise,
            libc::SYS_brk,
            libc::SYS_futex,
            libc::SYS_clock_nanosleep,
            libc::SYS_clock_gettime,
            libc::SYS_restart_syscall,
            libc::SYS_rt_sigreturn,
            libc::SYS_sched_yield,
            // Hash maps seed themselves.
            libc::SYS_getrandom,
            // Needed when threads and the process exit.
            libc::SYS_rt_sigprocmask,
            libc::SYS_sigaltstack,
            libc::SYS_exit,
            libc::SYS_exit_group,
        ]
        .into_iter()
        .map(|call| (call, Vec::new()))
        .collect();
        // The image is already mapped as executable; no further mapping may be.
        let executable = libc::PROT_EXEC as u64;
        for call in [libc::SYS_mmap, libc::SYS_mprotect] {
            rules.insert(call, vec![only_if(2, SeccompCmpOp::MaskedEq(executable), 0)?]);
        }
        rules.insert(libc::SYS_ioctl, vec![only_if(1, SeccompCmpOp::Eq, u64::from(page_scan::REQUEST))?]);
        Ok(rules)
    }

    fn only_if(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompRule, seccompiler::BackendError> {
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?;
        SeccompRule::new(vec![condition])
    }

    fn system(what: &'static str, error: impl ToString) -> JailError {
        JailError::System { what, reason: error.to_string() }
    }

    #[cfg(test)]
    mod tests {
        use landlock::RulesetStatus::{FullyEnforced, NotEnforced, PartiallyEnforced};

        use super::{Jail, JailRequest, judge};

        #[test]
        fn partial_landlock_is_not_a_full_jail() {
            let cases = [
                (JailRequest::Required, FullyEnforced, Some(Jail::Full)),
                (JailRequest::Required, PartiallyEnforced, None),
                (JailRequest::Required, NotEnforced, None),
                (JailRequest::Preferred, FullyEnforced, Some(Jail::Full)),
                (JailRequest::Preferred, PartiallyEnforced, Some(Jail::Seccomp)),
                (JailRequest::Preferred, NotEnforced, Some(Jail::Seccomp)),
            ];
            for (wish, status, expected) in cases {
                assert_eq!(judge(wish, &status).ok(), expected, "{wish:?} {status:?}");
            }
            let refused = judge(JailRequest::Required, &PartiallyEnforced).unwrap_err().to_string();
            assert!(refused.contains("only a part of Landlock"), "{refused}");
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use super::{Jail, JailError, JailRequest};

    pub(in super::super) fn close_files(wish: JailRequest) -> Result<Jail, JailError> {
        match wish {
            JailRequest::Required => Err(JailError::Unavailable("no jail is supported on this system".to_owned())),
            JailRequest::Preferred | JailRequest::Off => Ok(Jail::None),
        }
    }

    pub(in super::super) fn filter_system_calls(_wish: JailRequest, files: Jail) -> Result<Jail, JailError> {
        Ok(files)
    }

    #[derive(Debug)]
    pub(in super::super) struct DataUse;

    impl DataUse {
        pub(in super::super) fn open() -> Self {
            Self
        }
    }

    pub(in super::super) fn limit_data(
        _wish: JailRequest,
        _data_use: DataUse,
        _threads: usize,
        _room: u64,
    ) -> Result<(), JailError> {
        Ok(())
    }
}
