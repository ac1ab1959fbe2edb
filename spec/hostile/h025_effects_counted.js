const all = await Promise.all(Array.from({ length: 40 }, () => tools.counter()))
return new Set(all.map((r) => r.n)).size
