// Removes globals that cells must not have, and locks one that they must not change. The last file of the prelude.

// With its own `prepareStackTrace`, a cell could obtain the prelude's functions from call sites.
defineProperty(Error, "prepareStackTrace", { __proto__: null, value: undefined, writable: false, configurable: false });
hide(Math, "random", random);
// `JSON.rawJSON` puts any text into JSON, such as a number that other JSON parsers reject.
for (const name of ["rawJSON", "isRawJSON"]) delete JSON[name];
for (const name of ["SharedArrayBuffer", "Atomics", "performance", "WebAssembly"]) delete global[name];
