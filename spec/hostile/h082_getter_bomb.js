const o = {}
let n = 0
Object.defineProperty(o, "a", { enumerable: true, get() { return { get b() { if (n++ > 1e6) throw 1; return o } } } })
return o
