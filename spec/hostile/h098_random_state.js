const a = []
for (let i = 0; i < 4; i++) { const v = new Uint32Array(1 << 18); for (let j = 0; j < v.length; j++) v[j] = Math.random() * 2 ** 32; a.push(v) }
await yield_control()
return a.length
