"""Pydantic AI: an agent with a server's tools and a model at the given address. Prints the model's last message."""

import asyncio
import os
import sys

from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


async def main(model, command):
    from fastmcp.client.transports import StdioTransport

    tools = MCPToolset(StdioTransport(command=command[0], args=command[1:], env=dict(os.environ)))
    provider = OpenAIProvider(base_url=model, api_key="none")
    agent = Agent(OpenAIChatModel("scripted", provider=provider), toolsets=[tools])
    async with agent:
        print((await agent.run("Run the cell.")).output)


asyncio.run(main(sys.argv[1], sys.argv[2:]))
