const log = []
try { log.push("a"); await yield_control(); log.push("b"); throw new Error("c") } catch (e) { log.push(e.message) } finally { await yield_control(); log.push("d") }
return log.join("")
