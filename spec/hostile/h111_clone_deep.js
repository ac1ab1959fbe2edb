let d = {}
for (let i = 0; i < 1e5; i++) d = { d }
try { structuredClone(d); return "cloned" } catch { return "threw" }
