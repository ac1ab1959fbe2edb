"""The client program for the conformance suite: runs the `cellmate` CLI as a scenario requires.

Arguments: the path of `cellmate` and the address of the scenario's server. Logs in if the scenario tests that, lists
the tools, then calls the ones that the scenario names, or each of them once with arguments generated from its schema. In
scenarios in which servers ask the user, calls are made from cells, and every form is submitted unchanged.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import urllib.request

COMMAND_SECONDS = 25
ASKING = ("elicitation-", "sep-2322-")
SAMPLES = {"string": "text", "number": 1, "integer": 1, "boolean": True, "object": {}, "array": [], "null": None}


def main(cellmate, address):
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    with tempfile.TemporaryDirectory(prefix="cellmate-conformance-") as home:
        config = os.path.join(home, "cellmate.json")
        with open(config, "w", encoding="utf-8") as file:
            approvals = {"nonInteractive": True}
            json.dump({"mcpServers": {"peer": entry(address, context)}, "approvals": approvals}, file)
        client = Client(cellmate, config, home)
        if scenario.startswith("auth/"):
            client.log_in()
        tools = client.listed()
        calls = context.get("toolCalls") or [{"name": name, "arguments": arguments(name, tools)} for name in tools]
        make = client.called_from_cell if scenario.startswith(ASKING) else client.called
        failed = [call["name"] for call in calls if not make(call["name"], call["arguments"])]
    sys.exit(f"calls failed: {failed}" if failed else 0)


def entry(address, context):
    entry = {"url": address}
    if "client_id" in context:
        entry["oauth"] = {"clientId": context["client_id"], "clientSecret": context.get("client_secret")}
    return entry


def arguments(name, tools):
    """Returns the required arguments of a tool; the scenario about schemas expects one of the schemas back."""
    if name == "json_schema_echo":
        return {"schema": tools["json_schema_2020_12_tool"]}
    schema = tools[name]
    wanted = {name: schema.get("properties", {}).get(name, {}) for name in schema.get("required", [])}
    return {name: SAMPLES.get(one.get("type"), "text") for name, one in wanted.items()}


class Client:
    def __init__(self, cellmate, config, home):
        self.cellmate, self.config = cellmate, config
        self.env = {**os.environ, "HOME": home, "XDG_STATE_HOME": os.path.join(home, "state")}

    def command(self, *words):
        return [self.cellmate, *words, "--config", self.config]

    def run(self, *words):
        done = subprocess.run(self.command(*words), env=self.env, capture_output=True, text=True, timeout=COMMAND_SECONDS)
        print(words, done.returncode, done.stdout[:2000], done.stderr[:2000], sep="\n", file=sys.stderr)
        return done

    def listed(self):
        done = self.run("tools", "list", "--json")
        if "cellmate servers login" in done.stdout:
            # The login is no longer valid; do what the message tells the user to do.
            self.log_in()
            done = self.run("tools", "list", "--json")
        if done.returncode:
            sys.exit(f"listing the tools failed: {done.stdout[-500:]} {done.stderr[-500:]}")
        return {tool["id"].removeprefix("mcp:peer:"): tool["parameters"] for tool in json.loads(done.stdout)["tools"]}

    def called(self, name, arguments):
        done = self.call(name, arguments)
        if "cellmate servers login" in done.stdout:
            # The login has too few scopes; do what the message tells the user to do.
            self.log_in()
            done = self.call(name, arguments)
        return done.returncode == 0

    def call(self, name, arguments):
        return self.run("tools", "call", f"mcp:peer:{name}", "--args", json.dumps(arguments), "--json", "--yes")

    def called_from_cell(self, name, arguments):
        function = re.sub(r"[^A-Za-z0-9]+(.)", lambda found: found.group(1).upper(), name)
        state = os.path.join(self.env["HOME"], "run")
        command = [*self.command("mcp", "--ask-nobody"), "--state-dir", state]
        process = subprocess.Popen(command, env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        timer = threading.Timer(COMMAND_SECONDS, process.kill)
        timer.start()

        def ask(number, method, params):
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
            return next(one for one in map(json.loads, process.stdout) if one.get("id") == number)["result"]

        info = {"name": "conformance", "version": "1"}
        ask(0, "initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info})
        code = f"return await MCP.peer.{function}({json.dumps(arguments)})"
        result = ask(1, "tools/call", {"name": "exec", "arguments": {"code": code}})["structuredContent"]
        number = 1
        while result["status"] == "waiting":
            for approval in result.get("approvals", []):
                words = [*self.command("approvals", "approve"), approval["approvalId"], "--input", "{}", "--state-dir", state]
                subprocess.run(words, env=self.env, check=True, capture_output=True, timeout=COMMAND_SECONDS)
            number += 1
            call = {"name": "wait", "arguments": {"runId": result["runId"]}}
            result = ask(number, "tools/call", call)["structuredContent"]
        timer.cancel()
        process.kill()
        print(name, json.dumps(result)[:2000], file=sys.stderr)
        return result["status"] == "completed" and not result["value"].get("isError")

    def log_in(self):
        """Logs in like a user: opens the page that the command prints. The suite's pages redirect immediately."""
        command = self.command("servers", "login", "peer")
        process = subprocess.Popen(command, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        timer = threading.Timer(COMMAND_SECONDS, process.kill)
        timer.start()
        output = ""
        for line in process.stderr:
            output += line
            page = re.match(r"\s+(http\S+)", line)
            if page:
                threading.Thread(target=visit, args=(page.group(1),), daemon=True).start()
        timer.cancel()
        if process.wait():
            sys.exit(f"the login failed: {output[-1000:]}")


def visit(page):
    try:
        urllib.request.urlopen(page, timeout=COMMAND_SECONDS).read()
    except OSError as error:
        print(f"opening the page failed: {error}", file=sys.stderr)


main(*sys.argv[1:3])
