"""Checks with third-party SDKs and agents that use a gateway: a cell calls their own tools, in two rounds."""

import json

from model import Model
from pins import NODE, PEERS
from room import expect

CODE = """const found = await Promise.all([tools.look({ n: 1 }), tools.look({ n: 2 })]);
const last = await tools.look({ n: 3 });
return JSON.stringify([...found, last]);"""
LAST_MESSAGE = "All three were seen."
TOKEN = "a-token-of-the-peers-checks"
# The API that the provider speaks, which is not always the client's.
PROVIDER_APIS = ("openai-completions", "openai-responses", "anthropic-messages")


def script(workspace, bundle, name):
    """Returns the command of a driver. A module of JavaScript finds packages only next to itself."""
    if not name.endswith(".mjs"):
        return [PEERS / bundle / "bin/python", workspace.drives / name]
    copy = PEERS / bundle / name
    copy.write_text((workspace.drives / name).read_text())
    return [NODE, copy]


def client(bundle, name):
    """A check: a driver makes every kind of turn that its SDK can make, with each API of providers."""

    def check(workspace):
        turns = 0
        for api in PROVIDER_APIS:
            with Model(lambda tool: tool == "exec", {"code": CODE}, LAST_MESSAGE) as model:
                address = serve(workspace, model.address, api)
                seen = json.loads(workspace.run(*script(workspace, bundle, name), address, TOKEN))
                turns += len(seen)
                for turn in seen:
                    looked = sorted(number for numbers in turn["rounds"] for number in numbers)
                    expect(looked == [1, 2, 3] and turn["text"] == LAST_MESSAGE, f"{api}: {turn}")
                expect(all(sorted(request["tools"]) == ["exec", "wait"] for request in model.requests), "the model was shown other tools")
                expect(len(model.requests) == 2 * len(seen), f"{len(seen)} turns asked the model {len(model.requests)} times")
        return f"{turns} turns with tools of the client in two rounds"

    return check


def serve(workspace, model, api, name=None, agents=None, **settings):
    """Starts a gateway with one provider, by default with code mode, and returns its address. Its configuration and its
    state are called `name`, or like the API of the provider."""
    name = name or api
    config, stderr_path = workspace.folder / f"{name}.json5", workspace.folder / f"{name}.stderr"
    provider = {"baseUrl": f"{model}/v1", "api": api, "apiKey": "none"}
    own = {"models": {"providers": {"scripted": provider}}, "agents": {"defaults": {"model": "scripted/one"}, **(agents or {})}}
    config.write_text(json.dumps({"tools": {"codeMode": True}, **settings, **own}))
    command = [workspace.cellmate, "gateway", "--listen", "127.0.0.1:0", "--config", str(config), "--state-dir", str(workspace.folder / name)]
    with open(stderr_path, "w") as stderr:
        process = workspace.start(command, env=workspace.environment(CELLMATE_TOKEN=TOKEN), stderr=stderr)
    return workspace.wait_for(process, stderr_path, r"serving agents at (http\S*)/v1 ")


def connect(workspace, agent, address):
    """Lets an agent use a gateway, as a user does."""
    token_file = workspace.folder / "token"
    token_file.write_text(TOKEN)
    words = ["connect", agent, "--gateway", address, "--token-file", token_file, "--yes"]
    expect(address in workspace.run(workspace.cellmate, *words), f"`connect {agent}` does not show the address")


NOTE = "A note for the peers checks."
READ_CELL = """const read = await tools.Read({ file_path: %s });
return typeof read === "string" ? read : JSON.stringify(read);"""


def claude_code(workspace):
    """A check: Claude Code's own tool, called from a cell, reads a file."""
    note = workspace.work / "note.txt"
    note.write_text(NOTE)
    with Model(lambda tool: tool == "exec", {"code": READ_CELL % json.dumps(str(note))}, LAST_MESSAGE) as model:
        address = serve(workspace, model.address, "anthropic-messages")
        connect(workspace, "claude-code", address)
        env = workspace.environment(CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1", DISABLE_AUTOUPDATER="1")
        words = ["-p", "What does note.txt say?", "--allowedTools", "Read"]
        said = workspace.run(PEERS / "claude-code/node_modules/.bin/claude", *words, env=env)
        expect(LAST_MESSAGE in said, f"Claude Code printed {said[-300:]}")
        expect(any(NOTE in result for result in model.results()), f"the cell returned {model.results()}")
        shown = sorted(model.shown())
        expect(shown == ["exec", "wait"], f"the model was shown {shown}")
    return "a cell reads a file with Claude Code's own tool"


SHELL_CELL = "return JSON.stringify(await tools.exec_command({ cmd: %s }));"


def codex(workspace):
    """A check: Codex's own tool, called from a cell, runs a command."""
    note = workspace.work / "note.txt"
    note.write_text(NOTE)
    with Model(lambda tool: tool == "exec", {"code": SHELL_CELL % json.dumps(f"cat {note}")}, LAST_MESSAGE) as model:
        address = serve(workspace, model.address, "openai-responses")
        connect(workspace, "codex", address)
        words = ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--json", "What does note.txt say?"]
        said = workspace.run(PEERS / "codex/node_modules/.bin/codex", *words, env=workspace.environment(CELLMATE_TOKEN=TOKEN))
        expect(LAST_MESSAGE in said, f"Codex printed {said[-300:]}")
        expect(any(NOTE in result for result in model.results()), f"the cell returned {model.results()}")
        shown = sorted(model.shown())
        expect(shown == ["exec", "wait"], f"the model was shown {shown}")
    return "a cell runs a command with Codex's own tool"


OPENCODE_CELL = "return JSON.stringify(await tools.read({ filePath: %s }));"


def opencode(workspace):
    """A check: opencode's own tool, called from a cell, reads a file."""
    note = workspace.work / "note.txt"
    note.write_text(NOTE)
    with Model(lambda tool: tool == "exec", {"code": OPENCODE_CELL % json.dumps(str(note))}, LAST_MESSAGE) as model:
        address = serve(workspace, model.address, "openai-completions")
        connect(workspace, "opencode", address)
        said = workspace.run(PEERS / "opencode/node_modules/.bin/opencode", "run", "What does note.txt say?")
        expect(LAST_MESSAGE in said, f"opencode printed {said[-300:]}")
        expect(any(NOTE in result for result in model.results()), f"the cell returned {model.results()}")
    return "a cell reads a file with opencode's own tool"


# By name: the bundle, the package whose version is printed, the check.
GATEWAY = {
    "sdks-python": ("python-sdks", "openai", client("python-sdks", "python_sdks.py")),
    "sdks-javascript": ("sdks", "openai", client("sdks", "sdks.mjs")),
    "agents-python": ("python-agents", "openai-agents", client("python-agents", "python_agents.py")),
    "agents-javascript": ("agents-javascript", "@openai/agents", client("agents-javascript", "agents.mjs")),
    "ai-sdk": ("ai-sdk-gateway", "ai", client("ai-sdk-gateway", "ai_sdk_gateway.mjs")),
    "langchain": ("python-langchain-models", "langchain", client("python-langchain-models", "langchain_models.py")),
    "langchain-javascript": ("langchain-javascript", "langchain", client("langchain-javascript", "langchain.mjs")),
    "claude-code": ("claude-code", "@anthropic-ai/claude-code", claude_code),
    "codex": ("codex", "@openai/codex", codex),
    "opencode": ("opencode", "opencode-ai", opencode),
    "pydantic-ai": ("python-pydantic-gateway", "pydantic-ai-slim[openai,anthropic]", client("python-pydantic-gateway", "pydantic_gateway.py")),
}
