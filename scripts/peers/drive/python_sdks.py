"""The Python SDKs of OpenAI and Anthropic with a gateway: tools that cells call, streamed and not. Prints what happened.

AGENT is the model that it asks for, which is an agent of the gateway."""

import json
import os
import sys

import anthropic
import openai

WORDS = {1: "first", 2: "second", 3: "third"}
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
PROMPT = "Look three times."
MAX_ROUNDS = 6
AGENT = os.environ.get("AGENT", "openclaw")


class Looking:
    """Counts the calls of the tool `look` in each round."""

    def __init__(self, name):
        self.name, self.rounds = name, []

    def answer(self, calls):
        self.rounds.append([arguments["n"] for arguments in calls])
        return [WORDS[arguments["n"]] for arguments in calls]

    def done(self, text):
        return {"name": self.name, "text": text, "rounds": self.rounds}


def chat(client, stream):
    looking = Looking(f"chat {'streamed' if stream else 'whole'}")
    tools = [{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": SCHEMA}}]
    messages = [{"role": "user", "content": PROMPT}]
    for _ in range(MAX_ROUNDS):
        if stream:
            with client.chat.completions.stream(model=AGENT, messages=messages, tools=tools) as events:
                for _event in events:
                    pass
                message = events.get_final_completion().choices[0].message
        else:
            message = client.chat.completions.create(model=AGENT, messages=messages, tools=tools).choices[0].message
        if not message.tool_calls:
            return looking.done(message.content)
        messages.append(message.model_dump(exclude_none=True))
        words = looking.answer([json.loads(call.function.arguments) for call in message.tool_calls])
        for call, word in zip(message.tool_calls, words):
            messages.append({"role": "tool", "tool_call_id": call.id, "content": word})
    return looking.done("too many rounds")


def responses(client, stream, chained):
    looking = Looking(f"responses {'streamed' if stream else 'whole'}{' chained' if chained else ''}")
    tools = [{"type": "function", "name": "look", "description": "Looks.", "parameters": SCHEMA, "strict": False}]
    items, previous = [{"role": "user", "content": PROMPT}], openai.omit
    for _ in range(MAX_ROUNDS):
        request = {"model": AGENT, "input": items, "tools": tools, "previous_response_id": previous}
        if stream:
            with client.responses.stream(**request) as events:
                for _event in events:
                    pass
                response = events.get_final_response()
        else:
            response = client.responses.create(**request)
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            return looking.done(response.output_text)
        words = looking.answer([json.loads(call.arguments) for call in calls])
        results = [{"type": "function_call_output", "call_id": call.call_id, "output": word} for call, word in zip(calls, words)]
        if chained:
            items, previous = results, response.id
        else:
            items = [*items, *(item.model_dump(exclude_none=True) for item in response.output), *results]
    return looking.done("too many rounds")


def messages(client, stream):
    looking = Looking(f"messages {'streamed' if stream else 'whole'}")
    tools = [{"name": "look", "description": "Looks.", "input_schema": SCHEMA}]
    history = [{"role": "user", "content": PROMPT}]
    for _ in range(MAX_ROUNDS):
        request = {"model": AGENT, "max_tokens": 1000, "messages": history, "tools": tools}
        if stream:
            with client.messages.stream(**request) as events:
                for _event in events:
                    pass
                message = events.get_final_message()
        else:
            message = client.messages.create(**request)
        calls = [block for block in message.content if block.type == "tool_use"]
        if not calls:
            return looking.done("".join(block.text for block in message.content if block.type == "text"))
        words = looking.answer([call.input for call in calls])
        history.append({"role": "assistant", "content": message.content})
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": word} for call, word in zip(calls, words)]
        history.append({"role": "user", "content": results})
    return looking.done("too many rounds")


def main(address, token):
    gpt = openai.OpenAI(base_url=f"{address}/v1", api_key=token, max_retries=0)
    claude = anthropic.Anthropic(base_url=address, api_key=token, max_retries=0)
    models = [model.id for model in gpt.models.list()]
    assert models == [model.id for model in claude.models.list()] and AGENT in models, models
    seen = [chat(gpt, stream) for stream in (False, True)]
    seen += [responses(gpt, stream, chained) for chained in (False, True) for stream in (False, True)]
    seen += [messages(claude, stream) for stream in (False, True)]
    print(json.dumps(seen))


main(*sys.argv[1:])
