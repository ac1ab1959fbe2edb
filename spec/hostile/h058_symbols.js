for (let i = 0; ; i++) Symbol.for("s" + i + "x".repeat(1000))
