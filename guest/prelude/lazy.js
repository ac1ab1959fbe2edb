// Objects whose properties are read from the catalog on first use.

// Whether a name may be another spelling. JavaScript itself reads the others, and would call a tool.
const isOther = (name) => typeof name === "string" && !(name in probed);

// The catalog stays with the host; a name has a cost only when a cell uses it. Operations on the
// whole object (keys, `in`, isFrozen) fill and freeze it.
// `unlisted` properties can be read by name, but are not enumerated; neither are other spellings of a name, for which
// `meant` returns the listed one, and what `findUnlisted` returns. `label` is how a cell writes the object.
function lazyObject({ label, fixed, find, names, meant = () => undefined, unlisted = create(null), findUnlisted = () => undefined }) {
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
    if (found !== undefined) {
      constant(target, name, found);
      return found;
    }
    const other = name in probed ? undefined : meant(name);
    if (other !== undefined && other !== name) return get(target, other);
    const unnamed = findUnlisted(name);
    if (unnamed === undefined) missed(label, name);
    return unnamed;
  };
  const fill = () => {
    if (filled) return;
    const all = names();
    for (let i = 0; i < all.length; i++) get(target, all[i]);
    filled = true;
    freeze(target);
  };
  const refuse = () => false;
  const proxy = new Proxy(target, {
    __proto__: null,
    get,
    has: (_, name) => { fill(); return name in target || (isOther(name) && meant(name) in target); },
    ownKeys: () => { fill(); return ownKeys(target); },
    getOwnPropertyDescriptor: (_, name) => { fill(); return getOwnPropertyDescriptor(target, name); },
    isExtensible: () => { fill(); return false; },
    preventExtensions: () => { fill(); return true; },
    set: refuse,
    defineProperty: refuse,
    deleteProperty: refuse,
    setPrototypeOf: refuse,
  });
  weakSet(labels, proxy, label);
  return proxy;
}

// Creates an object whose prototype sees the names that the object does not have.
function otherNames(label, meant) {
  let object;
  const prototype = new Proxy(freeze(create(null)), {
    __proto__: null,
    get: (_, name) => {
      if (!isOther(name)) return undefined;
      const other = meant(name);
      if (other !== undefined && other !== name) return getOwnPropertyDescriptor(object, other)?.value;
      missed(label, name);
      return undefined;
    },
    has: (_, name) => isOther(name) && meant(name) !== undefined,
  });
  object = create(prototype);
  weakSet(labels, object, label);
  return object;
}

const table = (key) => {
  const text = lookup(key);
  return text === undefined ? undefined : parse(text);
};
