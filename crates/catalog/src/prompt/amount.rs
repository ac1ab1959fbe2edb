//! Limits in words.

/// `10 s`, `1500 ms`.
pub(super) fn time(milliseconds: u64) -> String {
    if milliseconds.is_multiple_of(1000) { format!("{} s", milliseconds / 1000) } else { format!("{milliseconds} ms") }
}

/// `64 KiB`, `1025 bytes`.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} bytes"),
    }
}

/// `1 tool`, `2 tools`.
pub(super) fn count(number: usize, word: &str) -> String {
    if number == 1 { format!("1 {word}") } else { format!("{number} {word}s") }
}
