//! The worker process: the sandbox behind a socket, in a jail.
//!
//! The order in [`worker_main`] is the point of this module: everything that needs the system is
//! done before the doors close one after the other, and no cell is seen before the last is shut.

mod arguments;
mod jail;
mod pulse;
mod serve;
mod turns;

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use contract::frame::{FromWorker, Hello, Jail, WORKER_ARGUMENT};

use crate::image::IMAGE_ID;
use crate::machine::Sandbox;
use arguments::{Arguments, JailWish};
use serve::Crew;

/// Becomes a worker and never returns, if this process was started as one; otherwise only has the allocator give
/// back what a host needs for a moment.
///
/// Call it first in `main`, before any thread is started or file opened.
pub fn worker_main() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_none_or(|first| first != WORKER_ARGUMENT) {
        return crate::raw::settle_host_allocator();
    }
    die_of_panics();
    let code = i32::from(run(arguments).is_err());
    std::process::exit(code);
}

/// A worker that has lost a thread would answer some of its cells and never the others; the pool replaces one that is
/// gone, in programs where panics unwind, too.
fn die_of_panics() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        std::process::abort();
    }));
}

/// Serves a socket from threads of this process, without a jail. For tests and measurements.
pub fn serve_attached(stream: UnixStream, slots: u32, threads: usize) -> std::io::Result<()> {
    let spare = u32::try_from(threads).unwrap_or(0);
    let sandbox = Sandbox::new(slots + spare).map_err(std::io::Error::other)?;
    let page_scan = sandbox.asks_the_kernel_for_pages();
    let crew = Crew::assemble(Arc::new(sandbox), File::from(OwnedFd::from(stream)), threads)?;
    crew.say(&FromWorker::Hello(Hello { image: IMAGE_ID, jail: Jail::None, slots, page_scan }))?;
    crew.go();
    Ok(())
}

/// Puts this process into the jail that a worker is in. For tests of the jail itself.
#[doc(hidden)]
pub fn enter_jail() -> Result<Jail, Box<dyn std::error::Error + Send + Sync>> {
    let files = jail::close_files(JailWish::Required)?;
    Ok(jail::filter_system_calls(JailWish::Required, files)?)
}

fn run(arguments: impl Iterator<Item = std::ffi::OsString>) -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    crate::raw::close_from(3)?;
    // Standard input is the socket; a copy of the descriptor is an owned one.
    let stream = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    match start(arguments, &stream) {
        Ok(crew) => {
            crew.work_until_hung_up();
            Ok(())
        }
        Err(reason) => {
            // The host is told why; the exit code alone says little.
            serve::send(&stream, &FromWorker::Unfit { reason: reason.to_string() })?;
            Err(std::io::Error::other(reason))
        }
    }
}

fn start(
    arguments: impl Iterator<Item = std::ffi::OsString>,
    stream: &File,
) -> Result<Crew, Box<dyn std::error::Error + Send + Sync>> {
    let arguments = Arguments::parse(arguments)?;
    if !crate::raw::settle_allocator() {
        return Err("the allocator does not take its settings".into());
    }
    // A dropped cell keeps its instance until it has stopped; its place may be taken before.
    let spare = u32::try_from(arguments.threads).unwrap_or(0);
    let sandbox = Sandbox::new(arguments.slots + spare)?;
    let files = jail::close_files(arguments.jail)?;
    let page_scan = sandbox.asks_the_kernel_for_pages();
    // Threads must exist before system calls are filtered: making one takes calls no cell needs.
    let crew = Crew::assemble(Arc::new(sandbox), stream.try_clone()?, arguments.threads)?;
    let jail = jail::filter_system_calls(arguments.jail, files)?;
    crew.say(&FromWorker::Hello(Hello { image: IMAGE_ID, jail, slots: arguments.slots, page_scan }))?;
    crew.go();
    Ok(crew)
}
