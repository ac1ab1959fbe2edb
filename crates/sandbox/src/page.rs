//! A page of guest memory, as snapshots count them.

pub(crate) const PAGE_BYTES: usize = 4096;

pub(crate) static ZERO_PAGE: [u8; PAGE_BYTES] = [0; PAGE_BYTES];

/// A page of memory; past the end of the image it is a page of zeroes.
pub(crate) fn page_at(memory: &[u8], page: usize) -> &[u8] {
    let start = page * PAGE_BYTES;
    memory.get(start..start + PAGE_BYTES).unwrap_or(&ZERO_PAGE)
}
