// `tools` and `ALL_TOOLS`.

const callTool = (id, input) => request(CALL, id, input === undefined ? {} : input, "input");
const tools = lazyObject({
  label: "tools",
  fixed: {
    search: freeze((query, options) => request(SEARCH, "", [String(query), options === undefined ? {} : options], "query")),
    describe: freeze((id) => request(DESCRIBE, id, null, "")),
    call: freeze(callTool),
  },
  find: (name) => {
    const id = lookup(`tool/${name}`);
    if (id === undefined) return undefined;
    const named = { [name]: (input) => callTool(id, input) };
    return freeze(named[name]);
  },
  names: () => table("tools") ?? [],
});
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
