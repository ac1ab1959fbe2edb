// The prelude defines the globals of a cell. It is evaluated once, when the image is built, and is part of it.
// Cells share its realm and may patch any built-in, so every built-in that is used after a cell has started is
// captured here first. Nothing in the prelude is a security boundary: the host checks every message again.

const { call, ask, waiting, output: emit, lookup, url, random, encodeUtf8, decodeUtf8, toJson } = host;
const { parse, stringify } = JSON;
const { create, defineProperty, freeze, getOwnPropertyNames } = Object;
const { apply, construct, ownKeys, getOwnPropertyDescriptor } = Reflect;
const { Error, TypeError, RangeError, SyntaxError, Promise, Proxy, Map, Set, Date, RegExp, String, Number, Symbol } = global;
const { ArrayBuffer, DataView, Uint8Array, WeakMap } = global;
const isArray = Array.isArray;
const isView = ArrayBuffer.isView;

// Returns a built-in method as a function that takes its receiver as the first argument.
const method = (prototype, name) => {
  const found = prototype[name];
  return (receiver, ...args) => apply(found, receiver, args);
};
// Returns a built-in getter as a function. A cell may replace the getter on the prototype or shadow it on the object.
const getter = (prototype, name) => {
  const { get } = getOwnPropertyDescriptor(prototype, name);
  return (receiver) => apply(get, receiver, []);
};
const TypedArray = Object.getPrototypeOf(Uint8Array);
const arrayBuffer = getter(TypedArray.prototype, "buffer");
const arrayOffset = getter(TypedArray.prototype, "byteOffset");
const arrayLength = getter(TypedArray.prototype, "length");
const arrayBytes = getter(TypedArray.prototype, "byteLength");
const viewBuffer = getter(DataView.prototype, "buffer");
const viewOffset = getter(DataView.prototype, "byteOffset");
const viewBytes = getter(DataView.prototype, "byteLength");
const bufferBytes = getter(ArrayBuffer.prototype, "byteLength");
// Undefined for anything but a typed array.
const arrayKind = getter(TypedArray.prototype, Symbol.toStringTag);
const push = method(Array.prototype, "push");
const join = method(Array.prototype, "join");
const slice = method(String.prototype, "slice");
const split = method(String.prototype, "split");
const startsWith = method(String.prototype, "startsWith");
const endsWith = method(String.prototype, "endsWith");
const upperCase = method(String.prototype, "toUpperCase");
const replaceAll = method(String.prototype, "replaceAll");
const tagOf = method(Object.prototype, "toString");
const weakGet = method(WeakMap.prototype, "get");
const weakSet = method(WeakMap.prototype, "set");
const mapGet = method(Map.prototype, "get");
const mapSet = method(Map.prototype, "set");
const mapEach = method(Map.prototype, "forEach");
const setAdd = method(Set.prototype, "add");
const setEach = method(Set.prototype, "forEach");
const indexOf = method(String.prototype, "indexOf");
const toIsoString = method(Date.prototype, "toISOString");
const toBase64 = method(Uint8Array.prototype, "toBase64");
const fromBase64 = method(Uint8Array, "fromBase64");
const regExpSource = getter(RegExp.prototype, "source");
const regExpFlags = getter(RegExp.prototype, "flags");
const rejected = method(Promise, "reject");

const constant = (object, name, value) =>
  defineProperty(object, name, { __proto__: null, value, enumerable: true, writable: false, configurable: false });
// Defines a property like those of built-ins: not enumerable, but replaceable.
const hide = (object, name, value) =>
  defineProperty(object, name, { __proto__: null, value, enumerable: false, writable: true, configurable: true });
