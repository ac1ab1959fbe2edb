const s = "a".repeat((16 << 20) - 64)
const ends = await Promise.all(Array.from({ length: 20 }, () => tools.call("openclaw:test:nope", s).catch((e) => e.code ?? "asked")))
return [ends.filter((e) => e === "asked").length, ends.filter((e) => e === "value_too_large").length]
