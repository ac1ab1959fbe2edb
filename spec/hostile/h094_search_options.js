const tries = [{ limit: -1 }, { limit: 1e9 }, { limit: "all" }, { limit: NaN }, null, { limit: { valueOf: () => 3 } }]
const out = []
for (const o of tries) out.push(await tools.search("test", o).then((r) => r.length <= 50, () => "refused"))
return out.every((x) => x === true || x === "refused")
