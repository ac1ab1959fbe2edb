const tries = [[1], [[]], ["x"], [null], [{}, {}]]
const out = []
for (const args of tries) out.push(await MCP.fixture.echo(...args).then(() => "ran", () => "refused"))
return out
