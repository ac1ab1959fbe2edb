// Better messages for errors that the engine throws. The host finds them, because it has the names of all tools.

const MAX_SHOWN_NAME = 200;
const MAX_QUOTED = 300;
const MAX_MISSED = 16;
const MAX_FIELDS = 16;

// How a cell writes an object of the catalog: `MCP.files`.
const labels = new WeakMap();
// The last names that a cell read from such objects in vain.
const missedNames = create(null);
let missedCount = 0;
// The last MCP result with `isError`.
let failedResult;

// Names that are read to find out what an object is.
const probed = { __proto__: null, then: true, toJSON: true, toString: true, valueOf: true, constructor: true, length: true };

function missed(label, name) {
  if (name in probed) return;
  missedNames[missedCount % MAX_MISSED] = [label, slice(name, 0, MAX_SHOWN_NAME)];
  missedCount++;
}

function failed(name, result) {
  let text;
  const content = result.content;
  if (isArray(content))
    for (let i = 0; i < content.length && text === undefined; i++)
      if (typeof content[i]?.text === "string") text = content[i].text;
  if (text === undefined) text = stringify(result.structuredContent) ?? "";
  failedResult = { __proto__: null, name, text: slice(text, 0, MAX_QUOTED) };
}

// Returns the first names in the structured content of an MCP result; undefined for anything else.
function resultNames(value) {
  if (!isArray(getOwnPropertyDescriptor(value, "content")?.value)) return undefined;
  const structured = getOwnPropertyDescriptor(value, "structuredContent")?.value;
  const names = [];
  if (typeof structured !== "object" || structured === null) return names;
  const all = ownEnumerable(structured);
  for (let i = 0; i < all.length && i < MAX_FIELDS; i++) push(names, slice(all[i], 0, MAX_SHOWN_NAME));
  return names;
}

function recentlyMissed() {
  const recent = [];
  const first = missedCount > MAX_MISSED ? missedCount - MAX_MISSED : 0;
  for (let i = first; i < missedCount; i++) push(recent, missedNames[i % MAX_MISSED]);
  return recent;
}

// Called by the engine. `before` and `after` are the source around the place of the error, and `unawaited` is the last
// name that the cell read from a promise in vain.
function explain(message, receiver, isProxy, before, after, isPromise, unawaited) {
  const about = { __proto__: null, message, before, after, missed: recentlyMissed(), failed: failedResult, isPromise };
  if (unawaited !== undefined) about.unawaited = slice(unawaited, 0, MAX_SHOWN_NAME);
  if (receiver !== null && (typeof receiver === "object" || typeof receiver === "function")) {
    about.receiver = weakGet(labels, receiver);
    if (!isProxy && about.receiver === undefined) about.result = resultNames(receiver);
  }
  return lookup(`explain/${stringify(about)}`);
}
