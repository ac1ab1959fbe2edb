"""The check that Claude Code can compact its conversation while a cell waits for one of Claude Code's tools."""

import json
import shlex

from gateway import LAST_MESSAGE, NOTE, connect, serve
from model import Model
from pins import PEERS
from room import expect
from terminal import Terminal

SECONDS = 60
CELL = """const read = await tools.Read({ file_path: %s });
const shown = await tools.Bash({ command: "touch %s", description: "Marks that it was run" });
return JSON.stringify([read, shown]);"""


def compaction(workspace):
    """A check: `/compact` while the call of a cell is interrupted, then another question."""
    note, mark = workspace.work / "note.txt", workspace.work / "mark"
    note.write_text(NOTE)
    state = {"hasCompletedOnboarding": True, "projects": {str(workspace.work): {"hasTrustDialogAccepted": True}}}
    (workspace.home / ".claude.json").write_text(json.dumps(state))
    with Model(lambda tool: tool == "exec", {"code": CELL % (json.dumps(str(note)), mark)}, LAST_MESSAGE) as model:
        address = serve(workspace, model.address, "anthropic-messages")
        connect(workspace, "claude-code", address)
        env = workspace.environment(CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1", DISABLE_AUTOUPDATER="1", TERM="xterm-256color")
        with Terminal(workspace, env, workspace.work) as terminal:
            terminal.type(f"{shlex.quote(str(PEERS / 'claude-code/node_modules/.bin/claude'))} --permission-mode default --allowedTools Read")
            terminal.shows("shortcuts", SECONDS)
            terminal.type("What does note.txt say?")
            # The cell waits for the second call, which needs the user's permission.
            terminal.shows("Do you want to proceed?", SECONDS)
            expect(len(model.requests) == 1 and not mark.exists(), f"the model was asked {len(model.requests)} times")
            terminal.press("Escape")
            terminal.shows("Interrupted", SECONDS)
            terminal.type("/compact")
            terminal.shows("Compacted", SECONDS)
            terminal.type("And now?")
            terminal.shows(f"● {LAST_MESSAGE}", SECONDS)
        for request in model.requests:
            workspace.say(json.dumps({"tools": sorted(request["tools"]), "results": request["results"]}))
        waiting = any('"state":"client"' in result for result in model.results())
        expect(waiting, "the model that compacted the conversation was not told that a cell waits")
        expect(not mark.exists(), "a call was carried out that the user had not permitted")
        shown = sorted(model.shown())
        expect(shown == ["exec", "wait"], f"the model was shown {shown}")
    return "a conversation is compacted in the middle of a cell, and continues"
