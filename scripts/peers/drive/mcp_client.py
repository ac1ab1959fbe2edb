"""The Python SDK's client: lists tools, runs a cell, prints both as JSON. Arguments: a cell, then an address or a command.

With FORM_ANSWER, it answers every approval form with this decision, and also prints how many forms there were."""

import asyncio
import json
import os
import sys

import httpx2
from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client


def connection(target):
    if target[0].startswith("http"):
        client = httpx2.AsyncClient(headers={"Authorization": f"Bearer {os.environ['TOKEN']}"}, timeout=60)
        return streamable_http_client(target[0], http_client=client)
    return stdio_client(StdioServerParameters(command=target[0], args=target[1:], env=dict(os.environ)))


async def main(cell, target):
    decision, forms = os.environ.get("FORM_ANSWER"), []

    async def answer(context, form):
        forms.append(form)
        return types.ElicitResult(action="accept", content={"decision": decision})

    more = {"elicitation_callback": answer} if decision else {}
    async with connection(target) as streams, ClientSession(streams[0], streams[1], **more) as session:
        await session.initialize()
        tools = (await session.list_tools()).tools
        called = await session.call_tool("exec", {"code": cell})
        while (result := json.loads(called.content[0].text))["status"] == "waiting":
            called = await session.call_tool("wait", {"runId": result["runId"]})
        if called.structured_content != result:
            raise SystemExit("text and structured content differ")
        print(json.dumps({"tools": [tool.name for tool in tools], "result": result, "forms": len(forms)}))


asyncio.run(main(sys.argv[1], sys.argv[2:]))
