//! Tests of the jail from inside: each forbidden operation kills the process.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

const PROBE: &str = "CELLMATE_JAIL_PROBE";
const SIGSYS: i32 = 31;

/// Not a test: the entry point of the child process below.
#[test]
fn probe_child() {
    let Ok(probe) = std::env::var(PROBE) else { return };
    if probe == "no-landlock" {
        hide_landlock();
        let refused = sandbox::enter_jail().unwrap_err().to_string();
        assert!(refused.starts_with("the jail is required, but this kernel has no Landlock"), "{refused}");
        return;
    }
    let scratch = std::env::temp_dir().join("cellmate-jail-probe");
    assert_eq!(sandbox::enter_jail().unwrap(), contract::frame::Jail::Full);
    match probe.as_str() {
        "compute" => {
            let grown: Vec<u64> = (0..4_000_000).collect();
            assert_eq!(grown.iter().sum::<u64>(), 7_999_998_000_000);
        }
        "open" => drop(std::fs::File::open("/etc/passwd")),
        "maps" => drop(std::fs::read_to_string("/proc/self/maps")),
        "create" => drop(std::fs::write(scratch, "x")),
        "connect" => drop(std::net::TcpStream::connect("127.0.0.1:1")),
        "listen" => drop(std::net::UdpSocket::bind("127.0.0.1:0")),
        "spawn" => drop(Command::new("/bin/true").spawn()),
        "thread" => drop(std::thread::Builder::new().spawn(|| ())),
        "kill" => drop(rustix::process::test_kill_process(rustix::process::getpid())),
        "pid" => drop(std::process::id()),
        "cwd" => drop(std::env::current_dir()),
        "time" => drop(std::time::SystemTime::now()),
        other => panic!("no probe `{other}`"),
    }
    // Exit instead of returning: libtest would continue with calls that the jail forbids.
    std::process::exit(0);
}

/// Makes this process behave as on an older kernel.
fn hide_landlock() {
    let calls = [libc::SYS_landlock_create_ruleset, libc::SYS_landlock_add_rule, libc::SYS_landlock_restrict_self];
    let rules = calls.into_iter().map(|call| (call, Vec::new())).collect();
    let missing = SeccompAction::Errno(u32::try_from(libc::ENOSYS).unwrap());
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let program: BpfProgram =
        SeccompFilter::new(rules, SeccompAction::Allow, missing, arch).unwrap().try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}

fn probe(name: &str) -> std::process::ExitStatus {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "jail::probe_child", "--nocapture", "--test-threads=1"])
        .env(PROBE, name)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap()
}

#[test]
fn operations_that_cells_need_are_allowed() {
    for name in ["compute", "time"] {
        assert_eq!(probe(name).code(), Some(0), "{name}");
    }
}

#[test]
fn a_required_jail_that_is_unavailable_is_an_error() {
    assert_eq!(probe("no-landlock").code(), Some(0));
}

#[test]
fn all_other_operations_kill_the_process() {
    for name in ["open", "maps", "create", "connect", "listen", "spawn", "thread", "kill", "pid", "cwd"] {
        let status = probe(name);
        assert_eq!(status.signal(), Some(SIGSYS), "{name}: {status:?}");
        assert!(!status.core_dumped(), "{name}");
    }
    assert!(!std::env::temp_dir().join("cellmate-jail-probe").exists());
}
