const b = new ArrayBuffer(1, { maxByteLength: 2 ** 31 - 1 })
let n = 1
for (;;) b.resize((n *= 2))
