"""LangChain's MCP adapters: loads a server's tools, runs a cell with `exec`, prints both as JSON."""

import asyncio
import json
import os
import sys

from langchain_mcp_adapters.client import MultiServerMCPClient


async def main(cell, command):
    server = {"transport": "stdio", "command": command[0], "args": command[1:], "env": dict(os.environ)}
    tools = await MultiServerMCPClient({"cellmate": server}).get_tools()
    execute = next(tool for tool in tools if tool.name == "exec")
    answer = await execute.ainvoke({"code": cell})
    text = answer if isinstance(answer, str) else answer[0]["text"]
    print(json.dumps({"tools": [tool.name for tool in tools], "result": json.loads(text)}))


asyncio.run(main(sys.argv[1], sys.argv[2:]))
