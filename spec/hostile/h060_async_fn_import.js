const AsyncFunction = (async () => {}).constructor
try { await AsyncFunction("const m = await import('os'); return m")(); return "loaded" } catch { return "refused" }
