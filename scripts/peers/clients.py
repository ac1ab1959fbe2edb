"""Clients that nobody here wrote, in front of us: each lists our two tools and runs a cell that calls a server."""

import json
import os

from model import Model
from pins import PEERS
from room import expect
from upstream import everything

CELL = "return (await MCP.everything.getSum({ a: 20, b: 22 })).content[0].text"
ANSWER = "The sum of 20 and 22 is 42."
LAST_WORDS = "The cell has run."
TOKEN = "a-token-of-the-peers-checks"


def configured(room):
    return room.config({"everything": everything(room)})


def checked(tools, result):
    """What every client has to have seen: two tools, and the cell's value from the server behind us."""
    expect(sorted(tools) == ["exec", "wait"], f"it was shown {tools}")
    expect(result.get("status") == "completed" and result.get("value") == ANSWER, f"it was answered {json.dumps(result)[:300]}")
    return "exec and wait listed, a cell run"


def result_of(call):
    """The structured result of a call, which the text has to repeat."""
    structured = call["structuredContent"]
    expect(json.loads(call["content"][0]["text"]) == structured, "text and structured content differ")
    return structured


def inspector(room, target):
    """`target` is how the Inspector is told where we are: options, then what follows `--`."""
    options, command = target
    start = "@modelcontextprotocol/inspector/" + bin_of("inspector", "@modelcontextprotocol/inspector", "mcp-inspector")
    ask = lambda *method: json.loads(room.node("inspector", start, "--cli", *options, *method, *command))
    listed = ask("--method", "tools/list", "--strict")
    called = ask("--method", "tools/call", "--tool-name", "exec", "--tool-arg", f"code={CELL}")
    return checked([tool["name"] for tool in listed["tools"]], result_of(called))


def inspector_stdio(room):
    return inspector(room, ([], ["--", *room.stdio(configured(room))]))


def inspector_http(room):
    address = room.serve(configured(room), TOKEN)
    return inspector(room, ([address, "--transport", "http", "--header", f"Authorization: Bearer {TOKEN}"], []))


def mcporter(room, entry):
    config = room.folder / "mcporter.json"
    config.write_text(json.dumps({"mcpServers": {"cellmate": entry}, "imports": []}))
    start = "mcporter/" + bin_of("mcporter", "mcporter", "mcporter")
    listed = json.loads(room.node("mcporter", start, "--config", config, "list", "cellmate", "--json"))
    call = ["call", "cellmate.exec", "--args", json.dumps({"code": CELL}), "--output", "json"]
    called = json.loads(room.node("mcporter", start, "--config", config, *call))
    return checked([tool["name"] for tool in listed["tools"]], called)


def mcporter_stdio(room):
    command, *arguments = room.stdio(configured(room))
    return mcporter(room, {"command": command, "args": arguments})


def mcporter_http(room):
    address = room.serve(configured(room), TOKEN)
    return mcporter(room, {"baseUrl": address, "headers": {"Authorization": f"Bearer {TOKEN}"}})


def agent(room, prefix, run):
    """An agent with a scripted model: `run` starts it against the model's address and gives back what it printed."""
    with Model(lambda name: name == f"{prefix}exec", {"code": CELL}, LAST_WORDS) as model:
        try:
            printed = run(model.address)
        finally:
            room.say(json.dumps(model.asked, indent=1))
    expect(LAST_WORDS in printed, f"the model's last words did not come out: {printed[-300:]}")
    ours = [name.removeprefix(prefix) for name in model.shown() if name.startswith(prefix)]
    results = [result for result in model.results() if ANSWER in result]
    expect(results, f"no result had the answer: {model.results()}")
    # Some agents put a line of their own before what the tool said.
    result = results[-1]
    return checked(ours, json.loads(result[result.index("{"):]))


def claude_code(room):
    room.run(room.cellmate, "connect", "claude-code", "--yes", "--config", configured(room))

    def run(address):
        quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
        env = room.environment(ANTHROPIC_BASE_URL=address, ANTHROPIC_API_KEY="none", **quiet)
        words = ["-p", "Run the cell.", "--allowedTools", "mcp__cellmate__exec", "--output-format", "json"]
        return room.run(PEERS / "claude-code/node_modules/.bin/claude", *words, env=env)

    return agent(room, "mcp__cellmate__", run)


CODEX = """model = "scripted"
model_provider = "loopback"

[model_providers.loopback]
name = "loopback"
base_url = "{address}/v1"
wire_api = "responses"
env_key = "LOOPBACK_KEY"
"""


def codex(room):
    def run(address):
        folder = room.home / ".codex"
        folder.mkdir()
        (folder / "config.toml").write_text(CODEX.replace("{address}", address))
        room.run(room.cellmate, "connect", "codex", "--yes", "--config", configured(room))
        words = ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--json", "Run the cell."]
        return room.run(PEERS / "codex/node_modules/.bin/codex", *words, env=room.environment(LOOPBACK_KEY="none"))

    return agent(room, "mcp__cellmate::", run)


def opencode(room):
    def run(address):
        folder = room.home / ".config/opencode"
        folder.mkdir(parents=True)
        options = {"baseURL": f"{address}/v1", "apiKey": "none"}
        provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"scripted": {"tool_call": True}}}
        settings = {"provider": {"loopback": provider}, "autoupdate": False, "share": "disabled"}
        (folder / "opencode.json").write_text(json.dumps(settings, indent=2))
        room.run(room.cellmate, "connect", "opencode", "--yes", "--config", configured(room))
        words = ["run", "-m", "loopback/scripted", "Run the cell."]
        return room.run(PEERS / "opencode/node_modules/.bin/opencode", *words)

    return agent(room, "cellmate_", run)


def python_mcp_stdio(room):
    drive = [PEERS / "python-mcp/bin/python", room.drives / "mcp_client.py", CELL, *room.stdio(configured(room))]
    seen = json.loads(room.run(*drive))
    return checked(seen["tools"], seen["result"])


def python_mcp_http(room):
    address = room.serve(configured(room), TOKEN)
    drive = [PEERS / "python-mcp/bin/python", room.drives / "mcp_client.py", CELL, address]
    seen = json.loads(room.run(*drive, env=room.environment(TOKEN=TOKEN)))
    return checked(seen["tools"], seen["result"])


def langchain(room):
    drive = [PEERS / "python-langchain/bin/python", room.drives / "langchain_client.py", CELL, *room.stdio(configured(room))]
    seen = json.loads(room.run(*drive))
    return checked(seen["tools"], seen["result"])


def pydantic_ai(room):
    def run(address):
        drive = [PEERS / "python-pydantic/bin/python", room.drives / "pydantic_client.py", f"{address}/v1"]
        return room.run(*drive, *room.stdio(configured(room)))

    return agent(room, "", run)


def ai_sdk(room, target, **more):
    def run(address):
        # Node finds packages beside the script, so the script goes where they are.
        script = PEERS / "ai-sdk/ai_sdk.mjs"
        script.write_text((room.drives / "ai_sdk.mjs").read_text())
        return room.node("ai-sdk", "../ai_sdk.mjs", f"{address}/v1", *target, env=room.environment(**more))

    return agent(room, "", run)


def ai_sdk_stdio(room):
    return ai_sdk(room, room.stdio(configured(room)))


def ai_sdk_http(room):
    return ai_sdk(room, [room.serve(configured(room), TOKEN)], TOKEN=TOKEN)


def bin_of(room, package, name):
    """The script that a package installs under a name."""
    described = json.loads((PEERS / room / "node_modules" / package / "package.json").read_text())["bin"]
    return os.path.normpath(described if isinstance(described, str) else described[name])


# Name: room, the package whose version is told, the check.
CLIENTS = {
    "inspector/stdio": ("inspector", "@modelcontextprotocol/inspector", inspector_stdio),
    "inspector/http": ("inspector", "@modelcontextprotocol/inspector", inspector_http),
    "mcporter/stdio": ("mcporter", "mcporter", mcporter_stdio),
    "mcporter/http": ("mcporter", "mcporter", mcporter_http),
    "claude-code": ("claude-code", "@anthropic-ai/claude-code", claude_code),
    "codex": ("codex", "@openai/codex", codex),
    "opencode": ("opencode", "opencode-ai", opencode),
    "python-mcp/stdio": ("python-mcp", "mcp", python_mcp_stdio),
    "python-mcp/http": ("python-mcp", "mcp", python_mcp_http),
    "ai-sdk/stdio": ("ai-sdk", "@ai-sdk/mcp", ai_sdk_stdio),
    "ai-sdk/http": ("ai-sdk", "@ai-sdk/mcp", ai_sdk_http),
    "langchain": ("python-langchain", "langchain-mcp-adapters", langchain),
    "pydantic-ai": ("python-pydantic", "pydantic-ai-slim[mcp,openai]", pydantic_ai),
}
