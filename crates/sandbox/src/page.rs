//! Pages of guest memory in snapshots, and the difference between two pages.
//!
//! A difference is a bitmap with one bit per word of the page, then the changed words, each XORed with its original
//! value.

pub(crate) const PAGE_BYTES: usize = 4096;

/// The size of a difference that changes every word of a page.
pub(crate) const MAX_DIFFERENCE_BYTES: usize = MAP_BYTES + PAGE_BYTES;

pub(crate) static ZERO_PAGE: [u8; PAGE_BYTES] = [0; PAGE_BYTES];

const WORD_BYTES: usize = 8;
/// Eight words, one byte of the bitmap.
const LINE_BYTES: usize = 8 * WORD_BYTES;
const MAP_BYTES: usize = PAGE_BYTES / LINE_BYTES;

/// Returns a page of memory; past the end of the image, a page of zeroes.
pub(crate) fn page_at(memory: &[u8], page: usize) -> &[u8] {
    let start = page * PAGE_BYTES;
    memory.get(start..start + PAGE_BYTES).unwrap_or(&ZERO_PAGE)
}

pub(crate) fn write_difference(now: &[u8], then: &[u8], into: &mut Vec<u8>) {
    let map_at = into.len();
    into.extend_from_slice(&[0; MAP_BYTES]);
    let lines = now.as_chunks::<LINE_BYTES>().0.iter().zip(then.as_chunks::<LINE_BYTES>().0);
    for (line, (now, then)) in lines.enumerate().filter(|(_, (now, then))| now != then) {
        let changed = write_changed_words(now, then, into);
        if let Some(map) = into.get_mut(map_at + line) {
            *map = changed;
        }
    }
}

/// Writes the changed words and returns a bitmap of them. Every word is put behind the changed ones before it and kept if
/// it has changed, because branches that cannot be predicted would take most of the time.
fn write_changed_words(now: &[u8; LINE_BYTES], then: &[u8; LINE_BYTES], into: &mut Vec<u8>) -> u8 {
    let mut changed = [0; LINE_BYTES];
    let (mut map, mut count) = (0, 0);
    let words = now.as_chunks::<WORD_BYTES>().0.iter().zip(then.as_chunks::<WORD_BYTES>().0);
    for (bit, (now, then)) in words.enumerate() {
        let difference = u64::from_le_bytes(*now) ^ u64::from_le_bytes(*then);
        if let Some(next) = changed.as_chunks_mut::<WORD_BYTES>().0.get_mut(count) {
            *next = difference.to_le_bytes();
        }
        let is_changed = difference != 0;
        map |= u8::from(is_changed) << bit;
        count += usize::from(is_changed);
    }
    into.extend_from_slice(changed.get(..count * WORD_BYTES).unwrap_or_default());
    map
}

/// Restores a page from a difference. Returns the bytes after the difference, or `None` if it is truncated.
pub(crate) fn apply_difference<'a>(difference: &'a [u8], page: &mut [u8]) -> Option<&'a [u8]> {
    let (map, words) = difference.split_first_chunk::<MAP_BYTES>()?;
    let changed: usize = map.iter().map(|line| line.count_ones() as usize).sum();
    let (words, behind) = words.split_at_checked(changed * WORD_BYTES)?;
    let mut words = words.as_chunks::<WORD_BYTES>().0.iter();
    for (line, &map) in page.as_chunks_mut::<LINE_BYTES>().0.iter_mut().zip(map) {
        let mut left = map;
        while left != 0 {
            let now = line.as_chunks_mut::<WORD_BYTES>().0.get_mut(left.trailing_zeros() as usize)?;
            *now = (u64::from_le_bytes(*now) ^ u64::from_le_bytes(*words.next()?)).to_le_bytes();
            left &= left - 1;
        }
    }
    Some(behind)
}

#[cfg(test)]
mod tests {
    use super::{MAP_BYTES, MAX_DIFFERENCE_BYTES, PAGE_BYTES, ZERO_PAGE, apply_difference, write_difference};

    fn round_trip(now: &[u8], then: &[u8]) -> usize {
        let mut difference = Vec::new();
        write_difference(now, then, &mut difference);
        let length = difference.len();
        difference.extend_from_slice(b"behind");
        let mut page = then.to_vec();
        assert_eq!(apply_difference(&difference, &mut page), Some(&b"behind"[..]));
        assert_eq!(page, now);
        for cut in [0, MAP_BYTES - 1, length - 1] {
            let whole = cut >= MAP_BYTES && length == MAP_BYTES;
            assert_eq!(apply_difference(&difference[..cut], &mut then.to_vec()).is_some(), whole);
        }
        length
    }

    #[test]
    fn only_words_that_changed_are_written() {
        let mut now = ZERO_PAGE;
        assert_eq!(round_trip(&now, &ZERO_PAGE), MAP_BYTES);
        now[0] = 1;
        now[77] = 2;
        now[PAGE_BYTES - 1] = 3;
        assert_eq!(round_trip(&now, &ZERO_PAGE), MAP_BYTES + 3 * 8);
        assert_eq!(round_trip(&[7; PAGE_BYTES], &ZERO_PAGE), MAX_DIFFERENCE_BYTES);
    }
}
