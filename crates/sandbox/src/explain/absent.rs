//! What to use instead of globals that cells do not have.

use super::names::Names;

/// How a cell shows something to the model.
pub(super) const PRINT: &str = "use text(value) or console.log(value), or `return` the value";

/// Returns the advice for a global of another environment.
pub(super) fn advice(names: &Names<'_>, name: &str) -> Option<String> {
    Some(match name {
        "fetch" | "XMLHttpRequest" | "WebSocket" | "EventSource" | "Request" | "Response" | "Headers" | "FormData"
        | "axios" | "got" | "http" | "https" | "net" => {
            format!("a cell has no network{}", use_a_tool(names, "fetch a URL"))
        }
        "fs" | "fsPromises" | "readFileSync" | "writeFileSync" | "readFile" | "writeFile" | "open" | "FileReader" => {
            format!("a cell has no files{}", use_a_tool(names, "read a file"))
        }
        "process" => {
            let what = "a cell has no process, arguments or environment variables";
            format!("{what}{}", use_a_tool(names, "environment"))
        }
        "child_process" | "execSync" | "spawn" | "exec" | "shell" | "$" | "ls" | "cd" | "pwd" | "cat" | "grep"
        | "curl" | "bash" | "npm" => {
            format!("a cell cannot run commands{}", use_a_tool(names, "run a command"))
        }
        "os" | "path" | "util" | "zlib" | "stream" | "events" | "assert" | "readline" | "nodeCrypto" => {
            "a cell has none of Node's modules; write what you need in plain JavaScript".to_owned()
        }
        "require" | "module" | "exports" | "__dirname" | "__filename" | "define" => {
            "a cell has no modules; use the globals, and `return` the value".to_owned()
        }
        "_" | "lodash" | "moment" | "dayjs" | "z" | "zod" | "cheerio" | "jQuery" | "React" | "pd" | "np" => {
            "a cell has no libraries; write what you need in plain JavaScript".to_owned()
        }
        "Buffer" => "use Uint8Array, TextEncoder and TextDecoder; atob and btoa convert base64".to_owned(),
        "Blob" | "File" | "ReadableStream" | "WritableStream" | "TransformStream" => {
            "use strings and Uint8Array".to_owned()
        }
        "setInterval" | "clearInterval" | "sleep" | "delay" | "wait" | "requestAnimationFrame" => {
            "use setTimeout; `await new Promise((done) => setTimeout(done, 1000))` waits a second".to_owned()
        }
        "setImmediate" | "clearImmediate" | "queueMicrotask" => "use `Promise.resolve().then(callback)`".to_owned(),
        "AbortController" | "AbortSignal" => "a cell cannot cancel its calls; leave it out".to_owned(),
        "localStorage" | "sessionStorage" => {
            "use `await store(key, value)` and `await load(key)`, which the cells of a session share".to_owned()
        }
        "window" | "document" | "navigator" | "location" | "alert" | "self" | "DOMParser" => {
            "a cell does not run in a browser; its globals are in globalThis".to_owned()
        }
        "global" => "use globalThis".to_owned(),
        "Deno" | "Bun" => "a cell is plain JavaScript, without the interfaces of a runtime".to_owned(),
        "crypto" => "a cell has no crypto; Math.random() is enough for a name, a hash needs a tool".to_owned(),
        "Intl" => "a cell has no Intl; format numbers yourself, and dates in UTC".to_owned(),
        "performance" => "use Date.now(); time advances only while the cell awaits a call or a timer".to_owned(),
        "Worker" | "SharedArrayBuffer" | "Atomics" | "WebAssembly" => {
            "a cell is one thread of plain JavaScript; start calls together with Promise.all".to_owned()
        }
        "print" | "printf" | "puts" | "echo" | "log" | "display" => PRINT.to_owned(),
        "input" | "prompt" | "confirm" => "a cell cannot ask the user; return, and ask in your answer".to_owned(),
        _ => return None,
    })
}

/// Returns how to find a tool for something that a cell cannot do itself.
fn use_a_tool(names: &Names<'_>, query: &str) -> String {
    match names.search_function() {
        Some(search) => format!("; use a tool, which `await {search}(\"{query}\")` finds"),
        None => ", and this run has no tools for it".to_owned(),
    }
}
