"""A scripted plugin that can misbehave. The first argument of its command selects how."""
import json
import os
import sys
import time

MODE = sys.argv[1] if len(sys.argv) > 1 else "good"
DATA = os.environ["CELLMATE_PLUGIN_DATA"]


def record(line):
    with open(os.path.join(DATA, "record"), "a") as file:
        file.write(line + "\n")


def write(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def send(message):
    write(json.dumps(dict(message, jsonrpc="2.0")))


def answer(request, result):
    send({"id": request["id"], "result": result})


def flood(stream, line, seconds):
    end = time.time() + seconds
    while time.time() < end:
        stream.write(line)
        stream.flush()


def call(request):
    params = request["params"]
    name, given = params["name"], params["input"]
    record(f"call {name} {params['idempotencyKey']}")
    if MODE == "garbage":
        for _ in range(50):
            write("this is not JSON")
    elif MODE == "exit":
        sys.exit(3)
    elif MODE == "exit-loudly":
        # Nothing is buffered, so the pipes close at once.
        os.write(2, b"boom\n")
        os._exit(3)
    elif MODE == "exit-for-good":
        open(os.path.join(DATA, "exited"), "w").close()
        sys.exit(3)
    elif MODE == "exit-once":
        if not os.path.exists(os.path.join(DATA, "exited")):
            record("exiting")
            open(os.path.join(DATA, "exited"), "w").close()
            sys.exit(3)
        answer(request, {"text": "second time"})
    elif MODE == "hang":
        time.sleep(3600)
    elif MODE == "long":
        write(json.dumps({"id": request["id"], "result": {"text": "x" * (9 << 20)}}))
    elif MODE == "deep":
        write('{"id":%d,"result":%s}' % (request["id"], "[" * 500 + "]" * 500))
    elif MODE == "many":
        write('{"id":%d,"result":{"details":[%s0]}}' % (request["id"], "0," * 300000))
    elif MODE == "lie":
        for id in [0, -1, 10**6, request["id"] + 1]:
            send({"id": id, "result": {"text": "for another call"}})
        answer(request, {"text": "true"})
        answer(request, {"text": "a second answer"})
    elif MODE == "wrong-output":
        answer(request, {"details": {"n": "not a number"}})
    elif MODE == "no-result":
        send({"id": request["id"]})
    elif MODE == "asks":
        for id in range(1000):
            send({"id": f"p{id}", "method": "give/me", "params": {}})
    elif MODE == "flood":
        flood(sys.stdout, json.dumps({"method": "noise", "params": "x" * 5000}) + "\n", 1)
        answer(request, {"text": "after the flood"})
    elif MODE == "flood-stderr":
        flood(sys.stderr, "y" * 5000 + "\n", 1)
        answer(request, {"text": "after the flood"})
    elif MODE == "endless-line":
        flood(sys.stdout, "z" * 65536, 5)
    elif MODE == "slow":
        time.sleep(given.get("seconds", 0.3))
        answer(request, {"text": "slow"})
    elif MODE == "fork":
        if os.fork() == 0:
            time.sleep(3600)
        answer(request, {"text": str(os.getpid())})
    elif name == "wait":
        time.sleep(given.get("seconds", 0.2))
        answer(request, {"text": "waited"})
    elif name == "progress":
        for step in range(3):
            send({"method": "progress", "params": {"requestId": request["id"], "progress": step, "message": f"step {step}"}})
        answer(request, {"text": "done"})
    else:
        answer(request, {"details": {"n": 1, "input": given, "scope": params["scope"], "name": name, "under": [params["callId"], params["toolCallId"]]}})


def hook(request):
    event = request["params"]
    if MODE == "hook-slow":
        time.sleep(60)
    elif MODE == "hook-exit":
        sys.exit(4)
    elif MODE == "hook-lie":
        answer(request, {"allow": True})
    elif MODE == "hook-error":
        send({"id": request["id"], "error": {"code": 1, "message": "cannot decide"}})
    elif MODE == "hook-garbage":
        write("nonsense")
        write('{"id": %d, "result": ' % request["id"])
    elif "secret" in json.dumps(event["params"]):
        answer(request, {"block": True, "blockReason": "it contains a secret"})
    elif "dangerous" in json.dumps(event["params"]):
        answer(request, {"requireApproval": "it is dangerous"})
    elif "old" in event["params"]:
        answer(request, {"params": dict(event["params"], old="new")})
    else:
        record("event " + json.dumps(event, sort_keys=True))
        answer(request, {})


for line in sys.stdin:
    request = json.loads(line)
    method = request.get("method")
    if method == "initialize":
        record(f"start {os.getpid()} {json.dumps(request['params']['config'])}")
        record("tokens " + " ".join(os.environ.get(name, "-") for name in ("FAKE_TOKEN", "OTHER_TOKEN")))
        if MODE == "start-exit" or MODE == "exit-for-good" and os.path.exists(os.path.join(DATA, "exited")):
            print("no licence found", file=sys.stderr)
            sys.exit(9)
        if MODE == "start-hang":
            time.sleep(3600)
        answer(request, {"protocolVersion": 99 if MODE == "start-other" else 1})
        if MODE == "never-reads":
            time.sleep(3600)
    elif method == "tools/call":
        call(request)
    elif method == "hooks/before_tool_call":
        hook(request)
    elif method == "hooks/after_tool_call":
        record("after " + json.dumps(request["params"]["outcome"], sort_keys=True))
        if MODE == "hook-after-slow":
            time.sleep(60)
        answer(request, {"block": True, "params": {"changed": True}, "result": "changed"} if MODE == "hook-after-lie" else {})
    elif method == "namespaces/createScope":
        context = request["params"]["context"]
        if MODE == "scope-bad":
            answer(request, {"scope": {"steal": {"$tool": "other"}}})
        elif MODE == "scope-slow":
            time.sleep(60)
        else:
            scope = {"agent": context["agentId"], "config": context["config"], "echo": {"$tool": "echo", "input": {"positional": ["text"]}}}
            answer(request, {"scope": scope})
    elif method == "namespaces/cleanup":
        record("cleanup " + json.dumps(request["params"]))
    elif method == "cancel":
        record("cancel")
    elif method == "shutdown":
        record("shutdown")
        sys.exit(0)
