//! The only `unsafe` code of the project: loading the compiled guest image (QuickJS as WebAssembly), stopping a running
//! cell, finding the memory pages that a cell has changed, configuring the allocator, and closing inherited file
//! descriptors.
#![expect(unsafe_code, reason = "each block below states why it is sound; nothing else may have one")]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use wasmtime::{AsContext, Engine, Memory, Module};

/// Loads the guest image that this crate's build script compiled.
pub(crate) fn load_image(engine: &Engine, compiled: &[u8]) -> wasmtime::Result<Module> {
    // SAFETY: `deserialize` trusts its bytes to be Wasmtime's own output. The only caller passes
    // the bytes that the build script got from `precompile_module`, compressed and embedded in this binary.
    unsafe { Module::deserialize(engine, compiled) }
}

/// The word in the memory of a running cell that stops it. The watchdog writes it while the cell's thread runs guest code.
#[derive(Debug)]
pub(crate) struct StopFlag(NonNull<AtomicU32>);

// SAFETY: the word is only written atomically, and the watchdog's lock keeps the flag from outliving its leg.
unsafe impl Send for StopFlag {}

impl StopFlag {
    /// Returns the flag at this address of a memory; `None` if no aligned word is there.
    pub(crate) fn at(memory: &Memory, store: impl AsContext, address: u32) -> Option<Self> {
        let address = address as usize;
        let is_inside = address.checked_add(size_of::<AtomicU32>())? <= memory.data_size(&store);
        let word = memory.data_ptr(&store).wrapping_add(address).cast::<AtomicU32>();
        if is_inside && word.is_aligned() { NonNull::new(word).map(Self) } else { None }
    }

    /// Makes the cell trap at its next check.
    pub(crate) fn set(&self) {
        // SAFETY: the word is inside the memory, as `at` has checked, and aligned. The memory is mapped: a slot of
        // Wasmtime's pool does not move, and the watchdog calls this only while the leg is in its list, during which
        // the leg's `Vm` exists. The host reads or writes this word only before and after a leg.
        unsafe { self.0.as_ref() }.store(1, Ordering::Relaxed);
    }
}

/// Closes every file descriptor from `first` on.
#[cfg(target_os = "linux")]
pub(crate) fn close_from(first: u32) -> std::io::Result<()> {
    // SAFETY: called once, first in `main`, when nothing owns a descriptor above standard error; so no owner
    // is left with a closed one.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Closes every file descriptor but the standard streams. Call it first in `main`, before any file is opened.
#[cfg(target_os = "linux")]
pub fn close_inherited_files() -> std::io::Result<()> {
    close_from(3)
}

#[cfg(not(target_os = "linux"))]
pub fn close_inherited_files() -> std::io::Result<()> {
    Ok(())
}

/// Limits the allocator of a worker to its main arena. With more arenas, glibc reads the number of processors when
/// threads first compete and the overcommit policy when an arena shrinks, each from a file, and the jail kills a
/// process that opens one. Also lets the allocator keep the memory that a snapshot used: returning a few hundred
/// kilobytes to the system after every snapshot costs more in page faults than the snapshot itself.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn configure_worker_allocator() -> bool {
    const KEEP_BYTES: i32 = 16 << 20;
    let settings = [(libc::M_ARENA_MAX, 1), (libc::M_TRIM_THRESHOLD, KEEP_BYTES), (libc::M_MMAP_THRESHOLD, KEEP_BYTES)];
    // SAFETY: `mallopt` takes two numbers; it is called before any other thread exists.
    settings.into_iter().all(|(setting, value)| unsafe { libc::mallopt(setting, value) == 1 })
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn configure_worker_allocator() -> bool {
    true
}

/// Makes the allocator of a host return large blocks to the system as soon as they are free. By default, glibc raises
/// its threshold for that with every large block it frees, and one tool result of many megabytes, which exists in
/// several forms at once, makes the host permanently larger by all of them. The thresholds are high enough that ordinary
/// work reuses its memory; what remains is returned by [`release_free_memory`].
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn configure_host_allocator() {
    const LARGE_BYTES: i32 = 4 << 20;
    // With a lower threshold, rebuilding a catalog of 10,000 tools takes a third longer, because the system must
    // provide its pages anew each time.
    const FREE_TOP_BYTES: i32 = 32 << 20;
    // Each arena keeps some of what was freed in it, so the number of arenas is limited to half of glibc's default of
    // eight per core. With fewer arenas, the threads of the database and of the runtime wait for each other: with one
    // per core, a call took a third longer.
    let cores = std::thread::available_parallelism().map_or(2, |cores| i32::try_from(cores.get()).unwrap_or(8));
    let arenas = cores.saturating_mul(4);
    let large =
        [(libc::M_MMAP_THRESHOLD, LARGE_BYTES), (libc::M_TRIM_THRESHOLD, FREE_TOP_BYTES), (libc::M_ARENA_MAX, arenas)];
    for (setting, value) in large {
        // SAFETY: `mallopt` takes two numbers; it is called before any other thread exists.
        // A refused setting only costs memory.
        unsafe { libc::mallopt(setting, value) };
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn configure_host_allocator() {}

/// Returns memory that is free inside the allocator to the system. Parsed values are many small blocks; after they are
/// freed, glibc keeps their pages as long as anything above them is in use.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn release_free_memory() {
    // SAFETY: `malloc_trim` takes a number, may be called by any thread at any time, and touches free blocks only.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn release_free_memory() {}

#[cfg(target_os = "linux")]
pub(crate) mod page_scan {
    //! PAGEMAP_SCAN: finds the written pages of a private mapping. Linux 6.7 and later.

    use std::fs::File;
    use std::io;
    use std::os::fd::AsRawFd;

    pub(crate) const REQUEST: u32 = 0xC060_6610;

    const IS_FILE: u64 = 1 << 2;
    const IS_PRESENT: u64 = 1 << 3;
    const IS_SWAPPED: u64 = 1 << 4;
    const IS_ZERO_PAGE: u64 = 1 << 5;

    #[repr(C)]
    struct Arguments {
        size: u64,
        flags: u64,
        start: u64,
        end: u64,
        walk_end: u64,
        regions: u64,
        regions_len: u64,
        max_pages: u64,
        category_inverted: u64,
        category_mask: u64,
        category_anyof_mask: u64,
        return_mask: u64,
    }

    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Region {
        start: u64,
        end: u64,
        categories: u64,
    }

    /// Calls `found` for each byte range of `memory` that was written: its pages are present or swapped, and are
    /// neither file pages of the image nor the zero page. `memory` must be page-aligned.
    pub(crate) fn private_ranges(
        pagemap: &File,
        memory: &[u8],
        mut found: impl FnMut(std::ops::Range<usize>),
    ) -> io::Result<()> {
        let base = memory.as_ptr() as u64;
        let end = base + memory.len() as u64;
        let mut regions = [Region::default(); 256];
        let mut start = base;
        while start < end {
            let mut arguments = Arguments {
                size: size_of::<Arguments>() as u64,
                flags: 0,
                start,
                end,
                walk_end: 0,
                regions: regions.as_mut_ptr() as u64,
                regions_len: regions.len() as u64,
                max_pages: 0,
                category_inverted: IS_FILE | IS_ZERO_PAGE,
                category_mask: IS_FILE | IS_ZERO_PAGE,
                category_anyof_mask: IS_PRESENT | IS_SWAPPED,
                return_mask: IS_PRESENT,
            };
            // SAFETY: the kernel reads and writes `arguments` and at most `regions_len` regions,
            // both alive across the call; it only looks at the pages of `memory`.
            let count = unsafe { libc::ioctl(pagemap.as_raw_fd(), libc::Ioctl::from(REQUEST), &raw mut arguments) };
            let Ok(count) = usize::try_from(count) else { return Err(io::Error::last_os_error()) };
            for region in regions.iter().take(count) {
                found((region.start - base) as usize..(region.end - base) as usize);
            }
            if arguments.walk_end <= start {
                break;
            }
            start = arguments.walk_end;
        }
        Ok(())
    }
}
