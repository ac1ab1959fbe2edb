"""The client scenarios of MCP's conformance suite, with the `cellmate` CLI as the client."""

import re
import shutil
import sys

from pins import LOGS, ROOT
from room import Failed, expect

SUITE = "@modelcontextprotocol/conformance/dist/index.js"
SUITE_SECONDS = 420
SCENARIO_MS = "60000"


def client(revision):
    """A check: exactly the failures listed in spec/conformance occur; an expected failure that passes is an error, too."""
    def check(workspace):
        # The suite splits the command at spaces, and paths may contain some.
        start = workspace.folder / "client"
        start.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{workspace.drives}/conformance_client.py" "{workspace.cellmate}" "$@"\n')
        start.chmod(0o755)
        expected = ROOT / f"spec/conformance/client-expected-{revision}.yaml"
        words = ["--command", start, "--suite", "all", "--spec-version", revision, "--timeout", SCENARIO_MS]
        more = ["--expected-failures", expected, "--output-dir", LOGS / f"conformance-{revision}"]
        shutil.rmtree(LOGS / f"conformance-{revision}", ignore_errors=True)
        output = workspace.node("conformance", SUITE, "client", *words, *more, seconds=SUITE_SECONDS, may_fail=True)
        total = re.search(r"Total: (\d+) passed, (\d+) failed", output)
        expect(total, "the suite printed no total")
        if workspace.exit:
            raise Failed(f"{total.group(0)}; see the log for the unexpected results")
        silent = set(re.findall(r"^\S+ (\S+): 0 passed, 0 failed", output, re.MULTILINE))
        # The suite counts a scenario without any check as a success.
        expect(not silent, f"scenarios without a check: {sorted(silent)}")
        return f"{total.group(1)} checks pass, {total.group(2)} fail as expected"

    return check
