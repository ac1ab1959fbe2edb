"""Checks with third-party clients: each lists Cellmate's two tools and runs a cell that calls an MCP server."""

import json
import os
import shlex
import sys

from model import Model
from pins import PEERS
from room import expect
from terminal import CALL, Terminal
from upstream import everything

CELL = "return (await MCP.everything.getSum({ a: 20, b: 22 })).content[0].text"
FIVE = "return (await Promise.all([1, 2, 3, 4, 5].map((n) => MCP.everything.getSum({ a: n, b: n })))).length"
ANSWER = "The sum of 20 and 22 is 42."
LAST_MESSAGE = "The cell has run."
TOKEN = "a-token-of-the-peers-checks"
TERMINAL_SECONDS = 60

# The server of agents needs this variable: it is there only if `connect` made the agent pass it on.
NEEDED = {"PEERS_NEEDED": "a-value-of-the-peers-checks"}
NEEDED_CELL = f"""const variables = JSON.parse((await MCP.everything.getEnv({{}})).content[0].text);
for (const [name, value] of Object.entries({json.dumps(NEEDED)})) {{
  if (variables[name] !== value) throw new Error(`the server got ${{variables[name]}} as ${{name}}`);
}}
{CELL}"""
# With so many servers, the description of `exec` has its greatest length.
OTHER_SERVERS = 40


def configured(workspace):
    config = workspace.config({"everything": everything(workspace)})
    # The description changes once the server has listed its tools, and some checks compare it between two processes.
    workspace.run(workspace.cellmate, "tools", "list", "--config", config)
    return config


def connected(workspace, client):
    """Connects a client to cellmate, with many servers, one of which refers to a variable. Returns the configuration."""
    server = everything(workspace) | {"env": {name: f"${{{name}}}" for name in NEEDED}}
    small = {"command": sys.executable, "args": ["-S", str(workspace.drives / "small_server.py")]}
    others = {f"another-server-{number:02}": small for number in range(OTHER_SERVERS)}
    config, env = workspace.config({"everything": server, **others}), workspace.environment(**NEEDED)
    # The description changes once the servers have listed their tools, and it is compared below.
    workspace.run(workspace.cellmate, "tools", "list", "--config", config, env=env)
    workspace.run(workspace.cellmate, "connect", client, "--yes", "--config", config, env=env)
    return config


def checked(tools, result):
    """Checks what a client received: the two tools, and the cell's value from the MCP server."""
    expect(sorted(tools) == ["exec", "wait"], f"the client was shown {tools}")
    expect(result.get("status") == "completed" and result.get("value") == ANSWER, f"the client received {json.dumps(result)[:300]}")
    return "exec and wait listed, a cell run"


def result_of(call):
    """Returns the structured result of a call, after checking that the text is the same."""
    structured = call["structuredContent"]
    expect(json.loads(call["content"][0]["text"]) == structured, "text and structured content differ")
    return structured


def inspector(workspace, target):
    """`target` is the server for the Inspector: its options, and the arguments after `--`."""
    options, command = target
    start = "@modelcontextprotocol/inspector/" + bin_of("inspector", "@modelcontextprotocol/inspector", "mcp-inspector")
    ask = lambda *method: json.loads(workspace.node("inspector", start, "--cli", *options, *method, *command))
    listed = ask("--method", "tools/list", "--strict")
    called = ask("--method", "tools/call", "--tool-name", "exec", "--tool-arg", f"code={CELL}")
    return checked([tool["name"] for tool in listed["tools"]], result_of(called))


def inspector_stdio(workspace):
    return inspector(workspace, ([], ["--", *workspace.stdio(configured(workspace))]))


def inspector_http(workspace):
    address = workspace.serve(configured(workspace), TOKEN)
    return inspector(workspace, ([address, "--transport", "http", "--header", f"Authorization: Bearer {TOKEN}"], []))


def mcporter(workspace, entry):
    config = workspace.folder / "mcporter.json"
    config.write_text(json.dumps({"mcpServers": {"cellmate": entry}, "imports": []}))
    start = "mcporter/" + bin_of("mcporter", "mcporter", "mcporter")
    listed = json.loads(workspace.node("mcporter", start, "--config", config, "list", "cellmate", "--json"))
    call = ["call", "cellmate.exec", "--args", json.dumps({"code": CELL}), "--output", "json"]
    called = json.loads(workspace.node("mcporter", start, "--config", config, *call))
    return checked([tool["name"] for tool in listed["tools"]], called)


def mcporter_stdio(workspace):
    command, *arguments = workspace.stdio(configured(workspace))
    return mcporter(workspace, {"command": command, "args": arguments})


def mcporter_http(workspace):
    address = workspace.serve(configured(workspace), TOKEN)
    return mcporter(workspace, {"baseUrl": address, "headers": {"Authorization": f"Bearer {TOKEN}"}})


def agent(workspace, prefix, run, cell=CELL):
    """Checks an agent with a scripted model: `run` starts the agent with the model's address and returns its output and
    the configuration of `cellmate`."""
    with Model(lambda name: name == f"{prefix}exec", {"code": cell}, LAST_MESSAGE) as model:
        try:
            printed, config = run(model.address)
        finally:
            workspace.say(json.dumps(model.requests, indent=1))
    expect(LAST_MESSAGE in printed, f"the model's last message was not printed: {printed[-300:]}")
    ours = {name.removeprefix(prefix): tool for name, tool in model.shown().items() if name.startswith(prefix)}
    results = [result for result in model.results() if ANSWER in result]
    expect(results, f"no result contains the answer: {model.results()}")
    # Some agents put a line before the tool's result.
    result = results[-1]
    note = checked(ours, json.loads(result[result.index("{"):]))
    return f"{note}; {uncut(workspace, config, ours)}"


def uncut(workspace, config, shown):
    """Checks that the agent sent the descriptions of both tools to its model as `cellmate mcp` gives them."""
    listed = workspace.listed(config, env=workspace.environment(**NEEDED))
    for tool in listed:
        sent, ours = shown[tool["name"]]["description"], tool["description"]
        expect(sent == ours, f"`{tool['name']}` has {len(ours)} characters of description; the model received {len(sent)}: {sent[-100:]}")
    return " and ".join(f"{len(tool['description'])}" for tool in listed) + " characters of description uncut"


def run_claude_code(workspace, address, **more):
    quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
    env = workspace.environment(ANTHROPIC_BASE_URL=address, ANTHROPIC_API_KEY="none", **quiet, **more)
    words = ["-p", "Run the cell.", "--allowedTools", "mcp__cellmate__exec", "--output-format", "json"]
    return workspace.run(PEERS / "claude-code/node_modules/.bin/claude", *words, env=env)


def claude_code(workspace):
    config = connected(workspace, "claude-code")
    return agent(workspace, "mcp__cellmate__", lambda address: (run_claude_code(workspace, address, **NEEDED), config), NEEDED_CELL)


CODEX = """model = "scripted"
model_provider = "loopback"

[model_providers.loopback]
name = "loopback"
base_url = "{address}/v1"
wire_api = "responses"
env_key = "LOOPBACK_KEY"
"""


def run_codex(workspace, **more):
    words = ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--json", "Run the cell."]
    return workspace.run(PEERS / "codex/node_modules/.bin/codex", *words, env=workspace.environment(LOOPBACK_KEY="none", **more))


def codex(workspace):
    def run(address):
        folder = workspace.home / ".codex"
        folder.mkdir()
        (folder / "config.toml").write_text(CODEX.replace("{address}", address))
        config = connected(workspace, "codex")
        return run_codex(workspace, **NEEDED), config

    return agent(workspace, "mcp__cellmate::", run, NEEDED_CELL)


def opencode(workspace):
    def run(address):
        folder = workspace.home / ".config/opencode"
        folder.mkdir(parents=True)
        options = {"baseURL": f"{address}/v1", "apiKey": "none"}
        provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"scripted": {"tool_call": True}}}
        settings = {"provider": {"loopback": provider}, "autoupdate": False, "share": "disabled"}
        (folder / "opencode.json").write_text(json.dumps(settings, indent=2))
        config = connected(workspace, "opencode")
        words = ["run", "-m", "loopback/scripted", "Run the cell."]
        return workspace.run(PEERS / "opencode/node_modules/.bin/opencode", *words, env=workspace.environment(**NEEDED)), config

    return agent(workspace, "cellmate_", run, NEEDED_CELL)


def python_mcp_stdio(workspace):
    drive = [PEERS / "python-mcp/bin/python", workspace.drives / "mcp_client.py", CELL, *workspace.stdio(configured(workspace))]
    seen = json.loads(workspace.run(*drive))
    return checked(seen["tools"], seen["result"])


def python_mcp_http(workspace):
    address = workspace.serve(configured(workspace), TOKEN)
    drive = [PEERS / "python-mcp/bin/python", workspace.drives / "mcp_client.py", CELL, address]
    seen = json.loads(workspace.run(*drive, env=workspace.environment(TOKEN=TOKEN)))
    return checked(seen["tools"], seen["result"])


def python_mcp_forms(workspace):
    """Five parallel calls of a tool that needs approval, and "approve always" in the first form: there is no second one."""
    config = workspace.config({"everything": everything(workspace)}, ask="changes")
    drive = [PEERS / "python-mcp/bin/python", workspace.drives / "mcp_client.py", FIVE, *workspace.stdio(config)]
    seen = json.loads(workspace.run(*drive, env=workspace.environment(FORM_ANSWER="approve always")))
    expect(seen["result"].get("value") == 5, f"the client received {json.dumps(seen['result'])[:300]}")
    expect(seen["forms"] == 1, f"{seen['forms']} forms were shown")
    return "five calls, one form"


def terminal_always(workspace):
    """Five parallel calls of `cellmate exec` in a terminal, and "always" to the first question: there is no second one."""
    config = workspace.config({"everything": everything(workspace)}, ask="changes")
    command = f"{shlex.quote(workspace.cellmate)} exec --config {shlex.quote(str(config))} -e {shlex.quote(FIVE)}"
    with Terminal(workspace, workspace.environment(), workspace.work) as terminal:
        for answers in ([(CALL, "always")], []):
            shown, _ = terminal.run(command, answers, TERMINAL_SECONDS)
            expect(terminal.exit == 0, f"exit code {terminal.exit}: {shown[-300:]}")
            expect("5 tool calls" in shown and shown.count(CALL) == len(answers), f"the terminal shows {shown[-400:]}")
    return "five calls, one question; none in the next run"


def langchain(workspace):
    drive = [PEERS / "python-langchain/bin/python", workspace.drives / "langchain_client.py", CELL, *workspace.stdio(configured(workspace))]
    seen = json.loads(workspace.run(*drive))
    return checked(seen["tools"], seen["result"])


def pydantic_ai(workspace):
    def run(address):
        drive = [PEERS / "python-pydantic/bin/python", workspace.drives / "pydantic_client.py", f"{address}/v1"]
        config = configured(workspace)
        return workspace.run(*drive, *workspace.stdio(config)), config

    return agent(workspace, "", run)


def ai_sdk(workspace, config, target, **more):
    def run(address):
        # Node looks for packages beside the script, so the script is copied there.
        script = PEERS / "ai-sdk/ai_sdk.mjs"
        script.write_text((workspace.drives / "ai_sdk.mjs").read_text())
        return workspace.node("ai-sdk", "../ai_sdk.mjs", f"{address}/v1", *target, env=workspace.environment(**more)), config

    return agent(workspace, "", run)


def ai_sdk_stdio(workspace):
    config = configured(workspace)
    return ai_sdk(workspace, config, workspace.stdio(config))


def ai_sdk_http(workspace):
    config = configured(workspace)
    return ai_sdk(workspace, config, [workspace.serve(config, TOKEN)], TOKEN=TOKEN)


def bin_of(bundle, package, name):
    """Returns the script that a package installs under a name."""
    described = json.loads((PEERS / bundle / "node_modules" / package / "package.json").read_text())["bin"]
    return os.path.normpath(described if isinstance(described, str) else described[name])


# Name: bundle, the package whose version is printed, the check.
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
    "python-mcp/forms": ("python-mcp", "mcp", python_mcp_forms),
    "terminal/always": ("npm", "@modelcontextprotocol/server-everything", terminal_always),
    "ai-sdk/stdio": ("ai-sdk", "@ai-sdk/mcp", ai_sdk_stdio),
    "ai-sdk/http": ("ai-sdk", "@ai-sdk/mcp", ai_sdk_http),
    "langchain": ("python-langchain", "langchain-mcp-adapters", langchain),
    "pydantic-ai": ("python-pydantic", "pydantic-ai-slim[mcp,openai]", pydantic_ai),
}
