"""OpenAI's Agents SDK with a gateway: its agent loop makes the calls of cells. Prints what happened."""

import asyncio
import json
import sys

from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

WORDS = {1: "first", 2: "second", 3: "third"}


async def one(name, model, stream):
    looked = []

    @function_tool
    def look(n: int) -> str:
        """Looks."""
        looked.append(n)
        return WORDS[n]

    agent = Agent(name="looker", model=model, tools=[look])
    if stream:
        result = Runner.run_streamed(agent, "Look three times.")
        async for _event in result.stream_events():
            pass
    else:
        result = await Runner.run(agent, "Look three times.")
    return {"name": f"{name} {'streamed' if stream else 'whole'}", "text": result.final_output, "rounds": [sorted(looked)]}


async def main(address, token):
    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=f"{address}/v1", api_key=token, max_retries=0)
    models = {"chat": OpenAIChatCompletionsModel("openclaw", client), "responses": OpenAIResponsesModel("openclaw", client)}
    seen = [await one(name, model, stream) for name, model in models.items() for stream in (False, True)]
    print(json.dumps(seen))


asyncio.run(main(*sys.argv[1:]))
