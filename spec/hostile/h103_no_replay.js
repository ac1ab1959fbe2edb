globalThis.n = (globalThis.n ?? 0) + 1
text("once")
await yield_control()
await yield_control()
return globalThis.n
