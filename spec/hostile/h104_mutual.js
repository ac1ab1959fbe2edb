const o = { get a() { return p.b } }, p = { get b() { return o.a } }
try { return o.a } catch (e) { return e.name }
