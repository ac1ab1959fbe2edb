Array.prototype.map = () => "patched"
JSON.stringify = () => "no"
await yield_control()
return [[1].map(), (await tools.add({ a: 20, b: 22 })).sum]
