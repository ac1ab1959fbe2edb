let reads = 0
const block = { get data() { return reads++ % 2 ? "?" : "AQID" }, get mimeType() { return { toString: () => (reads++ % 2 ? "image/png" : "text/html") } } }
const seen = new Set()
for (let i = 0; i < 50; i++) try { image(block); seen.add("shown") } catch (e) { seen.add(e.code) }
Uint8Array.prototype.toBase64 = () => "?"
try { image({ data: new Proxy(new Uint8Array(3), {}), mimeType: "image/png" }) } catch (e) { seen.add(e.code) }
return [...seen].every((code) => code === "shown" || code === "invalid_input")
