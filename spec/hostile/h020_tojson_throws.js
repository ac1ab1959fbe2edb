const bad = { toJSON() { throw new Error("no") } }
return await tools.echo({ bad }).then(() => "sent", (e) => e.message)
