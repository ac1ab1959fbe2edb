//! The worker process: the sandbox behind a socket, in a jail.
//!
//! The order in [`worker_main`] matters: everything that needs the system is done before the jail closes step by step,
//! and no cell is accepted before the last step.

mod arguments;
mod jail;
mod pulse;
mod serve;
mod turns;

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use contract::frame::{FromWorker, Hello, Jail, MAX_FRAME_BYTES, WORKER_ARGUMENT};
use contract::limits::{
    MAX_CATALOG_BYTES, MAX_LEG_MEDIA_BYTES, MAX_OUTSTANDING_BYTES, MAX_STORED_OUTPUT_BYTES, MAX_WORKER_CATALOG_BYTES,
    MAX_WORKER_TURNS, WORKER_HEAP_BYTES,
};

use crate::image::IMAGE_ID;
use crate::machine::Sandbox;
use arguments::{Arguments, JailRequest};
use jail::DataUse;
use serve::Crew;

/// If this process was started as a worker, runs it and never returns. Otherwise only configures the allocator of the
/// host to return large blocks to the system.
///
/// Call it first in `main`, before any thread is started or file opened.
pub fn worker_main() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_none_or(|first| first != WORKER_ARGUMENT) {
        return crate::raw::configure_host_allocator();
    }
    abort_on_panic();
    let code = i32::from(run(arguments).is_err());
    std::process::exit(code);
}

/// Aborts the process on a panic, also in programs where panics unwind. A worker that lost a thread would never answer
/// some of its cells; the pool replaces a worker that exited.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}

/// Serves a socket from threads of this process, without a jail. For tests and benchmarks.
pub fn serve_attached(stream: UnixStream, slots: u32, threads: usize) -> std::io::Result<()> {
    let spare = u32::try_from(threads).unwrap_or(0);
    let sandbox = Sandbox::new(slots + spare).map_err(std::io::Error::other)?;
    let (page_scan, image_bytes) = (sandbox.asks_the_kernel_for_pages(), sandbox.image_bytes() as u64);
    let crew = Crew::assemble(Arc::new(sandbox), File::from(OwnedFd::from(stream)), threads)?;
    crew.send(&FromWorker::Hello(Hello { image: IMAGE_ID, image_bytes, jail: Jail::None, slots, page_scan }))?;
    crew.go();
    Ok(())
}

/// Puts this process into the jail of a worker. For tests of the jail.
#[doc(hidden)]
pub fn enter_jail() -> Result<Jail, Box<dyn std::error::Error + Send + Sync>> {
    let data_use = DataUse::open();
    let files = jail::close_files(JailRequest::Required)?;
    let arguments = Arguments { slots: 1, threads: 1, jail: JailRequest::Required, heap_bytes: WORKER_HEAP_BYTES };
    jail::limit_data(JailRequest::Required, data_use, 1, data_limit(&arguments, 1, 0))?;
    Ok(jail::filter_system_calls(JailRequest::Required, files)?)
}

fn run(arguments: impl Iterator<Item = std::ffi::OsString>) -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    crate::raw::close_from(3)?;
    // Standard input is the socket; clone the descriptor to own it.
    let stream = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    match start(arguments, &stream) {
        Ok(crew) => {
            crew.wait_for_disconnect();
            Ok(())
        }
        Err(reason) => {
            // Report the reason to the host; the exit code alone says little.
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
    if !crate::raw::configure_worker_allocator() {
        return Err("the allocator rejects its settings".into());
    }
    // A dropped cell keeps its instance until it has stopped, when its slot may already be in use again.
    let spare = u32::try_from(arguments.threads).unwrap_or(0);
    let slots = arguments.slots + spare;
    let sandbox = Sandbox::new(slots)?;
    let room = data_limit(&arguments, slots, sandbox.image_bytes());
    let data_use = DataUse::open();
    let files = jail::close_files(arguments.jail)?;
    let (page_scan, image_bytes) = (sandbox.asks_the_kernel_for_pages(), sandbox.image_bytes() as u64);
    // Threads must exist before system calls are filtered: creating one takes calls that no cell needs.
    let crew = Crew::assemble(Arc::new(sandbox), stream.try_clone()?, arguments.threads)?;
    jail::limit_data(arguments.jail, data_use, arguments.threads, room)?;
    let jail = jail::filter_system_calls(arguments.jail, files)?;
    crew.send(&FromWorker::Hello(Hello { image: IMAGE_ID, image_bytes, jail, slots: arguments.slots, page_scan }))?;
    crew.go();
    Ok(crew)
}

/// Returns the private writable memory that a worker needs beyond what it has when idle, if every limit of the contract
/// is used up at once. An honest worker never reaches it.
fn data_limit(arguments: &Arguments, slots: u32, image_bytes: usize) -> u64 {
    let bytes = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX);
    // Each slot that has been used keeps its copy of the image mapped.
    let images = u64::from(slots).saturating_mul(bytes(image_bytes));
    // The heaps of running cells. While they are frozen or thawed, also the differences of their pages, in a buffer
    // that may have grown to twice their size, and the compressed result.
    let cells = arguments.heap_bytes.saturating_mul(4);
    // The calls of every running leg, and one leg in its frame.
    let calls = bytes(arguments.threads).saturating_add(2).saturating_mul(bytes(MAX_OUTSTANDING_BYTES));
    // The output of every leg that the pool runs at once, and one leg in its frame.
    let output = bytes(MAX_WORKER_TURNS + 1)
        .saturating_mul(MAX_STORED_OUTPUT_BYTES.range.end().saturating_add(bytes(MAX_LEG_MEDIA_BYTES)));
    // All catalogs, and one that is being read.
    let catalogs = bytes(MAX_WORKER_CATALOG_BYTES + 2 * MAX_CATALOG_BYTES);
    // The frame that is being received, and its decoded form.
    let frames = bytes(2 * MAX_FRAME_BYTES);
    [images, cells, calls, output, catalogs, frames].into_iter().fold(0, u64::saturating_add)
}
