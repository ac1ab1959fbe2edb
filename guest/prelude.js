// The world a cell wakes up in. Evaluated once, when the image is made, and frozen into it.
//
// Cells share this realm and may patch any built-in, so what is used after a cell has started is
// captured here first. Nothing in this file is a boundary: the host checks every message again.
(function (global, host) {
  "use strict";

  const { call, opened, output, lookup, url, random, encodeUtf8, decodeUtf8 } = host;
  const { parse, stringify } = JSON;
  const { create, defineProperty, freeze, getOwnPropertyNames } = Object;
  const { apply, construct, ownKeys, getOwnPropertyDescriptor } = Reflect;
  const { Error, TypeError, RangeError, Promise, Proxy, Map, Set, Date, RegExp, String, Number, Symbol } = global;
  const { ArrayBuffer, DataView, Uint8Array, WeakMap } = global;
  const isArray = Array.isArray;
  const isView = ArrayBuffer.isView;

  // A built-in method as a plain function of its receiver.
  const method = (prototype, name) => {
    const found = prototype[name];
    return (receiver, ...args) => apply(found, receiver, args);
  };
  const push = method(Array.prototype, "push");
  const join = method(Array.prototype, "join");
  const slice = method(String.prototype, "slice");
  const split = method(String.prototype, "split");
  const startsWith = method(String.prototype, "startsWith");
  const replaceAll = method(String.prototype, "replaceAll");
  const tagOf = method(Object.prototype, "toString");
  const weakGet = method(WeakMap.prototype, "get");
  const weakSet = method(WeakMap.prototype, "set");
  const mapGet = method(Map.prototype, "get");
  const mapSet = method(Map.prototype, "set");
  const mapEach = method(Map.prototype, "forEach");
  const setAdd = method(Set.prototype, "add");
  const setEach = method(Set.prototype, "forEach");

  const constant = (object, name, value) =>
    defineProperty(object, name, { __proto__: null, value, enumerable: true, writable: false, configurable: false });

  // ---- asking the host ----

  // The numbers are `contract::frame::Method`'s.
  const SEARCH = 0, DESCRIBE = 1, CALL = 2, NAMESPACE = 3, YIELD = 4, TIMER = 5, CLEAR = 6;
  // And these are `sandbox::host_calls::Refusal`'s.
  const refusals = ["", "too_many_pending_tool_calls", "value_too_large", "value_too_deep"];
  const refusalText = [
    "",
    "too many calls outstanding: at most 1024 at once; await some before making more",
    "input is too large to send: at most 16 MiB of JSON",
    "input nests too deeply to send: at most 1000 levels",
  ];

  const waiting = create(null);
  const nested = new WeakMap();
  let lastId = 0;

  const failure = (text, code, tool) => {
    const error = new Error(text);
    if (code) constant(error, "code", code);
    weakSet(nested, error, { __proto__: null, code: code ?? "", tool: tool ?? "" });
    return error;
  };

  // What throws in here, a `toJSON` of the cell's for one, rejects the promise.
  function request(number, target, value, what) {
    return new Promise((resolve, reject) => {
      const name = String(target);
      const payload = stringify(value);
      if (payload === undefined) throw new TypeError(`${what} has no JSON form`);
      const id = ++lastId;
      const refused = call(id, number, name, payload);
      if (refused !== 0) {
        reject(failure(refusalText[refused], refusals[refused], name));
        return;
      }
      waiting[id] = { __proto__: null, resolve, reject, target: name };
      opened(false, 1);
    });
  }

  function settle(id, rejected, value) {
    const entry = waiting[id];
    if (entry === undefined) return;
    delete waiting[id];
    if (entry.timer !== undefined) {
      opened(true, -1);
      apply(entry.timer, undefined, entry.args);
      return;
    }
    opened(false, -1);
    if (rejected) entry.reject(failure(String(value.message), value.code, value.tool ?? entry.target));
    else entry.resolve(value);
  }

  // ---- objects that are filled from the catalog when they are looked at ----

  // The catalog stays with the host; a name costs something only when a cell says it. Looking at the
  // object as a whole (keys, `in`, isFrozen) fills and freezes it.
  function lazyObject(fixed, find, names) {
    const target = create(null);
    const given = getOwnPropertyNames(fixed);
    for (let i = 0; i < given.length; i++) constant(target, given[i], fixed[given[i]]);
    let filled = false;
    const get = (_, name) => {
      if (typeof name === "symbol") return undefined;
      if (name in target) return target[name];
      // A thenable would be called by `await`.
      if (filled || name === "then") return undefined;
      const found = find(name);
      if (found !== undefined) constant(target, name, found);
      return found;
    };
    const fill = () => {
      if (filled) return;
      const all = names();
      for (let i = 0; i < all.length; i++) get(target, all[i]);
      filled = true;
      freeze(target);
    };
    const refuse = () => false;
    return new Proxy(target, {
      __proto__: null,
      get,
      has: (_, name) => { fill(); return name in target; },
      ownKeys: () => { fill(); return ownKeys(target); },
      getOwnPropertyDescriptor: (_, name) => { fill(); return getOwnPropertyDescriptor(target, name); },
      isExtensible: () => { fill(); return false; },
      preventExtensions: () => { fill(); return true; },
      set: refuse,
      defineProperty: refuse,
      deleteProperty: refuse,
      setPrototypeOf: refuse,
    });
  }

  const table = (key) => {
    const text = lookup(key);
    return text === undefined ? undefined : parse(text);
  };

  // ---- tools ----

  const callTool = (id, input) => request(CALL, id, input === undefined ? {} : input, "input");
  const tools = lazyObject(
    {
      search: freeze((query, options) => request(SEARCH, "", [String(query), options === undefined ? {} : options], "query")),
      describe: freeze((id) => request(DESCRIBE, id, null, "")),
      call: freeze(callTool),
    },
    (name) => {
      const id = lookup(`tool/${name}`);
      if (id === undefined) return undefined;
      const named = { [name]: (input) => callTool(id, input) };
      return freeze(named[name]);
    },
    () => table("tools") ?? [],
  );
  constant(global, "tools", tools);

  let allTools;
  defineProperty(global, "ALL_TOOLS", {
    __proto__: null,
    enumerable: true,
    configurable: false,
    get: () => {
      if (allTools === undefined) {
        allTools = table("all") ?? [];
        for (let i = 0; i < allTools.length; i++) freeze(allTools[i]);
        freeze(allTools);
      }
      return allTools;
    },
  });

  // ---- namespaces: MCP servers and what plugins registered ----

  const appended = (path, name) => {
    const longer = [];
    for (let i = 0; i < path.length; i++) longer[i] = path[i];
    longer[path.length] = name;
    return longer;
  };

  function build(descriptor, namespace, path) {
    switch (descriptor.kind) {
      case "function": {
        const name = path[path.length - 1];
        const named = { [name]: (...args) => request(NAMESPACE, namespace, [path, args], "an argument") };
        return freeze(named[name]);
      }
      case "array": {
        const built = [];
        for (let i = 0; i < descriptor.items.length; i++) push(built, build(descriptor.items[i], namespace, appended(path, String(i))));
        return freeze(built);
      }
      case "object": {
        const built = create(null);
        for (let i = 0; i < descriptor.entries.length; i++) {
          const { 0: name, 1: entry } = descriptor.entries[i];
          constant(built, name, build(entry, namespace, appended(path, name)));
        }
        return freeze(built);
      }
      default:
        return freeze(descriptor.value);
    }
  }

  const fromTable = (key, namespace, path) => {
    const descriptor = table(key);
    return descriptor === undefined ? undefined : build(descriptor, namespace, path);
  };

  const mcp = lazyObject(
    { $api: freeze((...args) => request(NAMESPACE, "MCP", [["$api"], args], "an argument")) },
    (server) => fromTable(`mcp/${server}`, "MCP", [server]),
    () => table("mcp") ?? [],
  );
  constant(global, "MCP", mcp);

  const namespaces = lazyObject(
    create(null),
    (name) => (name === "MCP" ? mcp : fromTable(`namespace/${name}`, name, [])),
    () => table("namespaces") ?? [],
  );
  constant(global, "namespaces", namespaces);

  // Called when a cell starts: a plugin's namespace is a global of its own as well.
  function begin() {
    const names = table("namespaces");
    if (names === undefined) return;
    for (let i = 0; i < names.length; i++) {
      const name = names[i];
      defineProperty(global, name, { __proto__: null, enumerable: true, configurable: true, get: () => namespaces[name] });
    }
  }

  // ---- API: the declaration files, read without a call ----

  const apiPath = (path) => {
    let text = String(path);
    while (startsWith(text, "/")) text = slice(text, 1);
    const segments = split(text, "/");
    for (let i = 0; i < segments.length; i++) {
      const segment = segments[i];
      if (segment === "" || segment === "." || segment === "..") throw new Error(`invalid API file path: ${text}`);
    }
    return text;
  };
  constant(global, "API", freeze({
    __proto__: null,
    list: async (prefix) => {
      const files = table("api") ?? [];
      if (prefix === undefined || prefix === "" || prefix === "/") return files;
      let path = String(prefix);
      if (slice(path, -1) === "/") path = slice(path, 0, -1);
      path = apiPath(path);
      const found = [];
      for (let i = 0; i < files.length; i++)
        if (files[i].path === path || startsWith(files[i].path, `${path}/`)) push(found, files[i]);
      return found;
    },
    read: async (path) => {
      const text = lookup(`api/${apiPath(path)}`);
      if (text === undefined) throw new Error(`unknown API file: ${path}; API.list() names them all`);
      return text;
    },
  }));

  // ---- output ----

  const TEXT = 0, JSON_VALUE = 1;

  // JSON where there is a JSON form; else what comes closest. Cycles are cut, BigInts become strings.
  function encode(value) {
    if (value instanceof Error) value = { name: String(value.name), message: String(value.message) };
    try {
      const text = stringify(value);
      if (text !== undefined) return text;
    } catch (error) {
      if (error instanceof RangeError || !mayBeMended(error)) throw error;
      return stringify(plain(value, new Map())) ?? "null";
    }
    return value === undefined ? "null" : stringify(String(value));
  }

  // stringify throws a TypeError of its own for cycles and BigInts; any other is the cell's own.
  const mayBeMended = (error) => error instanceof TypeError;

  function plain(value, above) {
    if (typeof value === "bigint") return String(value);
    if (typeof value !== "object" || value === null) return value;
    if (mapGet(above, value)) return "[circular]";
    mapSet(above, value, true);
    let copy;
    if (typeof value.toJSON === "function") copy = plain(value.toJSON(""), above);
    else if (isArray(value)) {
      copy = [];
      for (let i = 0; i < value.length; i++) push(copy, plain(value[i], above));
    } else {
      copy = create(null);
      for (const name of ownEnumerable(value)) copy[name] = plain(value[name], above);
    }
    mapSet(above, value, false);
    return copy;
  }
  const ownEnumerable = Object.keys;

  const show = (value) => {
    if (typeof value === "string") return value;
    if (value instanceof Error) return `${value.name}: ${value.message}`;
    if (typeof value === "function" || typeof value === "symbol" || value === undefined) return String(value);
    return encode(value);
  };
  const print = (...values) => {
    const shown = [];
    for (let i = 0; i < values.length; i++) push(shown, show(values[i]));
    output(TEXT, join(shown, " "));
  };

  constant(global, "text", freeze(function text(value) { output(TEXT, show(value)); }));
  constant(global, "json", freeze(function json(value) { output(JSON_VALUE, encode(value)); }));
  constant(global, "yield_control", freeze(async function yield_control(reason) {
    await request(YIELD, "", reason === undefined ? null : String(reason), "");
  }));

  const quiet = () => {};
  const counts = create(null);
  constant(global, "console", freeze({
    __proto__: null,
    log: print, info: print, warn: print, error: print, debug: print, trace: print, dir: (value) => print(value),
    table: (value) => print(value), group: print, groupCollapsed: print, groupEnd: quiet,
    time: quiet, timeLog: quiet, timeEnd: quiet,
    assert: (holds, ...rest) => { if (!holds) print("assertion failed:", ...rest); },
    count: (label = "default") => { counts[label] = (counts[label] ?? 0) + 1; print(`${label}: ${counts[label]}`); },
  }));

  // What the host makes a failed result of.
  function describe(error) {
    const about = { __proto__: null, name: "", message: "", stack: "", maker: "", code: "", tool: null };
    try {
      if (error instanceof Error) {
        about.name = slice(String(error.name), 0, 200);
        about.message = slice(String(error.message), 0, 8192);
        about.stack = slice(String(error.stack), 0, 2048);
        about.maker = slice(String(error.constructor?.name), 0, 200);
        const cause = weakGet(nested, error);
        if (cause !== undefined) {
          about.code = cause.code;
          about.tool = cause.tool;
        }
      } else about.message = slice(typeof error === "string" ? error : show(error), 0, 8192);
    } catch {
      about.message = "the error that was thrown could not be read";
    }
    return stringify(about);
  }

  // ---- timers ----

  const MAX_DELAY = 0x7fffffff;
  constant(global, "setTimeout", freeze(function setTimeout(handler, delay, ...args) {
    if (typeof handler !== "function") throw new TypeError("setTimeout takes a function");
    const ms = Number(delay);
    const id = ++lastId;
    const refused = call(id, TIMER, "", stringify(ms > 0 ? (ms < MAX_DELAY ? ms : MAX_DELAY) : 0));
    if (refused !== 0) throw failure(refusalText[refused], refusals[refused]);
    waiting[id] = { __proto__: null, timer: handler, args };
    opened(true, 1);
    return id;
  }));
  constant(global, "clearTimeout", freeze(function clearTimeout(id) {
    const entry = waiting[id];
    if (entry === undefined || entry.timer === undefined) return;
    delete waiting[id];
    opened(true, -1);
    call(Number(id), CLEAR, "", "");
  }));

  // ---- encoders ----

  const bytesOf = (view) => {
    if (view === undefined) return { __proto__: null, buffer: new ArrayBuffer(0), offset: 0, length: 0 };
    if (isView(view)) return { __proto__: null, buffer: view.buffer, offset: view.byteOffset, length: view.byteLength };
    return { __proto__: null, buffer: view, offset: 0, length: view.byteLength };
  };
  const hide = (object, name, value) =>
    defineProperty(object, name, { __proto__: null, value, enumerable: false, writable: true, configurable: true });

  hide(global, "TextEncoder", class TextEncoder {
    get encoding() { return "utf-8"; }
    encode(text = "") { return encodeUtf8(String(text)); }
    encodeInto(text, into) {
      const bytes = encodeUtf8(String(text));
      let written = bytes.length <= into.length ? bytes.length : into.length;
      while (written > 0 && written < bytes.length && (bytes[written] & 0xc0) === 0x80) written--;
      for (let i = 0; i < written; i++) into[i] = bytes[i];
      return { read: decodeUtf8(bytes.buffer, 0, written, false).length, written };
    }
  });
  hide(global, "TextDecoder", class TextDecoder {
    #fatal; #keepMark;
    constructor(label = "utf-8", options = {}) {
      const name = String(label).toLowerCase().trim();
      if (name !== "utf-8" && name !== "utf8") throw new RangeError(`unsupported encoding: ${label}; only utf-8 is`);
      this.#fatal = Boolean(options.fatal);
      this.#keepMark = Boolean(options.ignoreBOM);
    }
    get encoding() { return "utf-8"; }
    get fatal() { return this.#fatal; }
    get ignoreBOM() { return this.#keepMark; }
    decode(view) {
      const { buffer, offset, length } = bytesOf(view);
      const text = decodeUtf8(buffer, offset, length, this.#fatal);
      if (text === undefined) throw new TypeError("the bytes are not valid utf-8");
      return !this.#keepMark && startsWith(text, "\ufeff") ? slice(text, 1) : text;
    }
  });

  // ---- structuredClone ----

  function cloneInto(value, seen) {
    if (typeof value === "function" || typeof value === "symbol") throw new TypeError(`a ${typeof value} cannot be cloned`);
    if (typeof value !== "object" || value === null) return value;
    const known = mapGet(seen, value);
    if (known !== undefined) return known;
    const keep = (copy) => { mapSet(seen, value, copy); return copy; };
    switch (tagOf(value)) {
      case "[object Date]": return keep(new Date(Number(value)));
      case "[object RegExp]": return keep(new RegExp(value.source, value.flags));
      case "[object Boolean]": case "[object Number]": case "[object String]": return keep(Object(value.valueOf()));
      case "[object ArrayBuffer]": return keep(value.slice(0));
      case "[object Map]": {
        const copy = keep(new Map());
        mapEach(value, (item, key) => mapSet(copy, cloneInto(key, seen), cloneInto(item, seen)));
        return copy;
      }
      case "[object Set]": {
        const copy = keep(new Set());
        setEach(value, (item) => setAdd(copy, cloneInto(item, seen)));
        return copy;
      }
    }
    if (isView(value)) {
      const buffer = cloneInto(value.buffer, seen);
      const length = value instanceof DataView ? value.byteLength : value.length;
      return keep(construct(value.constructor, [buffer, value.byteOffset, length]));
    }
    if (value instanceof Error) {
      const copy = keep(new Error(value.message));
      hide(copy, "name", String(value.name));
      hide(copy, "stack", value.stack);
      return copy;
    }
    const copy = keep(isArray(value) ? [] : {});
    if (isArray(value)) copy.length = value.length;
    for (const name of ownEnumerable(value)) copy[name] = cloneInto(value[name], seen);
    return copy;
  }
  hide(global, "structuredClone", function structuredClone(value) { return cloneInto(value, new Map()); });

  // ---- URL: parsed by the host's library, so that it is parsed as the web does ----

  const decodeForm = (text) => {
    const spaced = replaceAll(text, "+", " ");
    const bytes = [];
    const raw = encodeUtf8(spaced);
    for (let i = 0; i < raw.length; i++) {
      const pair = raw[i] === 37 && i + 2 < raw.length ? String.fromCharCode(raw[i + 1], raw[i + 2]) : "";
      if (/^[0-9a-fA-F]{2}$/.test(pair)) { push(bytes, Number(`0x${pair}`)); i += 2; } else push(bytes, raw[i]);
    }
    const view = new Uint8Array(bytes);
    return decodeUtf8(view.buffer, 0, view.length, false);
  };
  const encodeForm = (text) => {
    const bytes = encodeUtf8(text);
    let out = "";
    for (let i = 0; i < bytes.length; i++) {
      const c = String.fromCharCode(bytes[i]);
      out += /[A-Za-z0-9*\-._]/.test(c) ? c : c === " " ? "+" : "%" + (bytes[i] < 16 ? "0" : "") + bytes[i].toString(16).toUpperCase();
    }
    return out;
  };

  class URLSearchParams {
    #pairs = [];
    #changed;
    constructor(from = "", changed) {
      this.#changed = changed;
      if (typeof from === "object" && from !== null) {
        const pairs = typeof from[Symbol.iterator] === "function" ? [...from] : Object.entries(from);
        for (const [name, value] of pairs) push(this.#pairs, [String(name), String(value)]);
      } else this.#parse(String(from));
    }
    #parse(text) {
      this.#pairs = [];
      for (const part of split(startsWith(text, "?") ? slice(text, 1) : text, "&")) {
        if (part === "") continue;
        const at = part.indexOf("=");
        push(this.#pairs, at < 0 ? [decodeForm(part), ""] : [decodeForm(slice(part, 0, at)), decodeForm(slice(part, at + 1))]);
      }
    }
    #touch() { this.#changed?.(this.toString()); }
    get size() { return this.#pairs.length; }
    append(name, value) { push(this.#pairs, [String(name), String(value)]); this.#touch(); }
    delete(name) { this.#pairs = this.#pairs.filter((pair) => pair[0] !== String(name)); this.#touch(); }
    get(name) { return this.#pairs.find((pair) => pair[0] === String(name))?.[1] ?? null; }
    getAll(name) { return this.#pairs.filter((pair) => pair[0] === String(name)).map((pair) => pair[1]); }
    has(name) { return this.#pairs.some((pair) => pair[0] === String(name)); }
    set(name, value) {
      const at = this.#pairs.findIndex((pair) => pair[0] === String(name));
      if (at < 0) push(this.#pairs, [String(name), String(value)]);
      else {
        this.#pairs[at][1] = String(value);
        this.#pairs = this.#pairs.filter((pair, i) => i <= at || pair[0] !== String(name));
      }
      this.#touch();
    }
    sort() { this.#pairs.sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0)); this.#touch(); }
    forEach(each, self) { for (const [name, value] of this.#pairs) apply(each, self, [value, name, this]); }
    *entries() { yield* this.#pairs.map((pair) => [...pair]); }
    *keys() { for (const pair of this.#pairs) yield pair[0]; }
    *values() { for (const pair of this.#pairs) yield pair[1]; }
    [Symbol.iterator]() { return this.entries(); }
    toString() { return this.#pairs.map(([name, value]) => `${encodeForm(name)}=${encodeForm(value)}`).join("&"); }
    get [Symbol.toStringTag]() { return "URLSearchParams"; }
  }

  const urlParts = ["href", "origin", "protocol", "username", "password", "host", "hostname", "port", "pathname", "search", "hash"];
  class URL {
    #parts;
    #params;
    constructor(text, base) {
      const parts = URL.#ask("parse", String(text), base === undefined ? null : String(base));
      if (parts === undefined) throw new TypeError(`invalid URL: ${slice(String(text), 0, 200)}`);
      this.#parts = parts;
    }
    static #ask(...request) {
      const answer = url(stringify(request));
      return answer === undefined ? undefined : parse(answer);
    }
    static canParse(text, base) { return URL.#ask("parse", String(text), base === undefined ? null : String(base)) !== undefined; }
    static parse(text, base) { return URL.canParse(text, base) ? new URL(text, base) : null; }
    static part(self, name) { return self.#parts[name]; }
    static setPart(self, name, value) {
      const parts = URL.#ask("set", self.#parts.href, name, String(value));
      if (parts === undefined) {
        if (name === "href") throw new TypeError(`invalid URL: ${slice(String(value), 0, 200)}`);
        return;
      }
      self.#parts = parts;
      if (name === "href" || name === "search") self.#params = undefined;
    }
    get searchParams() {
      return (this.#params ??= new URLSearchParams(this.#parts.search, (text) => {
        const parts = URL.#ask("set", this.#parts.href, "search", text);
        if (parts !== undefined) this.#parts = parts;
      }));
    }
    toString() { return this.#parts.href; }
    toJSON() { return this.#parts.href; }
    get [Symbol.toStringTag]() { return "URL"; }
  }
  {
    const { part, setPart } = URL;
    delete URL.part;
    delete URL.setPart;
    for (const name of urlParts)
      defineProperty(URL.prototype, name, {
        __proto__: null,
        enumerable: true,
        configurable: true,
        get() { return part(this, name); },
        set: name === "origin" ? undefined : function (value) { setPart(this, name, value); },
      });
  }
  hide(global, "URL", URL);
  hide(global, "URLSearchParams", URLSearchParams);

  // ---- what a cell must not find ----

  // A cell that formats stack traces itself could take the functions above from them.
  defineProperty(Error, "prepareStackTrace", { __proto__: null, value: undefined, writable: false, configurable: false });
  hide(Math, "random", random);
  for (const name of ["SharedArrayBuffer", "Atomics", "performance", "WebAssembly"]) delete global[name];

  return { __proto__: null, begin, settle, encode, describe };
});
