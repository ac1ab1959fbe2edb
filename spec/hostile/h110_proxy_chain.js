let p = {}
for (let i = 0; i < 50000; i++) p = new Proxy(p, {})
try { return typeof p.x } catch { return "threw" }
