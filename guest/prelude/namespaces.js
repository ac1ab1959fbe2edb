// Namespaces: MCP servers, and the namespaces of plugins.

const appended = (path, name) => {
  const longer = [];
  for (let i = 0; i < path.length; i++) longer[i] = path[i];
  longer[path.length] = name;
  return longer;
};

const labelOf = (namespace, path) => (path.length === 0 ? namespace : `${namespace}.${join(path, ".")}`);
// The tools of an MCP server can also be written with their own names, in any case and with any separators.
const meantIn = (namespace, path) =>
  namespace === "MCP" && path.length === 1 ? (name) => lookup(`meant/${path[0]}/${name}`) : () => undefined;

// `openclaw.tools` of Tool Search. In code mode no table refers to it.
const bridge = freeze({ __proto__: null, search: tools.search, describe: tools.describe, call: tools.call });

const isFunction = (entry) => entry.kind === "function";

function build(descriptor, namespace, path) {
  switch (descriptor.kind) {
    case "function": {
      const name = path[path.length - 1];
      const named = { [name]: (...args) => request(NAMESPACE, namespace, [path, args], "an argument", labelOf(namespace, path)) };
      return freeze(named[name]);
    }
    case "array": {
      const built = [];
      for (let i = 0; i < descriptor.items.length; i++) push(built, build(descriptor.items[i], namespace, appended(path, String(i))));
      return freeze(built);
    }
    case "object": {
      const { entries } = descriptor;
      let hasFunctions = false;
      for (let i = 0; i < entries.length && !hasFunctions; i++) hasFunctions = isFunction(entries[i][1]);
      const built = hasFunctions ? otherNames(labelOf(namespace, path), meantIn(namespace, path)) : create(null);
      for (let i = 0; i < entries.length; i++) {
        const { 0: name, 1: entry } = entries[i];
        constant(built, name, build(entry, namespace, appended(path, name)));
      }
      return freeze(built);
    }
    case "tools":
      return bridge;
    default:
      return freeze(descriptor.value);
  }
}

// A server that cannot be called now. The host rejects every call of its functions, and says why.
const unavailable = (namespace, path) => new Proxy(freeze(create(null)), {
  __proto__: null,
  get: (_, name) => {
    if (typeof name === "symbol" || name === "then" || name === "toJSON") return undefined;
    const longer = appended(path, name);
    if (name === "resources" || name === "prompts") return unavailable(namespace, longer);
    return build({ __proto__: null, kind: "function" }, namespace, longer);
  },
});

const fromTable = (key, namespace, path) => {
  const descriptor = table(key);
  return descriptor === undefined ? undefined : build(descriptor, namespace, path);
};

const rootFunction = (name) => freeze((...args) => request(NAMESPACE, "MCP", [[name], args], "an argument", `MCP.${name}`));
const serverMeant = (name) => lookup(`meant//${name}`);
const mcp = lazyObject({
  label: "MCP",
  fixed: { $api: rootFunction("$api") },
  find: (server) => fromTable(`mcp/${server}`, "MCP", [server]),
  names: () => table("mcp") ?? [],
  meant: serverMeant,
  unlisted: { __proto__: null, $search: rootFunction("$search") },
  findUnlisted: (server) => (lookup(`unavailable/${server}`) === undefined ? undefined : unavailable("MCP", [server])),
});
constant(global, "MCP", mcp);

const namespaces = lazyObject({
  label: "namespaces",
  fixed: { MCP: mcp },
  find: (name) => fromTable(`namespace/${name}`, name, []),
  names: () => table("namespaces") ?? [],
});
constant(global, "namespaces", namespaces);

// Called when a cell starts: each namespace of a plugin is also a global.
function begin() {
  const names = table("namespaces");
  if (names === undefined) return;
  for (let i = 0; i < names.length; i++) {
    const name = names[i];
    defineProperty(global, name, { __proto__: null, enumerable: true, configurable: true, get: () => namespaces[name] });
  }
}
