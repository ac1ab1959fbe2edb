setTimeout(() => { throw new Error("late") }, 5)
await new Promise((done) => setTimeout(done, 50))
return "unnoticed"
