const a = (await tools.counter()).n
await tools.sleep({ ms: 400 })
await yield_control()
const b = (await tools.counter()).n
return [a, b]
