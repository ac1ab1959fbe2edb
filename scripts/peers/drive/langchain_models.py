"""LangChain's agent with a gateway: it makes the calls of cells. Prints what happened."""

import json
import sys

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

WORDS = {1: "first", 2: "second", 3: "third"}


def one(name, model, stream):
    looked = []

    @tool
    def look(n: int) -> str:
        """Looks."""
        looked.append(n)
        return WORDS[n]

    agent = create_agent(model, tools=[look])
    request = {"messages": [{"role": "user", "content": "Look three times."}]}
    if stream:
        last = [state for state in agent.stream(request, stream_mode="values")][-1]
    else:
        last = agent.invoke(request)
    text = last["messages"][-1].text
    text = text if isinstance(text, str) else text()
    return {"name": f"{name} {'streamed' if stream else 'whole'}", "text": text, "rounds": [sorted(looked)]}


def main(address, token):
    seen = []
    for stream in (False, True):
        common = {"model": "openclaw", "api_key": token, "max_retries": 0, "streaming": stream}
        chat = ChatOpenAI(base_url=f"{address}/v1", **common)
        responses = ChatOpenAI(base_url=f"{address}/v1", use_responses_api=True, **common)
        messages = ChatAnthropic(base_url=address, **common)
        for name, model in {"chat": chat, "responses": responses, "messages": messages}.items():
            seen.append(one(name, model, stream))
    print(json.dumps(seen))


main(*sys.argv[1:])
