// Namespaces: MCP servers, and the namespaces of plugins.

const appended = (path, name) => {
  const longer = [];
  for (let i = 0; i < path.length; i++) longer[i] = path[i];
  longer[path.length] = name;
  return longer;
};

// `openclaw.tools` of Tool Search. In code mode no table refers to it.
const bridge = freeze({ __proto__: null, search: tools.search, describe: tools.describe, call: tools.call });

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

const mcp = lazyObject(
  { $api: freeze((...args) => request(NAMESPACE, "MCP", [["$api"], args], "an argument")) },
  (server) => fromTable(`mcp/${server}`, "MCP", [server]),
  () => table("mcp") ?? [],
  { __proto__: null, $search: freeze((...args) => request(NAMESPACE, "MCP", [["$search"], args], "an argument")) },
  (server) => (lookup(`unavailable/${server}`) === undefined ? undefined : unavailable("MCP", [server])),
);
constant(global, "MCP", mcp);

const namespaces = lazyObject(
  create(null),
  (name) => (name === "MCP" ? mcp : fromTable(`namespace/${name}`, name, [])),
  () => table("namespaces") ?? [],
);
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
