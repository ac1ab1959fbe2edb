// `API`: the declaration files, read without a host call.

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
// Returns a path with a server's own name in place of its identifier as the file's path.
const filePath = (path) => {
  if (!startsWith(path, "mcp/") || !endsWith(path, ".d.ts")) return path;
  const server = serverMeant(slice(path, 4, -5));
  return server === undefined ? path : `mcp/${server}.d.ts`;
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
    const asked = apiPath(path);
    const text = lookup(`api/${asked}`) ?? lookup(`api/${filePath(asked)}`);
    if (text === undefined) throw new Error(`unknown API file: ${path}; API.list() names them all`);
    return text;
  },
}));
