// `text`, `json`, `console`, and the description of errors that leave the cell.

const TEXT = 0, JSON_VALUE = 1;

const show = (value) => {
  if (typeof value === "string") return value;
  if (value instanceof Error) return `${value.name}: ${value.message}`;
  if (typeof value === "function") return functionText(value);
  if (typeof value === "symbol" || value === undefined) return String(value);
  return encode(value);
};
const print = (...values) => {
  const shown = [];
  for (let i = 0; i < values.length; i++) push(shown, show(values[i]));
  emit(TEXT, join(shown, " "));
};

constant(global, "text", freeze(function text(value) { emit(TEXT, show(value)); }));
constant(global, "json", freeze(function json(value) { emit(JSON_VALUE, encode(value)); }));
constant(global, "yield_control", freeze(async function yield_control(reason) {
  await request(YIELD, "", reason === undefined ? null : String(reason), "");
}));

const quiet = () => {};
const counts = create(null);
constant(global, "console", freeze({
  __proto__: null,
  log: print, info: print, warn: print, error: print, debug: print, trace: print, dir: (value) => print(value),
  table: (value) => print(value), group: print, groupCollapsed: print, groupEnd: quiet,
  time: quiet, timeLog: quiet, timeEnd: quiet,
  assert: (holds, ...rest) => { if (!holds) print("assertion failed:", ...rest); },
  count: (label = "default") => { counts[label] = (counts[label] ?? 0) + 1; print(`${label}: ${counts[label]}`); },
}));

// Called by the shim, when the cell completes, for an error that no code of the cell has seen.
const unhandled = (error) => {
  emit(TEXT, `A call that was not awaited failed; await every call to see its error: ${slice(show(error), 0, 1024)}`);
};

// Called by the shim, when the cell returns undefined, with the last name that it read from a promise in vain.
const unawaited = (name) => {
  const shown = slice(name, 0, MAX_SHOWN_NAME);
  emit(TEXT, `The cell returned undefined, and \`${shown}\` was read from a promise; \`await\` the call first.`);
};

// After an MCP result with `isError`, an error of the cell's next steps often only follows from it. Errors of built-in
// functions have not been explained yet.
const withFailure = (error, message) => {
  const follows = error instanceof TypeError || error instanceof SyntaxError;
  return follows && (failedResult !== undefined || missedCount > 0) ? explain(message) ?? message : message;
};

// Describes an error for the host, which builds the failed result from it.
function describe(error) {
  const about = { __proto__: null, name: "", message: "", stack: "", maker: "", code: "", tool: null };
  try {
    if (error instanceof Error) {
      about.name = slice(String(error.name), 0, 200);
      about.message = slice(withFailure(error, String(error.message)), 0, 8192);
      about.stack = slice(String(error.stack), 0, 2048);
      about.maker = slice(String(error.constructor?.name), 0, 200);
      const cause = weakGet(nested, error);
      if (cause !== undefined) {
        about.code = cause.code;
        about.tool = slice(cause.tool, 0, MAX_SHOWN_NAME);
      }
    } else about.message = slice(typeof error === "string" ? error : show(error), 0, 8192);
  } catch {
    about.message = "the error that was thrown could not be read";
  }
  return stringify(about);
}
