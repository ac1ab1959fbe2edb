return [Object.keys(MCP), typeof MCP.fixture.delete, typeof MCP.fixture.__proto__, typeof MCP.nope, Object.keys(MCP.fixture).sort().join()]
