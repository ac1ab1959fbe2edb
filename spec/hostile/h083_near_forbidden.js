const ids = ["openclaw:test:forbidden ", " openclaw:test:forbidden", "OPENCLAW:TEST:FORBIDDEN", "openclaw:test:forbidden\0", "openclaw::test:forbidden", "openclaw:test:./forbidden", "forbidden", ["openclaw:test:forbidden"]]
const out = []
for (const id of ids) out.push(await tools.call(id, {}).then(() => "ran", () => "refused"))
return new Set(out).size === 1 && out[0]
