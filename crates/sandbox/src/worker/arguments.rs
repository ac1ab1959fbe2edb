//! A worker's command-line arguments. They are its only configuration, because its environment is empty.

use std::ffi::OsString;

use contract::limits::WORKER_HEAP_BYTES;

/// The jail that a host requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JailRequest {
    /// The full jail; without it, the worker refuses to start.
    Required,
    /// Whatever the system supports; the worker reports the result to the host.
    Preferred,
    /// No jail, for debugging.
    Off,
}

#[derive(Debug)]
pub(crate) struct Arguments {
    pub(crate) slots: u32,
    pub(crate) threads: usize,
    pub(crate) jail: JailRequest,
    /// The maximum total heap size of the cells that run at once.
    pub(crate) heap_bytes: u64,
}

#[derive(Debug, thiserror::Error)]
#[error("invalid worker arguments, expected: <slots> <threads> required|preferred|off [heap bytes]")]
pub(crate) struct BadArguments;

impl Arguments {
    pub(crate) fn parse(given: impl Iterator<Item = OsString>) -> Result<Self, BadArguments> {
        let given: Vec<String> =
            given.map(|text| text.into_string().map_err(|_| BadArguments)).collect::<Result<_, _>>()?;
        let (slots, threads, jail, heap) = match given.as_slice() {
            [slots, threads, jail] => (slots, threads, jail, None),
            [slots, threads, jail, heap] => (slots, threads, jail, Some(heap)),
            _ => return Err(BadArguments),
        };
        let slots = slots.parse().map_err(|_| BadArguments)?;
        let threads = threads.parse().map_err(|_| BadArguments)?;
        let heap_bytes = heap.map_or(Ok(WORKER_HEAP_BYTES), |heap| heap.parse().map_err(|_| BadArguments))?;
        let jail = match jail.as_str() {
            "required" => JailRequest::Required,
            "preferred" => JailRequest::Preferred,
            "off" => JailRequest::Off,
            _ => return Err(BadArguments),
        };
        Ok(Self { slots, threads, jail, heap_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::{Arguments, JailRequest};
    use contract::limits::WORKER_HEAP_BYTES;

    fn parse(given: &[&str]) -> Option<(u32, usize, JailRequest, u64)> {
        let parsed = Arguments::parse(given.iter().map(Into::into)).ok()?;
        Some((parsed.slots, parsed.threads, parsed.jail, parsed.heap_bytes))
    }

    #[test]
    fn the_heap_budget_is_optional() {
        assert_eq!(parse(&["64", "16", "required"]), Some((64, 16, JailRequest::Required, WORKER_HEAP_BYTES)));
        assert_eq!(parse(&["1", "2", "off", "1048576"]), Some((1, 2, JailRequest::Off, 1 << 20)));
        for bad in [&["64", "16"][..], &["64", "16", "maybe"], &["1", "2", "off", "much"], &["1", "2", "off", "3", "4"]]
        {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }
}
