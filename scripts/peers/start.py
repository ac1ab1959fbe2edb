"""The check that executes docs/guide/start.md: a user types its commands into a terminal, with a new home folder."""

import json
import os
import re
from pathlib import Path

from pins import NODE, PEERS, ROOT
from room import Failed, expect
from terminal import CALL, Terminal

GUIDE = "docs/guide/start.md"
STEP_SECONDS = 120
# What the guide's title promises.
ALL_SECONDS = 300
# Not run: the binary to test is built already, and it is on the PATH.
INSTALLING = ("make build", "sudo install ")
# Variables that say how this machine reaches the registries. Nothing else of the caller's environment is kept.
NETWORK = re.compile(r"(?i)(https?|all|no)_proxy|.*(CERT|_CA_).*|(npm_config|pip|uv)_.*")

TRUST = ("Believe it, so that calls of these tools need no approval?", "y")
WRITE = ("Write these changes? [y/N]", "y")
# The beginning of each command: the questions that it asks, each with the answer, and a pattern that its output matches.
COMMANDS = {
    "cellmate doctor": ([], r"(?m)^jail +full"),
    "mkdir -p ~/notes": ([], ""),
    "cellmate servers add files ": ([TRUST], r"`files` is trusted"),
    "cellmate servers add time ": ([TRUST], r"`time` is trusted"),
    "cellmate servers list": ([], r"(?ms)^files +ready.*^time +ready"),
    "cellmate servers test": ([], r"(?ms)^ok +files: \d+ tools.*^ok +time: \d+ tools"),
    "mkdir -p ~/.local/share/bash-completion/completions": ([], ""),
    "cellmate completions bash ": ([], ""),
    "cellmate tools list": ([], r"(?ms)^files\.write_file +yes.*^time\.convert_time +no"),
    "cellmate tools show files.list_directory": ([], r"MCP\.files\.listDirectory\("),
    "cellmate tools call files.write_file ": ([(CALL, "y")], r"Successfully wrote"),
    "cellmate tools call files.list_directory ": ([], r"\[FILE\] tea\.txt"),
    "cellmate exec -e ": ([(CALL, "y")], r"Successfully wrote"),
    "cellmate connect claude-code": ([WRITE], r"(?s)\"cellmate\".*\nconnected; .*\nto undo: cellmate disconnect claude-code"),
}


def guide(workspace):
    """Executes every command of the guide, then runs its cell as the connected agent does."""
    text = (ROOT / GUIDE).read_text(encoding="utf-8")
    commands = [line for block in blocks(text, "sh") for line in block.splitlines() if line and not line.startswith(INSTALLING)]
    steps = [(command, expectation(command)) for command in commands]
    unused = [start for start in COMMANDS if not any(command.startswith(start) for command in commands)]
    expect(not unused, f"{GUIDE} has no command that begins with {unused}")
    env = environment(workspace)
    total = 0.0
    with Terminal(workspace, env, workspace.home) as terminal:
        for command, (answers, pattern) in steps:
            shown, took = terminal.run(command, answers, STEP_SECONDS)
            total += took
            print(f"{took:8.1f} s  {command}", flush=True)
            expect(terminal.exit == 0, f"`{command}` exits with {terminal.exit}: {shown[-300:]}")
            expect(re.search(pattern, shown), f"`{command}` does not print {pattern}: {shown[-300:]}")
    completions = workspace.home / ".local/share/bash-completion/completions/cellmate"
    expect("_cellmate" in completions.read_text(), "the completions are not a script")
    expect((workspace.home / "notes/tea.txt").read_text().strip(), "no note was written")
    cells = blocks(text, "js")
    for cell in cells:
        run_connected(workspace, env, cell)
    expect(total <= ALL_SECONDS, f"the commands take {total:.0f} s; {GUIDE} promises {ALL_SECONDS} s")
    return f"{len(steps)} commands in {total:.0f} s; {len(cells)} cell run as the agent does"


def blocks(text, language):
    """Returns the code blocks of a language."""
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", text)


def expectation(command):
    """Returns what is expected of a command; a command that nothing is known about fails the check."""
    # The longest beginning, because one can be the beginning of another.
    start = max((start for start in COMMANDS if command.startswith(start)), key=len, default=None)
    if start is None:
        raise Failed(f"{GUIDE} has a new command; say in scripts/peers/start.py what it prints: {command}")
    return COMMANDS[start]


def environment(workspace):
    """Returns the environment of a new user: `cellmate`, `npx` and `uvx` are on the PATH, and the registries are reachable."""
    folder = workspace.folder / "bin"
    folder.mkdir()
    (folder / "cellmate").symlink_to(workspace.cellmate)
    path = [str(folder), str(NODE.parent), str(PEERS / "python-uv/bin"), os.environ["PATH"]]
    network = {name: value for name, value in os.environ.items() if NETWORK.fullmatch(name)}
    # npm's registry may be configured in a file of the home folder, which this check replaces.
    settings = Path.home() / ".npmrc"
    if settings.is_file():
        network.setdefault("NPM_CONFIG_USERCONFIG", str(settings))
    return {**network, "PATH": os.pathsep.join(path), "HOME": str(workspace.home), "LANG": "C.UTF-8"}


def run_connected(workspace, env, cell):
    """Runs a cell with the command that `connect` wrote into the agent's configuration."""
    entry = json.loads((workspace.home / ".claude.json").read_text())["mcpServers"]["cellmate"]
    drive = [PEERS / "python-mcp/bin/python", workspace.drives / "mcp_client.py", cell, entry["command"], *entry["args"]]
    seen = json.loads(workspace.run(*drive, env={**env, **entry.get("env", {})}))
    expect(seen["tools"] == ["exec", "wait"], f"the agent was shown {seen['tools']}")
    expect(seen["result"].get("status") == "completed", f"the cell did not complete: {json.dumps(seen['result'])[:400]}")
    expect(seen["result"].get("value"), f"the cell returned nothing: {json.dumps(seen['result'])[:400]}")
