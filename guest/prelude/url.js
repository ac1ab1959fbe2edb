// `URL` and `URLSearchParams`. The host's library parses URLs, as the WHATWG standard requires.

const decodeForm = (text) => {
  const spaced = replaceAll(text, "+", " ");
  const bytes = [];
  const raw = encodeUtf8(spaced);
  for (let i = 0; i < raw.length; i++) {
    const pair = raw[i] === 37 && i + 2 < raw.length ? String.fromCharCode(raw[i + 1], raw[i + 2]) : "";
    if (/^[0-9a-fA-F]{2}$/.test(pair)) { push(bytes, Number(`0x${pair}`)); i += 2; } else push(bytes, raw[i]);
  }
  const view = new Uint8Array(bytes);
  return decodeUtf8(arrayBuffer(view), 0, arrayBytes(view), false);
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
