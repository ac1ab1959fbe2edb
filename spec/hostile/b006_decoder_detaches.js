const words = Array.from({ length: 5000 }, (_, i) => "HEAP-" + i)
const seen = []
for (const name of ["byteLength", "byteOffset", "buffer", "length"]) {
  const buffer = new ArrayBuffer(200000)
  const view = new Uint8Array(buffer)
  const lie = { valueOf() { buffer.transfer(0); words.push("HEAP-" + "x".repeat(1000)); return name === "byteOffset" ? 0 : 200000 } }
  Object.defineProperty(view, name, { get: () => (name === "buffer" ? buffer : lie) })
  try { seen.push(/[^\0]/.test(new TextDecoder().decode(view))) } catch { seen.push(false) }
}
return seen.includes(true)
