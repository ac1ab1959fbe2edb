"""The Python SDK's client: lists tools and makes calls, prints both as JSON. Arguments: calls as a JSON list of
[tool, arguments], then an address or a command.

With FORM_ANSWER, it answers every approval form with this decision, and also prints how many forms there were."""

import asyncio
import json
import os
import sys

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client


async def main(calls, target):
    decision, forms = os.environ.get("FORM_ANSWER"), []

    async def answer(context, form):
        forms.append(form)
        return types.ElicitResult(action="accept", content={"decision": decision})

    more = {"elicitation_callback": answer} if decision else {}
    server = StdioServerParameters(command=target[0], args=target[1:], env=dict(os.environ))
    async with stdio_client(server) as streams, ClientSession(streams[0], streams[1], **more) as session:
        await session.initialize()
        tools, cursor = [], None
        while True:
            page = await session.list_tools(cursor=cursor) if cursor else await session.list_tools()
            tools += page.tools
            cursor = getattr(page, "next_cursor", None)
            if not cursor:
                break
        results = []
        for tool, arguments in calls:
            called = await session.call_tool(tool, arguments)
            results.append(called.model_dump(mode="json", by_alias=True, exclude_none=True))
        listed = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]
        print(json.dumps({"tools": listed, "results": results, "forms": len(forms)}))


asyncio.run(main(json.loads(sys.argv[1]), sys.argv[2:]))
