//! Finds the pages of a cell's memory that differ from the image.

use std::fs::File;

use crate::page::{PAGE_BYTES, ZERO_PAGE, page_at};

/// Finds changed pages, with the kernel's help if it supports that, otherwise by comparing all of memory.
#[derive(Debug)]
pub(crate) struct PageFinder {
    pagemap: Option<File>,
}

impl PageFinder {
    /// Must be called before the worker enters the jail, which denies access to files.
    #[cfg(target_os = "linux")]
    pub(crate) fn open() -> Self {
        let pagemap = File::open("/proc/self/pagemap").ok().filter(|pagemap| {
            // Any page works; this only tests whether the kernel supports the request.
            crate::raw::page_scan::private_ranges(pagemap, page_of(&ZERO_PAGE), |_| ()).is_ok()
        });
        Self { pagemap }
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn open() -> Self {
        Self::comparing()
    }

    /// Creates a finder that never uses the kernel.
    #[cfg(any(test, not(target_os = "linux")))]
    pub(crate) fn comparing() -> Self {
        Self { pagemap: None }
    }

    pub(crate) fn asks_the_kernel(&self) -> bool {
        self.pagemap.is_some()
    }

    /// Returns the numbers of the pages of `memory` that differ from `base`, in order.
    pub(crate) fn changed(&self, memory: &[u8], base: &[u8]) -> Vec<u32> {
        #[cfg(target_os = "linux")]
        if let Some(pagemap) = &self.pagemap {
            let mut changed = Vec::with_capacity(64);
            // A private page may still equal the image: slots keep pages between cells.
            let scanned = crate::raw::page_scan::private_ranges(pagemap, memory, |range| {
                let pages = range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES);
                changed.extend(pages.filter(|&page| differs(memory, base, page)).map(|page| page as u32));
            });
            if scanned.is_ok() {
                return changed;
            }
        }
        let pages = memory.len() / PAGE_BYTES;
        (0..pages).filter(|&page| differs(memory, base, page)).map(|page| page as u32).collect()
    }
}

/// Returns the bytes from the first page boundary on, because a scan must start at one. An empty range is enough.
#[cfg(target_os = "linux")]
fn page_of(bytes: &[u8]) -> &[u8] {
    let misaligned = bytes.as_ptr().align_offset(PAGE_BYTES);
    bytes.get(misaligned..).unwrap_or_default()
}

fn differs(memory: &[u8], base: &[u8], page: usize) -> bool {
    page_at(memory, page) != page_at(base, page)
}
