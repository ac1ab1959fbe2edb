//! Attempts of commands to leave their folders, and their safe outcome.

use std::fs;
use std::io::ErrorKind;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use contract::config::RootAccess;
use executor::Outcome;
use process::Network;
use rustix::io::FdFlags;
use serde_json::json;
use tools::core::Root;

use crate::lab::{LAB_FOLDER, Lab, SECRET};

pub(crate) fn files_outside_the_folders_can_neither_be_read_nor_changed() {
    let lab = Lab::new();
    let (root, outside) = (lab.path("root"), lab.path("outside"));
    std::os::unix::fs::symlink(&outside, root.join("link")).unwrap();
    std::os::unix::fs::symlink(outside.join("secret"), root.join("file-link")).unwrap();
    for command in [
        "cat $LAB/outside/secret",
        "cat ../outside/secret",
        "cat link/secret",
        "cat file-link",
        "cat /proc/self/root$LAB/outside/secret",
        "cat /proc/self/cwd/../outside/secret",
        "cat /proc/$$/cwd/../outside/secret",
        "cat /dev/fd/../../cwd/../outside/secret",
        "ls $LAB/outside",
        "ls link/",
        "cd $LAB/outside && cat secret",
        "cp $LAB/outside/secret .",
        "mv $LAB/outside/secret .",
        "ln $LAB/outside/secret hard && cat hard",
        "ln link/secret hard && cat hard",
        "ln -s $LAB/outside soft && cat soft/secret",
        "exec 3< $LAB/outside/secret",
        ". $LAB/outside/secret",
        "tar cf - $LAB/outside",
        "echo x > $LAB/outside/secret",
        "echo x >> link/secret",
        "echo x > file-link",
        "rm $LAB/outside/secret",
        "rm -rf $LAB/outside",
        "mv $LAB/outside $LAB/root/here",
        "mv $LAB/root $LAB/moved",
        "touch $LAB/outside/new",
        "mkdir $LAB/outside/new",
        "ln -s x $LAB/outside/new",
        "mkfifo $LAB/outside/new",
        "truncate -s 0 $LAB/outside/secret",
        "perl -e 'truncate \"$ENV{LAB}/outside/secret\", 0 or exit 1'",
        "touch $LAB/new",
        "touch /tmp/cellmate-shell-test",
        "touch /usr/cellmate-shell-test",
        "touch /dev/shm/cellmate-shell-test",
        "mknod device c 1 1",
        "mknod device b 8 0",
        "python3 -c 'open(\"/dev/sda\")'",
        "perl -e 'open F, \"<\", \"/dev/mem\" or exit 1'",
        "perl -e 'open F, \">\", \"/proc/sys/kernel/core_pattern\" or exit 1'",
        "echo x > /proc/self/oom_score_adj",
    ] {
        lab.fails(command);
    }
    assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), SECRET);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert!(!lab.path("moved").exists() && !lab.path("new").exists());
    assert!(!Path::new("/tmp/cellmate-shell-test").exists());
}

pub(crate) fn the_users_secrets_are_out_of_reach() {
    let lab = Lab::new();
    let home = std::env::var("HOME").unwrap_or_else(|_| "/root".to_owned());
    for path in [
        home.clone(),
        format!("{home}/.ssh"),
        format!("{home}/.bashrc"),
        format!("{home}/.config"),
        format!("{home}/.local/state"),
        "/root".to_owned(),
        "/home".to_owned(),
        "/etc/shadow".to_owned(),
        "/etc/gshadow".to_owned(),
        "/etc/ssl/private".to_owned(),
        "/etc/ssh".to_owned(),
        "/etc/sudoers".to_owned(),
        "/var".to_owned(),
        "/run".to_owned(),
        "/tmp".to_owned(),
        "/proc".to_owned(),
        "/proc/self/environ".to_owned(),
        "/proc/self/mountinfo".to_owned(),
        "/sys/kernel/security".to_owned(),
        "/dev".to_owned(),
        "/".to_owned(),
    ] {
        // Neither listed nor read.
        lab.fails(&format!("ls -A '{path}/' || cat '{path}'"));
    }
    lab.fails(&format!("mkdir -p '{home}/.ssh' && echo x >> '{home}/.ssh/cellmate-shell-test'"));
    lab.fails(&format!("echo x >> '{home}/.bashrc'"));
}

pub(crate) fn the_host_and_the_keeper_are_out_of_reach() {
    let lab = Lab::new();
    let host = std::process::id();
    for file in ["environ", "mem", "maps", "fd", "fd/0", "root/etc/passwd", "cwd", "cmdline", "status", "task"] {
        lab.fails(&format!("ls /proc/{host}/{file}/ || cat /proc/{host}/{file}"));
        lab.fails(&format!("ls /proc/$PPID/{file}/ || cat /proc/$PPID/{file}"));
    }
    lab.fails(&format!("echo x > /proc/{host}/fd/1"));
    for signal in ["0", "TERM", "STOP", "KILL"] {
        lab.fails(&format!("kill -{signal} {host}"));
        lab.fails(&format!("kill -{signal} $PPID"));
        lab.fails(&format!("kill -{signal} 1"));
    }
    // The group of the keeper contains the command itself, which is all that this ends.
    lab.fails("kill -KILL -- -$PPID");
    // PTRACE_SEIZE, process_vm_readv, pidfd_open with pidfd_getfd, and the priority of the host.
    lab.is_denied(&format!("syscall(101, 0x4206, {host}, 0, 0) == 0"));
    lab.is_denied(&format!("syscall(310, {host}, 0, 0, 0, 0, 0) > 0"));
    lab.is_denied(&format!("my $fd = syscall(434, {host}, 0); $fd >= 0 and syscall(438, $fd, 0, 0) >= 0"));
    // It is still there, and so is its own keeper.
    assert_eq!(lab.succeeds("echo fine"), "fine");
}

pub(crate) fn namespaces_and_mounts_are_denied() {
    let lab = Lab::new();
    for command in [
        "unshare --user true",
        "unshare --user --map-root-user true",
        "unshare --mount true",
        "unshare --pid --fork true",
        "unshare --net true",
        "mount -t tmpfs none .",
        "mount --bind / .",
        "umount /",
        "chroot . /bin/true",
        "nsenter --target 1 --mount true",
    ] {
        lab.fails(command);
    }
    // clone(CLONE_NEWUSER | SIGCHLD), clone3, setns and pivot_root.
    lab.is_denied("syscall(56, 0x10000000 | 17, 0, 0, 0, 0) >= 0");
    lab.is_denied("syscall(435, 0, 0) >= 0");
    lab.is_denied("syscall(308, 0, 0) >= 0");
    lab.is_denied("syscall(155, 0, 0) >= 0");
}

/// Sockets of this process, which a command tries to reach.
struct Sockets {
    tcp: TcpListener,
    _udp: UdpSocket,
    udp_port: u16,
    listener: UnixListener,
    datagram: UnixDatagram,
    abstract_name: String,
    abstract_listener: UnixListener,
}

impl Sockets {
    fn new(lab: &Lab) -> Self {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let udp_port = udp.local_addr().unwrap().port();
        let listener = UnixListener::bind(lab.path("root/stream.sock")).unwrap();
        let datagram = UnixDatagram::bind(lab.path("root/datagram.sock")).unwrap();
        let abstract_name = format!("cellmate-shell-{}-{}", std::process::id(), udp_port);
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        let abstract_listener = UnixListener::bind_addr(&address).unwrap();
        tcp.set_nonblocking(true).unwrap();
        listener.set_nonblocking(true).unwrap();
        datagram.set_nonblocking(true).unwrap();
        abstract_listener.set_nonblocking(true).unwrap();
        Self { tcp, _udp: udp, udp_port, listener, datagram, abstract_name, abstract_listener }
    }

    /// Checks that nothing arrived at the sockets of this machine.
    fn assert_silent(&self) {
        let would_block = |kind: ErrorKind| assert_eq!(kind, ErrorKind::WouldBlock);
        would_block(self.listener.accept().unwrap_err().kind());
        would_block(self.datagram.recv(&mut [0; 8]).unwrap_err().kind());
        would_block(self.abstract_listener.accept().unwrap_err().kind());
    }
}

fn try_file_sockets(lab: &Lab, sockets: &Sockets) {
    lab.is_denied("socket(S, AF_UNIX, SOCK_STREAM, 0) and connect(S, sockaddr_un(\"stream.sock\"))");
    lab.is_denied("socket(S, AF_UNIX, SOCK_DGRAM, 0) and send(S, \"x\", 0, sockaddr_un(\"datagram.sock\"))");
    // A pair is connected, but a datagram socket can send elsewhere.
    lab.is_denied("socketpair(A, B, AF_UNIX, SOCK_DGRAM, 0) and send(A, \"x\", 0, sockaddr_un(\"datagram.sock\"))");
    lab.is_denied("socketpair(A, B, AF_UNIX, SOCK_STREAM, 0) and connect(A, sockaddr_un(\"stream.sock\"))");
    let name = &sockets.abstract_name;
    lab.is_denied(&format!("socket(S, AF_UNIX, SOCK_STREAM, 0) and connect(S, sockaddr_un(\"\\0{name}\"))"));
    for agent in ["/run/docker.sock", "/var/run/docker.sock", "/run/dbus/system_bus_socket", "/run/user/1000/bus"] {
        lab.is_denied(&format!("socket(S, AF_UNIX, SOCK_STREAM, 0) and connect(S, sockaddr_un(\"{agent}\"))"));
    }
    sockets.assert_silent();
}

pub(crate) fn without_network_no_socket_can_be_created() {
    let lab = Lab::new();
    let sockets = Sockets::new(&lab);
    let port = sockets.tcp.local_addr().unwrap().port();
    lab.is_denied(&format!(
        "socket(S, AF_INET, SOCK_STREAM, 0) and connect(S, sockaddr_in({port}, inet_aton(\"127.0.0.1\")))"
    ));
    lab.is_denied(&format!(
        "socket(S, AF_INET, SOCK_DGRAM, 0) and send(S, \"x\", 0, sockaddr_in({}, inet_aton(\"127.0.0.1\")))",
        sockets.udp_port
    ));
    // IPv6, raw packets, netlink and virtual machines; then the same system call by its number for x32 programs.
    for family in [10, 17, 16, 40] {
        lab.is_denied(&format!("socket(S, {family}, SOCK_STREAM, 0)"));
    }
    lab.is_denied("syscall(0x40000000 + 41, 2, 1, 0) >= 0");
    lab.fails(&format!("exec 3<> /dev/tcp/127.0.0.1/{port}"));
    try_file_sockets(&lab, &sockets);
    assert_eq!(sockets.tcp.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    // Pairs of connected sockets work: programs use them like pipes.
    let pair = "perl -MSocket -e 'socketpair(A, B, AF_UNIX, SOCK_STREAM, 0) or die $!; print \"pair\"'";
    assert_eq!(lab.succeeds(pair), "pair");
}

pub(crate) fn with_network_sockets_in_the_file_system_stay_denied() {
    let lab = Lab::with(|settings, _| settings.network = Network::Allowed);
    let sockets = Sockets::new(&lab);
    let port = sockets.tcp.local_addr().unwrap().port();
    assert_eq!(lab.succeeds(&format!("exec 3<> /dev/tcp/127.0.0.1/{port} && echo connected")), "connected");
    try_file_sockets(&lab, &sockets);
    for family in [17, 40] {
        lab.is_denied(&format!("socket(S, {family}, SOCK_STREAM, 0)"));
    }
    // Netlink for anything but addresses and routes.
    lab.is_denied("socket(S, 16, SOCK_RAW, 9)");
}

pub(crate) fn privileges_are_dropped() {
    let lab = Lab::new();
    // PR_GET_NO_NEW_PRIVS, so that `setuid` programs get no privileges.
    assert_eq!(lab.succeeds("perl -e 'print syscall(157, 39, 0, 0, 0, 0)'"), "1");
    // The effective, permitted and inheritable capabilities of a program that was started from the shell.
    let capabilities = "perl -e 'my $h = pack(\"LL\", 0x20080522, 0); my $d = \"\\0\" x 24; \
                        syscall(125, $h, $d) == 0 or die; print join(\",\", unpack(\"L6\", $d))'";
    assert_eq!(lab.succeeds(capabilities), "0,0,0,0,0,0");
    // Setting the clock and the user id, if this test runs as root.
    lab.fails("date -s '2001-01-01'");
    lab.is_denied("syscall(227, 0, 0) == 0");
    if rustix::process::geteuid().is_root() {
        lab.fails("perl -e '$> = 12345; exit($> == 12345 ? 0 : 1)'");
    }
}

pub(crate) fn dangerous_system_calls_are_denied() {
    let lab = Lab::new();
    for (name, number) in [
        ("io_uring_setup", 425),
        ("bpf", 321),
        ("perf_event_open", 298),
        ("userfaultfd", 323),
        ("keyctl", 250),
        ("add_key", 248),
        ("open_by_handle_at", 304),
        ("shmget", 29),
        ("msgget", 68),
        ("semget", 64),
        ("mq_open", 240),
        ("init_module", 175),
        ("kexec_load", 246),
        ("reboot", 169),
        ("fsopen", 430),
        ("open_tree", 428),
    ] {
        let denied = format!("perl -e 'syscall({number}, 0, 0, 0, 0, 0); print $!+0, \" {name}\"'");
        assert_eq!(lab.succeeds(&denied), format!("1 {name}"), "expected EPERM");
    }
}

pub(crate) fn there_is_no_terminal() {
    let lab = Lab::new();
    lab.fails("tty");
    lab.fails("exec 3<> /dev/tty");
    lab.fails("ls /dev/pts");
    lab.fails("exec 3<> /dev/ptmx");
    // TIOCSTI, and TIOCLINUX.
    for request in ["0x5412", "0x541c"] {
        let denied = format!("perl -e 'my $x = \"x\"; ioctl(STDOUT, {request}, $x); print $!+0'");
        assert_eq!(lab.succeeds(&denied), "1", "expected EPERM");
    }
}

pub(crate) fn inherited_files_are_closed() {
    let lab = Lab::new();
    let file = fs::File::open(lab.path("outside/secret")).unwrap();
    rustix::io::fcntl_setfd(&file, FdFlags::empty()).unwrap();
    let printed = lab.run("for i in $(seq 3 300); do { cat <&$i; } 2> /dev/null; done; echo end");
    assert_eq!(printed["stdout"], "end\n");
}

pub(crate) fn a_root_that_was_replaced_is_not_used() {
    let lab = Lab::with(|settings, roots| {
        let inner = settings.temporary.parent().unwrap().join("root/inner");
        fs::create_dir(&inner).unwrap();
        roots.push(Root::open(&inner, RootAccess::Write).unwrap()).unwrap();
    });
    lab.succeeds("mv inner away; ln -s $LAB/outside inner");
    let refused = lab.call(&json!({"command": format!("cat {}/inner/secret", lab.path("root").display())}));
    assert!(matches!(&refused, Outcome::Failed(why) if why.contains("another folder")), "{refused:?}");
}

pub(crate) fn a_system_that_can_confine_commands_ignores_unconfined() {
    let lab = Lab::with(|settings, _| settings.unconfined = true);
    lab.fails("cat $LAB/outside/secret");
    lab.fails("echo x > $LAB/outside/new");
    assert_eq!(lab.succeeds("echo x > new; cat new"), "x");
}

/// Runs other trials again as a user without any rights. Without root, all trials already run as an ordinary user.
pub(crate) fn commands_of_an_ordinary_user_are_confined_as_those_of_root() {
    const NOBODY: u32 = 65_534;
    if !rustix::process::geteuid().is_root() {
        return;
    }
    // The user may not be able to reach the folder of the build.
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    let program = folder.path().join("shell-tests");
    // Another process writes the copy: a child that another test starts meanwhile would inherit a descriptor that this
    // process writes to, and the program could not be executed until that child ends.
    let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status().unwrap();
    assert!(copied.success());
    std::os::unix::fs::chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    for trial in [
        "ordinary::a_command_can_change_its_folders",
        "processes::background_processes_end_with_the_command",
        "escape::files_outside_the_folders_can_neither_be_read_nor_changed",
        "escape::namespaces_and_mounts_are_denied",
        "escape::without_network_no_socket_can_be_created",
        "escape::privileges_are_dropped",
        "escape::dangerous_system_calls_are_denied",
    ] {
        let mut command = Command::new(&program);
        command.args([trial, "--exact"]).uid(NOBODY).gid(NOBODY).env(LAB_FOLDER, folder.path()).current_dir("/");
        let output = command.env("HOME", folder.path()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{trial}: {text}");
    }
}
