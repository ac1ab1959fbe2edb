// The encoding of values that leave the cell. The engine calls `convert` for a value without a JSON form, at any depth.

// The modes of `toJson`. A tool receives what the cell meant, or the call fails; output is for a reader.
const ARGUMENTS = 1, OUTPUT = 2;
// These numbers match `enum kind` in `guest/shim.c`.
const ERROR = 1, MAP = 2, SET = 3, REGEXP = 4, PROMISE = 5, TYPED_ARRAY = 6, DATA_VIEW = 7, ARRAY_BUFFER = 8, DATE = 9;

const ownEnumerable = Object.keys;
// The conversions of the value that is being encoded. One that occurs inside itself is a cycle.
let conversions;

function encodeAs(value, mode) {
  const outer = conversions;
  conversions = undefined;
  try {
    return toJson(value, mode);
  } finally {
    conversions = outer;
  }
}
const encode = (value) => encodeAs(value, OUTPUT) ?? "null";

function convert(value, mode, kind) {
  if (typeof value === "bigint") return String(value);
  if (typeof value === "symbol") return mode === OUTPUT ? String(value) : undefined;
  if (typeof value === "function") return mode === OUTPUT ? functionText(value) : undefined;
  const known = conversions === undefined ? undefined : mapGet(conversions, value);
  if (known !== undefined) return known;
  const copy = convertObject(value, mode, kind);
  if (typeof copy === "object" && copy !== null) {
    if (conversions === undefined) conversions = new Map();
    mapSet(conversions, value, copy);
  }
  return copy;
}

function convertObject(value, mode, kind) {
  switch (kind) {
    case ERROR: return errorFields(value);
    case MAP: return mapEntries(value);
    case SET: {
      const items = [];
      setEach(value, (item) => push(items, item));
      return items;
    }
    case REGEXP: return String(value);
    case TYPED_ARRAY: return arrayItems(value);
    case DATA_VIEW: case ARRAY_BUFFER: return bufferItems(value, kind);
    case DATE: return toIsoString(value);
    case PROMISE:
      if (mode === ARGUMENTS) throw new TypeError("the input contains a promise; `await` it before the call");
      return "[promise: `await` it]";
  }
  if (value instanceof Error) return errorFields(value);
  const tag = slice(tagOf(value), 8, -1);
  if (tag === "BigInt") return String(value);
  if (mode === ARGUMENTS) throw new TypeError(`the input contains an object of the kind ${tag}, which has no JSON form`);
  return endsWith(tag, "Iterator") || tag === "Generator" ? `[${tag}: spread it into an array]` : `[${tag}]`;
}

// An error's name and message, what the cell or a tool added to it, and its causes.
function errorFields(error) {
  const fields = create(null);
  fields.name = String(error.name);
  fields.message = String(error.message);
  const names = ownEnumerable(error);
  for (let i = 0; i < names.length; i++) if (names[i] !== "stack") fields[names[i]] = error[names[i]];
  if (getOwnPropertyDescriptor(error, "cause") !== undefined) fields.cause = error.cause;
  if (getOwnPropertyDescriptor(error, "errors") !== undefined) fields.errors = error.errors;
  return fields;
}

// A Map is an object if all of its keys are strings, and otherwise a list of pairs.
function mapEntries(map) {
  const pairs = [];
  const object = create(null);
  let isObject = true;
  mapEach(map, (item, key) => {
    push(pairs, [key, item]);
    if (typeof key === "string") object[key] = item;
    else isObject = false;
  });
  return isObject ? object : pairs;
}

function bufferItems(value, kind) {
  let bytes;
  try {
    bytes = kind === ARRAY_BUFFER ? new Uint8Array(value) : new Uint8Array(viewBuffer(value), viewOffset(value), viewBytes(value));
  } catch {
    // The buffer was transferred.
    return [];
  }
  return arrayItems(bytes);
}

// The host accepts no more JSON values; a list of them takes far more memory than the array.
const MAX_ITEMS = 200000;

function arrayItems(array) {
  const items = [];
  const length = arrayLength(array);
  if (length > MAX_ITEMS) throw new RangeError(`an array of ${length} numbers is too large to leave the cell: at most ${MAX_ITEMS}`);
  for (let i = 0; i < length; i++) push(items, array[i]);
  return items;
}

function functionText(value) {
  const name = getOwnPropertyDescriptor(value, "name")?.value;
  return typeof name === "string" && name !== "" ? `[function ${slice(name, 0, MAX_SHOWN_NAME)}]` : "[function]";
}
