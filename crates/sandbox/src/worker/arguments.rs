//! How a worker is told what to be: its environment is empty, so by arguments.

use std::ffi::OsString;

/// What a host asks of the jail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JailWish {
    /// All of it, or no worker.
    Required,
    /// What the system has; the host hears how much that is.
    Preferred,
    /// None of it, for debugging.
    Off,
}

#[derive(Debug)]
pub(crate) struct Arguments {
    pub(crate) slots: u32,
    pub(crate) threads: usize,
    pub(crate) jail: JailWish,
    /// Heap that all cells of the worker may take together, in bytes.
    #[expect(dead_code, reason = "RLIMIT_DATA is derived from it on another branch")]
    pub(crate) heap_bytes: Option<u64>,
}

#[derive(Debug, thiserror::Error)]
#[error("a worker is started with: <slots> <threads> required|preferred|off [<heap bytes>]")]
pub(crate) struct BadArguments;

impl Arguments {
    pub(crate) fn parse(mut given: impl Iterator<Item = OsString>) -> Result<Self, BadArguments> {
        let mut next = || given.next().and_then(|text| text.into_string().ok()).ok_or(BadArguments);
        let slots = next()?.parse().map_err(|_| BadArguments)?;
        let threads = next()?.parse().map_err(|_| BadArguments)?;
        let jail = match next()?.as_str() {
            "required" => JailWish::Required,
            "preferred" => JailWish::Preferred,
            "off" => JailWish::Off,
            _ => return Err(BadArguments),
        };
        let heap_bytes = match given.next() {
            Some(text) => Some(text.to_str().and_then(|text| text.parse().ok()).ok_or(BadArguments)?),
            None => None,
        };
        Ok(Self { slots, threads, jail, heap_bytes })
    }
}
