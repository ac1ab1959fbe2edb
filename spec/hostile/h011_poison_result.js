const r = await tools.poison()
return [({}).polluted === undefined, Object.getPrototypeOf(r) === Object.prototype, Object.hasOwn(r, "__proto__"), r.ok]
