// Dates have no time zones but UTC, and no locales: there is no `Intl`.

const utcNames = { __proto__: null, UTC: true, GMT: true, "ETC/UTC": true, "ETC/GMT": true, "+00:00": true };

// Ignoring a time zone would return a wrong time.
const refuseTimeZone = (options) => {
  const zone = typeof options === "object" && options !== null ? options.timeZone : undefined;
  if (zone === undefined || upperCase(String(zone)) in utcNames) return;
  throw new RangeError(
    `the time zone ${slice(String(zone), 0, 100)} is not available: a cell has no Intl, and its dates are in UTC. ` +
      "Use timeZone: \"UTC\", or add the zone's offset: new Date(date.getTime() + hours * 3600000).toISOString()",
  );
};
for (const name of ["toLocaleString", "toLocaleDateString", "toLocaleTimeString"]) {
  const original = Date.prototype[name];
  const named = {
    [name](locales, options) {
      refuseTimeZone(locales);
      refuseTimeZone(options);
      return apply(original, this, []);
    },
  };
  hide(Date.prototype, name, named[name]);
}
