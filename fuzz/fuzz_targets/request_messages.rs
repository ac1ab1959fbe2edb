//! Fuzzes the reader of clients' requests over Messages.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::Wire;

fuzz_target!(|bytes: &[u8]| cellmate_fuzz::wire_check::check_request(Wire::Messages, bytes));
