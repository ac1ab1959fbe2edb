"""A small MCP server with one tool. It starts quickly, so that a check can have many servers."""

import json
import sys

TOOL = {"name": "greet", "description": "Returns a greeting.", "inputSchema": {"type": "object"}}


def answer(method, params):
    if method == "initialize":
        about = {"name": "small", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        return {"tools": [TOOL]}
    return {"content": [{"type": "text", "text": "Hello."}]} if method == "tools/call" else {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        result = answer(message["method"], message.get("params", {}))
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
