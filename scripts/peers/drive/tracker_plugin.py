"""A plugin with as many tools as its manifest has. A tool returns its name and its input; every call is written to a file."""

import json
import os
import sys
from pathlib import Path

CALLS = Path(os.environ["CELLMATE_PLUGIN_DATA"]) / "calls"


def answer(method, params):
    if method == "initialize":
        return {"protocolVersion": 1}
    with open(CALLS, "a", encoding="utf-8") as calls:
        print(json.dumps(params), file=calls)
    return {"details": {"tool": params["name"], "input": params["input"]}}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = answer(message["method"], message["params"])
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
