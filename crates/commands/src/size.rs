//! Sizes of data, as people read them.

/// Formats a number of bytes: `1 byte`, `12 kB`, `3.4 MB`.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        1 => "1 byte".to_owned(),
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{} kB", bytes / 1_000),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_are_printed_in_a_fitting_unit() {
        let printed = [0, 1, 999, 1_000, 999_999, 1_500_000, 64 << 20].map(size);
        assert_eq!(printed, ["0 bytes", "1 byte", "999 bytes", "1 kB", "999 kB", "1.5 MB", "67.1 MB"]);
    }
}
