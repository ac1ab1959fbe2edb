// Objects whose properties are read from the catalog on first use.

// The catalog stays with the host; a name has a cost only when a cell uses it. Operations on the
// whole object (keys, `in`, isFrozen) fill and freeze it.
// `unlisted` properties, and those that `findUnlisted` returns, can be read by name, but are not enumerated.
function lazyObject(fixed, find, names, unlisted = create(null), findUnlisted = () => undefined) {
  const target = create(null);
  const given = getOwnPropertyNames(fixed);
  for (let i = 0; i < given.length; i++) constant(target, given[i], fixed[given[i]]);
  let filled = false;
  const get = (_, name) => {
    if (typeof name === "symbol") return undefined;
    if (name in target) return target[name];
    if (name in unlisted) return unlisted[name];
    // `await` would call the `then` of a thenable.
    if (name === "then") return undefined;
    const found = filled ? undefined : find(name);
    if (found === undefined) return findUnlisted(name);
    constant(target, name, found);
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
