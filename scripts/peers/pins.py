"""The pinned third-party packages, and how they are installed under target/peers."""

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

# Python's SDK has two majors that exclude each other, so each Python peer has its own virtual environment.
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
    "sdks": {"openai": "7.53.0", "@anthropic-ai/sdk": "1.8.0"},
    "agents-javascript": {"@openai/agents": "0.20.0", "zod": "4.6.7"},
    "langchain-javascript": {
        "langchain": "1.5.14",
        "@langchain/core": "1.2.13",
        "@langchain/openai": "1.6.0",
        "@langchain/anthropic": "1.5.11",
        "zod": "4.6.7",
    },
    "ai-sdk-gateway": {"ai": "7.0.169", "@ai-sdk/openai": "4.0.114", "@ai-sdk/anthropic": "4.0.102", "zod": "4.6.7"},
    "conformance": {"@modelcontextprotocol/conformance": "0.2.0-alpha.12"},
}
PYTHON = {
    "python": {"mcp-server-time": "2026.10.19", "mcp-server-git": "2026.10.19", "mcp-server-fetch": "2026.10.24", "mcp": "2.3.0"},
    "python-sqlite": {"mcp-server-sqlite": "2025.4.25", "mcp": "1.30.0"},
    # A broken server on purpose: with this SDK version, mcp-server-sqlite crashes at start-up.
    "python-broken": {"mcp-server-sqlite": "2025.4.25", "mcp": "2.3.0"},
    "python-mcp": {"mcp": "2.3.0"},
    "python-uv": {"uv": "0.13.7"},
    "python-langchain": {"langchain-mcp-adapters": "0.3.2", "mcp": "1.30.0"},
    "python-pydantic": {"pydantic-ai-slim[mcp,openai]": "2.66.0"},
    "python-sdks": {"openai": "3.49.0", "anthropic": "2.8.0"},
    "python-agents": {"openai-agents": "0.24.0"},
    "python-langchain-models": {"langchain": "1.4.7", "langchain-openai": "1.7.3", "langchain-anthropic": "1.7.7"},
    "python-schemathesis": {"schemathesis": "4.32.5"},
    "python-pydantic-gateway": {"pydantic-ai-slim[openai,anthropic]": "2.66.0"},
}


class Missing(Exception):
    """A peer could not be installed."""


def version(bundle, package):
    """Returns the pinned version of a package."""
    return {**NPM, **PYTHON}[bundle][package]


def install(bundle):
    """Installs one bundle, unless the pinned versions are already installed."""
    pins = {**NPM, **PYTHON}[bundle]
    stamp, wanted = PEERS / bundle / "installed", json.dumps(pins, sort_keys=True)
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    shutil.rmtree(PEERS / bundle, ignore_errors=True)
    (PEERS / bundle).mkdir(parents=True)
    LOGS.mkdir(parents=True, exist_ok=True)
    with open(LOGS / f"install-{bundle}.log", "wb") as log:
        for command in with_npm(bundle, pins) if bundle in NPM else with_pip(bundle, pins):
            try:
                done = subprocess.run(command, stdout=log, stderr=log, env=environment(), timeout=INSTALL_SECONDS)
            except (OSError, subprocess.TimeoutExpired) as error:
                raise Missing(f"{bundle} cannot be installed: {error}") from error
            if done.returncode:
                raise Missing(f"{bundle} cannot be installed; see {log.name}")
    stamp.write_text(wanted)


def with_npm(bundle, pins):
    packages = [f"{name}@{pin}" for name, pin in pins.items()]
    return [["npm", "install", "--no-audit", "--no-fund", "--prefix", PEERS / bundle, *packages]]


def with_pip(bundle, pins):
    packages = [f"{name}=={pin}" for name, pin in pins.items()]
    pip = [PEERS / bundle / "bin/pip", "install", "--quiet", "--disable-pip-version-check"]
    return [[sys.executable, "-m", "venv", PEERS / bundle], [*pip, *packages]]


def environment():
    """The current environment with the pinned Node first: npm installs packages that fit the Node that runs it."""
    return {**os.environ, "PATH": f"{NODE.parent}{os.pathsep}{os.environ['PATH']}"}
