let d = []
for (let i = 0; i < 1e5; i++) d = [d]
try { return d.flat(Infinity).length } catch { return "threw" }
