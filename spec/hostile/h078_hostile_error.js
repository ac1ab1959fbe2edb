const e = new Error()
for (const k of ["name", "message", "stack", "constructor"]) Object.defineProperty(e, k, { get() { throw new Error("no") } })
throw e
