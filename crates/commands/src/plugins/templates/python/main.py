"""A Cellmate plugin: JSON-RPC 2.0, one message per line. docs/guide/plugins.md has the protocol."""
import json
import sys

config = {}


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def greet(params):
    name = params["input"].get("name", "world")
    return {"details": {"greeting": f"{config.get('greeting', 'Hello')}, {name}!"}}


TOOLS = {"greet": greet}

# A hook that checks calls of other tools. To use it, remove the comment signs here and below, and add to the manifest:
#   "hooks": { "before_tool_call": { "tools": ["mcp:files:*"] } }
# Then try it: cellmate plugins test FOLDER --call mcp:files:write_file --input '{"path": "/etc/hosts"}'
#
# def before_tool_call(event):
#     # {"toolId": "mcp:files:write_file", "toolName": "write_file", "params": {"path": "/etc/hosts"}, ...}
#     if str(event["params"].get("path", "")).startswith("/etc/"):
#         return {"block": "files in /etc stay as they are"}
#     if event["toolName"].startswith("delete_"):
#         return {"requireApproval": "it deletes a file"}
#     return {}  # Allows the call; {"params": {...}} would also replace its input.


def handle(method, params):
    if method == "initialize":
        config.update(params["config"])
        return {"protocolVersion": 1}
    if method == "tools/call":
        return TOOLS[params["name"]](params)
    # if method == "hooks/before_tool_call":
    #     return before_tool_call(params)
    raise ValueError(f"unknown method {method}")


for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "shutdown":
        break
    if "id" not in message:
        continue  # A notification, such as `cancel`: this plugin answers at once, so there is nothing to cancel.
    try:
        send({"id": message["id"], "result": handle(message["method"], message.get("params", {}))})
    except Exception as error:
        send({"id": message["id"], "error": {"code": -32000, "message": str(error)}})
