// Calls to the host. Every call has an id: the shim stores its promise under it, and `timers` a timer's handler.

// These numbers match `contract::frame::Method`.
const SEARCH = 0, DESCRIBE = 1, CALL = 2, NAMESPACE = 3, YIELD = 4, TIMER = 5, CLEAR = 6, STORED = 7, STATE = 8;
// The indexes match `sandbox::host_calls::Refusal`.
const refusals = [
  "", "too_many_pending_tool_calls", "value_too_large", "value_too_deep", "value_too_large", "value_too_large", "value_too_large",
];
const refusalText = [
  "",
  "too many calls outstanding: at most 1024 at once; await some before making more",
  "input is too large to send: at most 16 MiB of JSON",
  "input nests too deeply to send: at most 1000 levels",
  "the name of the tool is too long: at most 1024 bytes",
  "too much input outstanding: at most 32 MiB in all calls that have not been answered; await some before making more",
  "input has too many values to send: at most 200000 numbers, strings, keys, arrays and objects",
];

const timers = create(null);
const nested = new WeakMap();
let lastId = 0;

const failure = (text, code, tool) => {
  const error = new Error(text);
  if (code) constant(error, "code", code);
  weakSet(nested, error, { __proto__: null, code: code ?? "", tool: tool ?? "" });
  return error;
};

const refusal = (number, tool) => failure(refusalText[number], refusals[number], tool);

// An exception in here, for example in a `toJSON` method of the cell, rejects the promise. `label` is how a cell writes
// the function, if that is not the target.
function request(number, target, value, what, label) {
  try {
    const name = String(target);
    const payload = encodeAs(value, ARGUMENTS);
    if (payload === undefined) throw new TypeError(`${what} has no JSON form`);
    // No code of the cell runs between taking an id and using it: the host requires ids in order.
    const isMcp = number === NAMESPACE && name === "MCP";
    const answer = ask(++lastId, number, name, payload, label ?? name, isMcp);
    if (typeof answer !== "number") return answer;
    throw refusal(answer, isOwn(label) ? label : slice(name, 0, MAX_SHOWN_NAME));
  } catch (error) {
    return rejected(Promise, error);
  }
}

// The label of a function of the cell API that is no tool ends with parentheses.
const isOwn = (label) => label !== undefined && endsWith(label, "()");

// Settles rejected calls and timers; the shim resolves successful calls itself.
function settle(id, value, reject, target) {
  if (reject !== undefined) return reject(failure(String(value.message), value.code, isOwn(target) ? target : value.tool ?? target));
  const timer = timers[id];
  if (timer === undefined) return;
  delete timers[id];
  waiting(-1);
  apply(timer.handler, undefined, timer.args);
}
