//! What a program does first: it becomes a worker if it was started as one, and starts the runtime.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use contract::limits::HOST_STACK_BYTES;

use crate::error::{Error, ErrorKind};

/// How long the runtime waits for remaining tasks after the program's future has finished.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);

/// Whether this program can be started as a worker. A static, because only `main` knows it.
static CAN_BE_WORKER: AtomicBool = AtomicBool::new(false);

/// Whether another thread was running when [`worker_main`] was called. A worker then has that thread as well, and cannot
/// enter its jail.
static HAD_THREADS: AtomicBool = AtomicBool::new(false);

/// Becomes a sandbox worker and never returns, if this process was started as one. Otherwise returns at once.
///
/// Call it first in `main`, before any thread is started or file opened: the workers that run cells are this program,
/// started again. [`Builder::build`](crate::Builder::build) fails if it was not called, or not before the first thread:
/// `#[tokio::main]` starts threads, so use [`block_on`], or start the runtime in `main` after this call.
///
/// With the feature `mcp`, it also becomes the process that ends an MCP server together with this program.
pub fn worker_main() {
    sandbox::worker_main();
    #[cfg(feature = "mcp")]
    process::keeper_main_closing_files(sandbox::close_inherited_files);
    HAD_THREADS.store(count_threads() > 1, Ordering::Relaxed);
    CAN_BE_WORKER.store(true, Ordering::Relaxed);
}

/// Returns the number of threads of this process; 1 if the system does not list them.
fn count_threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}

pub(crate) fn can_be_worker() -> bool {
    CAN_BE_WORKER.load(Ordering::Relaxed)
}

pub(crate) fn had_threads() -> bool {
    HAD_THREADS.load(Ordering::Relaxed)
}

/// Runs a future on a new Tokio runtime until it finishes, and returns its result.
///
/// Values of models, tools and cells may be 1,000 levels deep. The runtime's threads have the stack that such values
/// need; the future itself runs on the calling thread, so call this function in `main`. A program with a runtime of its
/// own gives its threads a stack of 8 MiB instead (`thread_stack_size`).
///
/// ```
/// let sum = cellmate::block_on(async { Ok::<_, cellmate::Error>(1 + 1) })?;
/// assert_eq!(sum, 2);
/// # Ok::<_, cellmate::Error>(())
/// ```
pub fn block_on<T, E: From<Error>>(future: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    let runtime = tokio::runtime::Builder::new_multi_thread().thread_stack_size(HOST_STACK_BYTES).enable_all().build();
    let runtime = runtime.map_err(|error| {
        Error::new(ErrorKind::RuntimeUnavailable, format!("cannot start the threads of the runtime: {error}"))
    })?;
    let result = runtime.block_on(future);
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    result
}
