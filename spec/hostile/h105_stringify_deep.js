let d = []
for (let i = 0; i < 1e5; i++) d = [d]
try { return JSON.stringify(d).length } catch { return "threw" }
