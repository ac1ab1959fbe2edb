try { return new RegExp("(".repeat(50000) + ")".repeat(50000)).test("") } catch { return "threw" }
