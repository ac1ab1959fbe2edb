"""The Python SDK's client: lists tools and makes calls, prints both as JSON. Arguments: calls as a JSON list of
[tool, arguments], then a command. With `-` instead of the calls, it reads one call per line and answers each with a line,
so that a check can change something between two calls of a session.

With FORM_ANSWER, it answers every approval form with this decision, and also prints how many forms there were."""

import asyncio
import json
import os
import sys

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import MCPError

SESSION_SECONDS = 120


def dumped(value):
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


async def listed(session):
    tools, cursor = [], None
    while True:
        page = await session.list_tools(cursor=cursor) if cursor else await session.list_tools()
        tools += map(dumped, page.tools)
        cursor = getattr(page, "next_cursor", None)
        if not cursor:
            return tools


async def converse(session, forms):
    """Makes the calls of standard input, until it ends. A request that the server refuses is answered with the reason."""
    print(json.dumps({"tools": await listed(session)}), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        tool, arguments = json.loads(line)
        try:
            result = {"result": dumped(await session.call_tool(tool, arguments))}
        except MCPError as error:
            result = {"refused": str(error)}
        print(json.dumps({**result, "forms": len(forms)}), flush=True)


async def main(calls, target):
    decision, forms = os.environ.get("FORM_ANSWER"), []

    async def answer(context, form):
        forms.append(form)
        return types.ElicitResult(action="accept", content={"decision": decision})

    more = {"elicitation_callback": answer} if decision else {}
    server = StdioServerParameters(command=target[0], args=target[1:], env=dict(os.environ))
    async with stdio_client(server) as streams, ClientSession(streams[0], streams[1], **more) as session:
        await session.initialize()
        if calls == "-":
            return await converse(session, forms)
        tools = await listed(session)
        results = [dumped(await session.call_tool(tool, arguments)) for tool, arguments in json.loads(calls)]
        print(json.dumps({"tools": tools, "results": results, "forms": len(forms)}))


asyncio.run(asyncio.wait_for(main(sys.argv[1], sys.argv[2:]), SESSION_SECONDS))
