"""What is installed, at which version, and where under target/peers."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PEERS = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "peers"
LOGS = PEERS / "logs"
NODE = PEERS / "node/node_modules/node/bin/node"
INSTALL_SECONDS = 900

# Python's SDK has two majors that exclude each other, so each Python peer has an environment of its own.
NPM = {
    "node": {"node": "24.21.0"},
    "npm": {
        "@modelcontextprotocol/server-everything": "2026.8.31",
        "@modelcontextprotocol/server-filesystem": "2026.8.31",
        "@modelcontextprotocol/server-memory": "2026.8.31",
        "@modelcontextprotocol/server-sequential-thinking": "2026.8.31",
        "@playwright/mcp": "0.0.83",
    },
    "inspector": {"@modelcontextprotocol/inspector": "2.12.0"},
    "mcporter": {"mcporter": "0.12.3"},
    "claude-code": {"@anthropic-ai/claude-code": "2.1.325"},
    "codex": {"@openai/codex": "0.166.0"},
    "opencode": {"opencode-ai": "1.18.33"},
    "ai-sdk": {"ai": "7.0.169", "@ai-sdk/mcp": "2.0.93", "@ai-sdk/openai-compatible": "3.0.90"},
    "conformance": {"@modelcontextprotocol/conformance": "0.2.0-alpha.12"},
}
PYTHON = {
    "python": {"mcp-server-time": "2026.10.19", "mcp-server-git": "2026.10.19", "mcp-server-fetch": "2026.10.24", "mcp": "2.3.0"},
    "python-sqlite": {"mcp-server-sqlite": "2025.4.25", "mcp": "1.30.0"},
    # The same server with an SDK it does not know: it falls over as it starts, which is what it is here for.
    "python-broken": {"mcp-server-sqlite": "2025.4.25", "mcp": "2.3.0"},
    "python-mcp": {"mcp": "2.3.0"},
    "python-langchain": {"langchain-mcp-adapters": "0.3.2", "mcp": "1.30.0"},
    "python-pydantic": {"pydantic-ai-slim[mcp,openai]": "2.66.0"},
}


class Missing(Exception):
    """A peer could not be installed."""


def version(room, package):
    """The pinned version of a package, as the table says it."""
    return {**NPM, **PYTHON}[room][package]


def install(room):
    """Installs one room unless what is pinned is there already."""
    pins = {**NPM, **PYTHON}[room]
    stamp, wanted = PEERS / room / "installed", json.dumps(pins, sort_keys=True)
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    shutil.rmtree(PEERS / room, ignore_errors=True)
    (PEERS / room).mkdir(parents=True)
    LOGS.mkdir(parents=True, exist_ok=True)
    with open(LOGS / f"install-{room}.log", "wb") as log:
        for command in with_npm(room, pins) if room in NPM else with_pip(room, pins):
            try:
                done = subprocess.run(command, stdout=log, stderr=log, env=environment(), timeout=INSTALL_SECONDS)
            except (OSError, subprocess.TimeoutExpired) as error:
                raise Missing(f"{room} cannot be installed: {error}") from error
            if done.returncode:
                raise Missing(f"{room} cannot be installed; see {log.name}")
    stamp.write_text(wanted)


def with_npm(room, pins):
    packages = [f"{name}@{pin}" for name, pin in pins.items()]
    return [["npm", "install", "--no-audit", "--no-fund", "--prefix", PEERS / room, *packages]]


def with_pip(room, pins):
    packages = [f"{name}=={pin}" for name, pin in pins.items()]
    pip = [PEERS / room / "bin/pip", "install", "--quiet", "--disable-pip-version-check"]
    return [[sys.executable, "-m", "venv", PEERS / room], [*pip, *packages]]


def environment():
    """Ours, with the pinned Node first: npm installs what fits the Node that runs it."""
    return {**os.environ, "PATH": f"{NODE.parent}{os.pathsep}{os.environ['PATH']}"}
