const e = new Error("misplaced")
const far = 2 ** 32 - 1
e.stack = `    at <anonymous> (cell:${far}:${far})`
throw e
