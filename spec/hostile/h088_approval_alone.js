const all = await Promise.allSettled([tools.approve(), tools.counter(), tools.approve({ again: true }), tools.add({ a: 1, b: 2 })])
return all.map((r) => r.status[0]).join("")
