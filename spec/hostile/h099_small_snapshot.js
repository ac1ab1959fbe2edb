const noise = Array.from({ length: 20000 }, Math.random)
await yield_control()
return noise.length
