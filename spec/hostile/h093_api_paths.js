const paths = ["", "/", "//", "mcp/./fixture.d.ts", "mcp//fixture.d.ts", "/etc/passwd", "mcp/fixture.d.ts/", "mcp\\fixture.d.ts", "%2e%2e/x", "mcp/fixture.d.ts\0", "MCP/fixture.d.ts"]
const read = []
for (const p of paths) await API.read(p).then(() => read.push(p), () => {})
return read
