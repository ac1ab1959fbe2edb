// What a cell must not find, and what it must not change. The last file: after it, cells.

// A cell that formats stack traces itself could take the functions above from them.
defineProperty(Error, "prepareStackTrace", { __proto__: null, value: undefined, writable: false, configurable: false });
hide(Math, "random", random);
// It puts any text into JSON, such as a number that no other reader of JSON takes.
for (const name of ["rawJSON", "isRawJSON"]) delete JSON[name];
for (const name of ["SharedArrayBuffer", "Atomics", "performance", "WebAssembly"]) delete global[name];
