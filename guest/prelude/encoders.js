// `TextEncoder` and `TextDecoder`.

const bytesOf = (view) => {
  if (view === undefined) return { __proto__: null, buffer: new ArrayBuffer(0), offset: 0, length: 0 };
  if (!isView(view)) return { __proto__: null, buffer: view, offset: 0, length: bufferBytes(view) };
  if (arrayKind(view) === undefined)
    return { __proto__: null, buffer: viewBuffer(view), offset: viewOffset(view), length: viewBytes(view) };
  return { __proto__: null, buffer: arrayBuffer(view), offset: arrayOffset(view), length: arrayBytes(view) };
};
hide(global, "TextEncoder", class TextEncoder {
  get encoding() { return "utf-8"; }
  encode(text = "") { return encodeUtf8(String(text)); }
  encodeInto(text, into) {
    const bytes = encodeUtf8(String(text));
    const length = arrayBytes(bytes);
    const room = arrayBytes(into);
    let written = length <= room ? length : room;
    while (written > 0 && written < length && (bytes[written] & 0xc0) === 0x80) written--;
    for (let i = 0; i < written; i++) into[i] = bytes[i];
    return { read: decodeUtf8(arrayBuffer(bytes), 0, written, false).length, written };
  }
});
hide(global, "TextDecoder", class TextDecoder {
  #fatal; #keepMark;
  constructor(label = "utf-8", options = {}) {
    const name = String(label).toLowerCase().trim();
    if (name !== "utf-8" && name !== "utf8") throw new RangeError(`unsupported encoding: ${label}; only utf-8 is`);
    this.#fatal = Boolean(options.fatal);
    this.#keepMark = Boolean(options.ignoreBOM);
  }
  get encoding() { return "utf-8"; }
  get fatal() { return this.#fatal; }
  get ignoreBOM() { return this.#keepMark; }
  decode(view) {
    const { buffer, offset, length } = bytesOf(view);
    const text = decodeUtf8(buffer, offset, length, this.#fatal);
    if (text === undefined) throw new TypeError("the bytes are not valid utf-8");
    return !this.#keepMark && startsWith(text, "\ufeff") ? slice(text, 1) : text;
  }
});
