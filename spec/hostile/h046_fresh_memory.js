const a = new Uint8Array(8 << 20)
let dirty = 0
for (let i = 0; i < a.length; i += 64) if (a[i] !== 0) dirty++
return dirty
