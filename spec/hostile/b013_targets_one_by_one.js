const s = "a".repeat(16 << 20)
let refused = 0
for (let i = 0; i < 30; i++) await tools.describe(s).catch(() => refused++)
return refused
