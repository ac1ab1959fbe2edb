let reads = 0
const id = { toString: () => (reads++ === 0 ? "openclaw:test:echo" : "openclaw:test:forbidden") }
return await tools.call(id, { a: 1 })
