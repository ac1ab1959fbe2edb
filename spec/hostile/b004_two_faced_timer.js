let fired = 0
const timer = setTimeout(() => fired++, 1e8)
const calls = Array.from({ length: 40 }, () => tools.sleep({ ms: 20 }).then(() => 1))
const lies = (n) => { let reads = 0; return { toString: () => String(timer), valueOf: () => n, [Symbol.toPrimitive]: (hint) => (hint === "string" || reads++ === 0 ? timer : n) } }
for (let n = 0; n < 60; n++) clearTimeout(lies(n))
const answered = (await Promise.all(calls)).length
return [answered, (await tools.counter()).n, fired]
