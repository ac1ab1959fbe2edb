// `setTimeout` and `clearTimeout`, kept by the host.

const MAX_DELAY = 0x7fffffff;
constant(global, "setTimeout", freeze(function setTimeout(handler, delay, ...args) {
  if (typeof handler !== "function") throw new TypeError("setTimeout takes a function");
  const ms = Number(delay);
  const id = ++lastId;
  const refused = call(id, TIMER, "", stringify(ms > 0 ? (ms < MAX_DELAY ? ms : MAX_DELAY) : 0));
  if (refused !== 0) throw refusal(refused);
  timers[id] = { __proto__: null, handler, args };
  waiting(1);
  return id;
}));
constant(global, "clearTimeout", freeze(function clearTimeout(id) {
  if (timers[id] === undefined) return;
  delete timers[id];
  waiting(-1);
  call(Number(id), CLEAR, "", "");
}));
