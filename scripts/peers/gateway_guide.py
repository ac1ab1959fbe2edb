"""The check that executes docs/guide/gateway.md in one shell, with a scripted model in place of the provider."""

import re
import socket

from model import Model
from pins import ROOT
from room import Failed, expect
from start import blocks

GUIDE = "docs/guide/gateway.md"
PROVIDER, PORT = "https://api.openai.com/v1", "18789"
ANSWER = "Two of them."
MARK = "--- next command"
# The beginning of each command, and a pattern that its output matches.
COMMANDS = {
    "cellmate secrets set OPENAI_API_KEY": r"set `OPENAI_API_KEY`",
    "cellmate config set models.providers.openai ": r"written",
    "cellmate config set agents.defaults.model ": r"written",
    "cellmate config set tools.codeMode.enabled ": r"written",
    "cellmate doctor": r"(?m)^gateway +1 provider of models, 1 agent$",
    "cellmate gateway": r"(?s)model `openclaw` is the agent `local` with `openai/gpt-5.5`.*serving agents at .*/v1",
    "TOKEN=": r"",
    "curl -s http://127.0.0.1:18789/v1/models": r'"id":"openclaw"',
    "curl -s http://127.0.0.1:18789/v1/chat/completions": rf'"content":"{re.escape(ANSWER)}"',
    "cellmate connect claude-code --gateway --dry-run": r'(?s)"apiKeyHelper": "cat .*nothing was written',
    "curl -s http://127.0.0.1:18789/api/v1/sessions": r'"items":\[{"sessionId"',
    # The guide's `ID` is the id of no session.
    "curl -s -X POST http://127.0.0.1:18789/api/v1/sessions/ID/compact": r'"not_found"',
    "cellmate connect codex --gateway --agent ": r"(?s)openclaw/support.*nothing was written",
    "cellmate connect codex --gateway ": r"(?s)\[model_providers\.cellmate\].*connected; set the token",
    "cellmate disconnect codex --gateway ": r"disconnected",
    "cellmate approvals list": r"",
    "curl -s http://127.0.0.1:18789/api/v1/approvals ": r'"items":\[\]',
    # The guide's `ID` is the id of no approval.
    "curl -s -X POST http://127.0.0.1:18789/api/v1/approvals/ID/decision": r'"not_found"',
    "cellmate tokens create crm ": r"\S{32}",
    "cellmate tokens list": r"crm",
}


def guide(workspace):
    """Executes every command of the guide."""
    text = (ROOT / GUIDE).read_text(encoding="utf-8")
    commands = [line for block in blocks(text, "sh") for line in block.splitlines() if line]
    known = [next((start for start in sorted(COMMANDS, key=len, reverse=True) if command.startswith(start)), None) for command in commands]
    if None in known:
        raise Failed(f"{GUIDE} has a new command; say in scripts/peers/gateway_guide.py what it prints: {commands[known.index(None)]}")
    expect(set(known) == set(COMMANDS), f"{GUIDE} has no command that begins with {set(COMMANDS) - set(known)}")
    folder = workspace.folder / "bin"
    folder.mkdir()
    (folder / "cellmate").symlink_to(workspace.cellmate)
    env = workspace.environment()
    env["PATH"] = f"{folder}:{env['PATH']}"
    with Model(lambda tool: False, {}, ANSWER) as model:
        port = free_port()
        lines = [typed(command).replace(PROVIDER, f"{model.address}/v1").replace(PORT, port) for command in commands]
        script = "set -eu\n" + "".join(f"{line}\necho; echo '{MARK}'\n" for line in lines) + "kill %1\nwait\n"
        shown = workspace.run("bash", "-c", f"exec 2>&1\n{script}", env=env).split(MARK)
        for command, start, output in zip(commands, known, shown):
            expect(re.search(COMMANDS[start], output), f"`{command}` does not print {COMMANDS[start]}: {output[-300:]}")
        # Without servers and tools of the client there is nothing for a cell to call, so the model is shown no tools.
        expect(len(model.requests) == 1, f"the model was asked {len(model.requests)} times")
    return f"{len(commands)} commands"


def typed(command):
    """Returns a command as this check runs it: without a terminal, and the gateway in the background."""
    if command.startswith("cellmate secrets set"):
        return f"printf sk-of-the-peers-checks | {command}"
    if command == "cellmate gateway":
        wait = "until grep -q 'serving agents' gateway.log; do kill -0 $!; sleep 0.1; done; cat gateway.log"
        return f"cellmate gateway --listen 127.0.0.1:{PORT} 2> gateway.log &\n{wait}"
    return command


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])
