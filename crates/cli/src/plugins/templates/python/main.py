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


def handle(method, params):
    if method == "initialize":
        config.update(params["config"])
        return {"protocolVersion": 1}
    if method == "tools/call":
        return TOOLS[params["name"]](params)
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
