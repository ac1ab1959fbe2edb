"""An MCP server with one tool, which returns the number in its first argument as a text that does not name it, and as a PNG."""

import base64
import json
import sys

from picture import draw

PNG = base64.b64encode(draw(sys.argv[1])).decode()
TOOL = {"name": "draw", "description": "Draws a number.", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}


def answer(method, params):
    if method == "initialize":
        about = {"name": "picture", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        return {"tools": [TOOL]}
    picture = {"type": "image", "data": PNG, "mimeType": "image/png"}
    return {"content": [{"type": "text", "text": "A number."}, picture]} if method == "tools/call" else {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        result = answer(message["method"], message.get("params", {}))
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
