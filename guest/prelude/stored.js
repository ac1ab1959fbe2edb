// `output`, which reads stored outputs, and `store`, `load`, `forget` and `keys`, which the cells of a session share.

// These names are common, so a cell that assigns to one without declaring it gets a variable of its own.
const offer = (name, value) =>
  defineProperty(global, name, { __proto__: null, value, enumerable: true, writable: true, configurable: true });

const invalid = (message) => {
  const error = new TypeError(message);
  constant(error, "code", "invalid_input");
  return error;
};

const isObject = (value) => typeof value === "object" && value !== null;

// Returns the handle in a text, in a preview, an output item or a block, and in what `output.ref` returns.
const handleIn = (value) => {
  const handle = isObject(value) ? value.handle ?? value.$handle : value;
  return typeof handle === "string" && startsWith(handle, "out_") ? handle : undefined;
};
const handleOf = (value, name) => {
  const handle = handleIn(value);
  if (handle === undefined)
    throw invalid(`${name} takes a handle, such as "out_…" in a result, or an object with one; \`await output.list()\` lists them`);
  return handle;
};

// The functions await what they return: to return a promise would call a `then` that the cell may have replaced.
const readStored = (name, args) => request(STORED, name, args, "an argument", `output.${name}()`);
const pattern = (value) => {
  if (value instanceof RegExp) return { __proto__: null, source: regExpSource(value), flags: regExpFlags(value) };
  if (typeof value === "string") return value;
  throw invalid("output.grep() takes a pattern: a text with a regular expression, or a RegExp");
};
const stored = otherNames("output", () => undefined);
const readers = {
  __proto__: null,
  list: async () => await readStored("list", []),
  read: async (handle, options) => await readStored("read", [handleOf(handle, "output.read()"), options ?? {}]),
  lines: async (handle, options) => await readStored("lines", [handleOf(handle, "output.lines()"), options ?? {}]),
  json: async (handle) => await readStored("json", [handleOf(handle, "output.json()")]),
  grep: async (handle, sought, options) =>
    await readStored("grep", [handleOf(handle, "output.grep()"), pattern(sought), options ?? {}]),
  // The host puts the stored text or value in place of this object in the arguments of a tool.
  ref: (handle) => freeze({ $handle: handleOf(handle, "output.ref()") }),
};
for (const name of getOwnPropertyNames(readers)) constant(stored, name, freeze(readers[name]));
offer("output", freeze(stored));

const keyOf = (key, name) => {
  if (typeof key !== "string" || key === "") throw invalid(`${name} takes a key: a text that is not empty`);
  return key;
};
// A version that is undefined is that of a key that `load` did not find, not the absence of a condition. The host refuses
// options that it does not know.
const condition = (options) => {
  if (options === undefined) return {};
  if (!isObject(options) || !("ifVersion" in options) || options.ifVersion !== undefined) return options;
  return { ...options, ifVersion: null };
};
const useState = (name, args) => request(STATE, name, args, "the value", `${name}()`);

offer("store", freeze(async function store(key, value, options) {
  keyOf(key, "store()");
  if (value === undefined || typeof value === "function" || typeof value === "symbol")
    throw invalid("store() takes a value with a JSON form; forget(key) deletes a key");
  return await useState("store", [key, value, condition(options)]);
}));
offer("load", freeze(async function load(key, options) {
  const found = await useState("load", [keyOf(key, "load()")]);
  if (found === null) return undefined;
  return isObject(options) && options.version ? { value: found.value, version: found.version } : found.value;
}));
offer("forget", freeze(async function forget(key, options) {
  return await useState("forget", [keyOf(key, "forget()"), condition(options)]);
}));
offer("keys", freeze(async function keys() { return await useState("keys", []); }));
