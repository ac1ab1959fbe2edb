//! Fuzzes the guard and the parser: both return in time, within their stack.
#![no_main]

use std::time::{Duration, Instant};

use cellmate_fuzz::source;
use contract::cell::Language;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&shape, rest)) = bytes.split_first() else { return };
    let text = String::from_utf8_lossy(rest);
    // Half of the inputs are repeated to a length near the limit, because repetition creates deep nesting.
    let text = if shape & 2 == 0 { text.into_owned() } else { text.repeat(200_000 / text.len().max(1)) };
    let language = if shape & 1 == 0 { Language::TypeScript } else { Language::JavaScript };
    let began = Instant::now();
    std::thread::Builder::new()
        .stack_size(source::STACK_BYTES)
        .spawn(move || drop(source::prepare(&text, language)))
        .unwrap()
        .join()
        .unwrap();
    assert!(began.elapsed() < Duration::from_secs(5), "took {:?}", began.elapsed());
});
