// `setTimeout` and `clearTimeout`. The host runs the timers.

const MAX_DELAY = 0x7fffffff;
constant(global, "setTimeout", freeze(function setTimeout(handler, delay, ...args) {
  if (typeof handler !== "function") throw new TypeError("setTimeout takes a function");
  const ms = Number(delay);
  const payload = stringify(ms > 0 ? (ms < MAX_DELAY ? ms : MAX_DELAY) : 0);
  // No code of the cell runs between taking an id and using it: the host requires ids in order.
  const id = ++lastId;
  const refused = call(id, TIMER, "", payload);
  if (refused !== 0) throw refusal(refused);
  timers[id] = { __proto__: null, handler, args };
  waiting(1);
  return id;
}));
constant(global, "clearTimeout", freeze(function clearTimeout(id) {
  // Convert once: an object may convert to another number each time.
  const number = Number(id);
  if (timers[number] === undefined) return;
  delete timers[number];
  waiting(-1);
  call(number, CLEAR, "", "");
}));
