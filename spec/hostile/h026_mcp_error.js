const r = await MCP.fixture.fail()
return [r.isError, typeof r.content]
