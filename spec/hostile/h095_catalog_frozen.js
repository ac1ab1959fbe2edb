const before = ALL_TOOLS.length
try { ALL_TOOLS.push({ id: "openclaw:test:forged" }) } catch {}
try { ALL_TOOLS[0].id = "openclaw:test:forbidden" } catch {}
try { globalThis.ALL_TOOLS = [] } catch {}
return [ALL_TOOLS.length === before, ALL_TOOLS.some((t) => /forged|forbidden/.test(t.id))]
