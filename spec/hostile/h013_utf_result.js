const r = await tools.utf()
return [r.includes("\u0000"), r.includes("\u2028"), r.length]
