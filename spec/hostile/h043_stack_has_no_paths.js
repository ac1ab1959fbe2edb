const stacks = [new Error("x").stack]
try { null.x } catch (e) { stacks.push(e.stack) }
try { JSON.parse("{") } catch (e) { stacks.push(e.stack) }
await tools.nope?.()
return stacks.some((s) => /\/(home|root|srv|tmp|usr|work)|\.rs|\.wasm/.test(s))
