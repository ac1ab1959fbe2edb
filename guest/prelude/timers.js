// `setTimeout` and `clearTimeout`, kept by the host.

const MAX_DELAY = 0x7fffffff;
constant(global, "setTimeout", freeze(function setTimeout(handler, delay, ...args) {
  if (typeof handler !== "function") throw new TypeError("setTimeout takes a function");
  const ms = Number(delay);
  const id = ++lastId;
  const refused = call(id, TIMER, "", stringify(ms > 0 ? (ms < MAX_DELAY ? ms : MAX_DELAY) : 0));
  if (refused !== 0) throw failure(refusalText[refused], refusals[refused]);
  waiting[id] = { __proto__: null, timer: handler, args };
  opened(true, 1);
  return id;
}));
constant(global, "clearTimeout", freeze(function clearTimeout(id) {
  const entry = waiting[id];
  if (entry === undefined || entry.timer === undefined) return;
  delete waiting[id];
  opened(true, -1);
  call(Number(id), CLEAR, "", "");
}));
