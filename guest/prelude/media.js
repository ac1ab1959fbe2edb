// `image` and `audio`, which show media to the model, and `bytes`.

// The kinds of output; they continue those of `output.js` and match `sandbox::host_calls`.
const IMAGE = 2, AUDIO = 3, STORED_IMAGE = 4, STORED_AUDIO = 5;

// Returns the base64 text or the bytes in a content block, the contents of a resource, `{ data, mimeType }` or a data URL.
const mediaIn = (value) => {
  if (typeof value === "string" && startsWith(value, "data:")) {
    const comma = indexOf(value, ",");
    const data = endsWith(slice(value, 0, comma), ";base64") ? slice(value, comma + 1) : undefined;
    return { __proto__: null, data, mimeType: split(slice(value, 5, comma), ";")[0] };
  }
  if (!isObject(value)) return { __proto__: null };
  const holder = isObject(value.resource) ? value.resource : value;
  return { __proto__: null, data: holder.data ?? holder.blob, mimeType: holder.mimeType };
};

// The worker answers why it refuses: a code, a space and a message.
const showMedia = (kind, data, mimeType) => {
  const refused = emit(kind, data, mimeType);
  if (refused === undefined) return;
  const space = indexOf(refused, " ");
  const code = slice(refused, 0, space), message = slice(refused, space + 1);
  const error = code === "invalid_input" ? new TypeError(message) : new RangeError(message);
  constant(error, "code", code);
  throw error;
};

const media = (value, name, kind, storedKind) => {
  const { data, mimeType } = mediaIn(value);
  if (arrayKind(data) === "Uint8Array") return showMedia(kind, toBase64(data), String(mimeType ?? ""));
  if (typeof data === "string") return showMedia(kind, data, String(mimeType ?? ""));
  const handle = handleIn(value);
  if (handle === undefined)
    throw invalid(`${name} takes a content block { type, data, mimeType }, such as result.content[0], or the handle of a stored one`);
  showMedia(storedKind, handle, "");
};
offer("image", freeze(function image(value) { media(value, "image()", IMAGE, STORED_IMAGE); }));
offer("audio", freeze(function audio(value) { media(value, "audio()", AUDIO, STORED_AUDIO); }));

offer("bytes", freeze(function bytes(value) {
  if (arrayKind(value) === "Uint8Array") return value;
  const data = typeof value === "string" && !startsWith(value, "data:") ? value : mediaIn(value).data;
  if (typeof data !== "string" || handleIn(data) !== undefined)
    throw invalid("bytes() takes a content block with `data`, or base64 text; for a stored output: bytes(await output.read(handle))");
  try {
    return fromBase64(Uint8Array, data);
  } catch {
    throw invalid("bytes() takes base64, and this text is not");
  }
}));
