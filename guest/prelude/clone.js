// `structuredClone`.

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
