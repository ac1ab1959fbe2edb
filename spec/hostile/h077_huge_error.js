const e = new Error("x".repeat(10 << 20))
e.name = "N".repeat(1 << 20)
throw e
