//! Fuzzes the decoding of snapshots, with a valid checksum, too: a snapshot is refused, or stays within bounds.
#![no_main]

use libfuzzer_sys::fuzz_target;

const HEADER_BYTES: usize = 92;

fuzz_target!(|bytes: &[u8]| {
    // Unchanged.
    cellmate_fuzz::read_snapshot(bytes);
    // With a valid header, so that the counts and the compressed body are tested.
    let mut forged = b"CMSS\x03\0\0\0".to_vec();
    forged.resize(72, 0);
    forged.extend_from_slice(bytes);
    if forged.len() > HEADER_BYTES {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&forged[..HEADER_BYTES - 4]);
        hasher.update(&forged[HEADER_BYTES..]);
        let crc = hasher.finalize().to_le_bytes();
        forged[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&crc);
    }
    cellmate_fuzz::read_snapshot(&forged);
});
