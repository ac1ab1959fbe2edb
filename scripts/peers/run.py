"""Runs the checks that the arguments name, or all of them, and prints a table."""

import os
import re
import subprocess
import sys
import time
import traceback
from pathlib import Path

import conformance
import embedding_guide
import gateway_guide
import schema
import start
import upstream
from clients import CLIENTS
from compaction import compaction
from gateway import GATEWAY
from images import IMAGES
from pins import LOGS, PEERS, ROOT, Missing, environment, install, version
from room import Failed, Workspace, expect
from surfaces import SURFACES
from tool_search import tool_search

RUST_SECONDS = 3000


def rust(package, name):
    """A check: Rust tests of a package that are ignored otherwise, because they need third-party servers or minutes."""

    def check(workspace):
        command = ["cargo", "test", "--locked", "--package", package, "--", "--ignored", "--nocapture", name]
        env = {**environment(), "CELLMATE_PEERS": str(PEERS)}
        done = subprocess.run(command, cwd=ROOT, env=env, stdout=workspace.log, stderr=workspace.log, timeout=RUST_SECONDS)
        passed = sum(int(count) for count in re.findall(r"test result: ok\. (\d+) passed", Path(workspace.log.name).read_text()))
        expect(done.returncode == 0 and passed > 0, f"{passed} tests pass; see {os.path.relpath(workspace.log.name)}")
        return f"{passed} tests pass"

    return check


def checks():
    """Yields for each check: its name, the bundles that it needs, the version to print, the check function."""
    servers = {bundle for bundle, *_ in upstream.SERVERS.values()}
    for name, (bundle, package, check) in {**CLIENTS, **IMAGES, **SURFACES}.items():
        yield f"client/{name}", ["npm", bundle], version(bundle, package), check
    yield "client/tool-search", ["npm", "python-mcp", "python-sdks"], version("python-mcp", "mcp"), tool_search
    for name, (bundle, package, check) in GATEWAY.items():
        yield f"gateway/{name}", [bundle], version(bundle, package), check
    yield "gateway/guide", [], "-", gateway_guide.guide
    for name, (bundle, package, *_) in upstream.SERVERS.items():
        yield f"server/{name}", [bundle], version(bundle, package), upstream.one(name)
    yield "server/all-in-one-cell", [*sorted(servers), "python-broken", "python-mcp"], "as above", upstream.across
    yield "embedding", [], "-", embedding_guide.guide
    yield "start", ["python-uv", "python-mcp"], "newest", start.guide
    for revision in ("2025-11-25", "2026-07-28"):
        pin = version("conformance", "@modelcontextprotocol/conformance")
        yield f"conformance/{revision}", ["conformance"], pin, conformance.client(revision)
    pin = version("claude-code", "@anthropic-ai/claude-code")
    yield "gateway/compaction", ["claude-code"], pin, compaction
    yield "gateway/openapi", ["python-schemathesis"], version("python-schemathesis", "schemathesis"), schema.openapi
    yield "gateway/long-cells", [], "-", rust("cellmate-gateway", "a_cell_that_takes_90_s")
    yield "rust", ["npm", "python"], "as above", rust("cellmate-mcp", "peer")


def one(name, bundles, check, cellmate):
    began = time.monotonic()
    try:
        for bundle in ["node", *bundles]:
            install(bundle)
        with Workspace(name, cellmate) as workspace:
            passed, note = True, check(workspace)
    except (Failed, Missing) as error:
        passed, note = False, str(error)
    except Exception:
        (LOGS / f"{name.replace('/', '-')}.trace").write_text(traceback.format_exc())
        passed, note = False, traceback.format_exc().splitlines()[-1]
    return passed, time.monotonic() - began, " ".join(note.split())


def wanted(name, asked):
    """Whether an argument is the name of the check, a part of it between slashes, or the beginning of a part."""
    return not asked or any(name == word or name.startswith(f"{word}/") or f"/{word}" in f"/{name}" for word in asked)


def main(cellmate, *asked):
    LOGS.mkdir(parents=True, exist_ok=True)
    chosen = [check for check in checks() if wanted(check[0], asked)]
    if not chosen:
        sys.exit(f"test-peers: no check is called {' '.join(asked)}; available checks:\n" + "\n".join(name for name, *_ in checks()))
    failures = 0
    line = "{:<28} {:<14} {:<5} {:>6}  {}"
    print(line.format("check", "version", "", "", "result"))
    for name, bundles, pin, check in chosen:
        passed, took, note = one(name, bundles, check, Path(cellmate).resolve())
        failures += not passed
        print(line.format(name, pin, "pass" if passed else "FAIL", f"{took:.1f} s", note), flush=True)
    print(f"\n{len(chosen) - failures} pass, {failures} fail; logs are in {os.path.relpath(LOGS)}")
    sys.exit(1 if failures else 0)


main(*sys.argv[1:])
