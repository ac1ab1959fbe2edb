"""The protocol's own conformance suite, its scenarios for clients, with our command line as the client."""

import re
import shutil
import sys

from pins import LOGS, ROOT
from room import Failed, expect

SUITE = "@modelcontextprotocol/conformance/dist/index.js"
SUITE_SECONDS = 420
SCENARIO_MS = "60000"


def client(revision):
    """A check: what fails is exactly what spec/conformance says; an expected failure that passes fails it, too."""
    def check(room):
        # The suite splits the command at blanks, and paths may have some.
        start = room.folder / "client"
        start.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{room.drives}/conformance_client.py" "{room.cellmate}" "$@"\n')
        start.chmod(0o755)
        expected = ROOT / f"spec/conformance/client-expected-{revision}.yaml"
        words = ["--command", start, "--suite", "all", "--spec-version", revision, "--timeout", SCENARIO_MS]
        more = ["--expected-failures", expected, "--output-dir", LOGS / f"conformance-{revision}"]
        shutil.rmtree(LOGS / f"conformance-{revision}", ignore_errors=True)
        said = room.node("conformance", SUITE, "client", *words, *more, seconds=SUITE_SECONDS, may_fail=True)
        total = re.search(r"Total: (\d+) passed, (\d+) failed", said)
        expect(total, "the suite gave no total")
        if room.exit:
            raise Failed(f"{total.group(0)}; see the log for what was not expected")
        silent = set(re.findall(r"^\S+ (\S+): 0 passed, 0 failed", said, re.MULTILINE))
        # The suite takes it for a success where nothing came to be checked.
        expect(not silent, f"scenarios without a check: {sorted(silent)}")
        return f"{total.group(1)} checks pass, {total.group(2)} fail as expected"

    return check
