const r = await MCP.fixture.inject()
return [typeof r.content[0].text, ALL_TOOLS.some((t) => t.name === "forbidden")]
