const found = []
for (const f of [tools.call, tools.search, text, API.read, MCP.$api, setTimeout])
  try { const g = await f.constructor("return this")(); if (g && g !== globalThis) found.push(String(f)) } catch {}
return found.length
