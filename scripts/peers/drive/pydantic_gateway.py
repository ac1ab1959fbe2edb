"""Pydantic AI with a gateway: its agent makes the calls of cells. Prints what happened."""

import asyncio
import json
import sys

from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

WORDS = {1: "first", 2: "second", 3: "third"}


async def one(name, model, stream):
    looked = []
    agent = Agent(model)

    @agent.tool_plain
    def look(n: int) -> str:
        """Looks."""
        looked.append(n)
        return WORDS[n]

    if stream:
        async with agent.run_stream("Look three times.") as result:
            text = await result.get_output()
    else:
        text = (await agent.run("Look three times.")).output
    return {"name": f"{name} {'streamed' if stream else 'whole'}", "text": text, "rounds": [sorted(looked)]}


async def main(address, token):
    openai = OpenAIProvider(base_url=f"{address}/v1", api_key=token)
    anthropic = AnthropicProvider(base_url=address, api_key=token)
    models = {
        "chat": OpenAIChatModel("openclaw", provider=openai),
        "responses": OpenAIResponsesModel("openclaw", provider=openai),
        "messages": AnthropicModel("openclaw", provider=anthropic),
    }
    print(json.dumps([await one(name, model, stream) for name, model in models.items() for stream in (False, True)]))


asyncio.run(main(*sys.argv[1:]))
