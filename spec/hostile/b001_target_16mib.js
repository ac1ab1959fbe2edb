const s = "a".repeat(16 << 20)
const codes = await Promise.all(Array.from({ length: 300 }, () => tools.describe(s).catch((e) => e.code)))
return [codes.length, codes.every((c) => c === "value_too_large")]
