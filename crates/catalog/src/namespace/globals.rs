//! Global names that namespaces must not use.

use contract::limits::MAX_IDENTIFIER_BYTES;

use super::error::NamespaceError;
use crate::names::JS_RESERVED_WORDS;
use crate::text::{clean, is_identifier};

/// The guest's own globals, as `guest/prelude` defines them, and the bridge of Tool Search.
const CELLMATE: &str = "\
    ALL_TOOLS API MCP TextDecoder TextEncoder URL URLSearchParams atob audio btoa bytes clearTimeout console forget \
    image json keys load namespaces openclaw output setTimeout store structuredClone text tools yield_control";

const STANDARD: &str = "\
    AggregateError Array ArrayBuffer AsyncDisposableStack Atomics BigInt BigInt64Array BigUint64Array Boolean \
    DOMException DataView Date DisposableStack Error EvalError FinalizationRegistry Float16Array Float32Array \
    Float64Array Function Infinity Int16Array Int32Array Int8Array InternalError Intl Iterator JSON Map Math NaN \
    Number Object Promise Proxy RangeError ReferenceError Reflect RegExp Set SharedArrayBuffer String \
    SuppressedError Symbol SyntaxError Temporal TypeError URIError Uint16Array Uint32Array Uint8Array \
    Uint8ClampedArray WeakMap WeakRef WeakSet WebAssembly arguments decodeURI decodeURIComponent encodeURI \
    encodeURIComponent escape eval globalThis isFinite isNaN parseFloat parseInt undefined unescape";

/// Globals that cells do not have, but that code tests for to detect its environment.
const ELSEWHERE: &str = "\
    AbortController AbortSignal Buffer Bun Deno clearInterval crypto document exports fetch global module \
    performance process queueMicrotask require self setInterval window";

/// Properties of every object, which a global of the same name would hide.
const OBJECT: &str = "\
    __proto__ constructor hasOwnProperty isPrototypeOf propertyIsEnumerable prototype then toString valueOf";

const PRIVATE_PREFIX: &str = "__openclaw";

pub(super) fn check_global(name: &str) -> Result<(), NamespaceError> {
    let shown = || clean(name, MAX_IDENTIFIER_BYTES);
    if !is_identifier(name) || name.len() > MAX_IDENTIFIER_BYTES {
        return Err(NamespaceError::NotAnIdentifier(shown()));
    }
    if JS_RESERVED_WORDS.contains(&name) {
        return Err(NamespaceError::ReservedWord(shown()));
    }
    let mut taken = [CELLMATE, STANDARD, ELSEWHERE, OBJECT].into_iter().flat_map(str::split_whitespace);
    if name.starts_with(PRIVATE_PREFIX) || taken.any(|word| word == name) {
        return Err(NamespaceError::BuiltInGlobal(shown()));
    }
    Ok(())
}
