const e = new Error()
Object.defineProperty(e, "message", { get() { for (;;); } })
throw e
