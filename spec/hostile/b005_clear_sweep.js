const calls = Array.from({ length: 50 }, (_, i) => tools.echo({ i }))
for (let n = -3; n < 200; n++) clearTimeout(n), clearTimeout(String(n)), clearTimeout([n]), clearTimeout(BigInt(n))
const first = await Promise.race(calls)
for (let n = 0; n < 200; n++) clearTimeout(n)
return (await Promise.all(calls)).map((r) => r.i).reduce((a, b) => a + b) + first.i * 0
