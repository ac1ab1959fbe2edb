//! Which pages of a cell's memory differ from the image.

use std::fs::File;

use crate::page::{PAGE_BYTES, ZERO_PAGE, page_at};

/// Finds changed pages: from the kernel where it can tell, by comparing all of memory elsewhere.
#[derive(Debug)]
pub(crate) struct PageFinder {
    pagemap: Option<File>,
}

impl PageFinder {
    /// Must be opened before the jail closes: afterwards there are no files.
    #[cfg(target_os = "linux")]
    pub(crate) fn open() -> Self {
        let pagemap = File::open("/proc/self/pagemap").ok().filter(|pagemap| {
            // Any page will do; the question is whether the kernel knows the request.
            crate::raw::page_scan::private_ranges(pagemap, page_of(&ZERO_PAGE), |_| ()).is_ok()
        });
        Self { pagemap }
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn open() -> Self {
        Self::comparing()
    }

    /// Never asks the kernel.
    #[cfg(any(test, not(target_os = "linux")))]
    pub(crate) fn comparing() -> Self {
        Self { pagemap: None }
    }

    pub(crate) fn asks_the_kernel(&self) -> bool {
        self.pagemap.is_some()
    }

    /// The numbers of the pages of `memory` that differ from `base`, in order.
    pub(crate) fn changed(&self, memory: &[u8], base: &[u8]) -> Vec<u32> {
        #[cfg(target_os = "linux")]
        if let Some(pagemap) = &self.pagemap {
            let mut changed = Vec::with_capacity(64);
            // A private page may hold what the image holds: slots keep pages between cells.
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

/// The whole page that `bytes` starts in is not ours to slice; its own bytes are enough to ask about.
#[cfg(target_os = "linux")]
fn page_of(bytes: &[u8]) -> &[u8] {
    let misaligned = bytes.as_ptr().align_offset(PAGE_BYTES);
    bytes.get(misaligned..).unwrap_or_default()
}

fn differs(memory: &[u8], base: &[u8], page: usize) -> bool {
    page_at(memory, page) != page_at(base, page)
}
