// Asking the host: every call gets a number, and its promise waits under it.

// The numbers are `contract::frame::Method`'s.
const SEARCH = 0, DESCRIBE = 1, CALL = 2, NAMESPACE = 3, YIELD = 4, TIMER = 5, CLEAR = 6;
// And these are `sandbox::host_calls::Refusal`'s.
const refusals = ["", "too_many_pending_tool_calls", "value_too_large", "value_too_deep"];
const refusalText = [
  "",
  "too many calls outstanding: at most 1024 at once; await some before making more",
  "input is too large to send: at most 16 MiB of JSON",
  "input nests too deeply to send: at most 1000 levels",
];

const waiting = create(null);
const nested = new WeakMap();
let lastId = 0;

const failure = (text, code, tool) => {
  const error = new Error(text);
  if (code) constant(error, "code", code);
  weakSet(nested, error, { __proto__: null, code: code ?? "", tool: tool ?? "" });
  return error;
};

// What throws in here, a `toJSON` of the cell's for one, rejects the promise.
function request(number, target, value, what) {
  return new Promise((resolve, reject) => {
    const name = String(target);
    const payload = stringify(value);
    if (payload === undefined) throw new TypeError(`${what} has no JSON form`);
    const id = ++lastId;
    const refused = call(id, number, name, payload);
    if (refused !== 0) {
      reject(failure(refusalText[refused], refusals[refused], name));
      return;
    }
    waiting[id] = { __proto__: null, resolve, reject, target: name };
    opened(false, 1);
  });
}

function settle(id, rejected, value) {
  const entry = waiting[id];
  if (entry === undefined) return;
  delete waiting[id];
  if (entry.timer !== undefined) {
    opened(true, -1);
    apply(entry.timer, undefined, entry.args);
    return;
  }
  opened(false, -1);
  if (rejected) entry.reject(failure(String(value.message), value.code, value.tool ?? entry.target));
  else entry.resolve(value);
}
