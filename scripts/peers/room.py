"""The workspace of one check: a temporary home folder, a log of every command, and Cellmate's server."""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from pins import LOGS, NODE, PEERS

COMMAND_SECONDS = 120
SERVING_SECONDS = 30
# Nothing listens there, so every connection to another machine fails immediately while a check runs.
NOWHERE = "http://127.0.0.1:9"


class Failed(Exception):
    """A check failed; the message says what was observed instead of what was expected."""


def expect(holds, message):
    if not holds:
        raise Failed(message)


class Workspace:
    def __init__(self, name, cellmate):
        self.name, self.cellmate = name, str(cellmate)
        self.folder = Path(tempfile.mkdtemp(prefix="cellmate-peers-"))
        self.home = self.folder / "home"
        self.work = self.folder / "work"
        self.home.mkdir()
        self.work.mkdir()
        self.log = open(LOGS / f"{name.replace('/', '-')}.log", "w", encoding="utf-8", errors="replace")
        self.processes, self.exit, self.err = [], None, ""
        self.drives = Path(__file__).resolve().parent / "drive"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            end(process)
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def environment(self, **more):
        """A clean environment: of the caller's variables, only PATH is kept."""
        path = f"{NODE.parent}{os.pathsep}{os.environ['PATH']}"
        plain = {"PATH": path, "HOME": str(self.home), "TMPDIR": str(self.folder), "LANG": "C.UTF-8", "TERM": "dumb"}
        proxies = {name: NOWHERE for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")}
        loopback = {name: "127.0.0.1,localhost" for name in ("NO_PROXY", "no_proxy")}
        return {**plain, **proxies, **loopback, **more}

    def say(self, text):
        self.log.write(f"{text}\n")
        self.log.flush()

    def run(self, *command, env=None, seconds=COMMAND_SECONDS, may_fail=False):
        """Runs a command to its end and returns its output. A non-zero exit fails the check, unless `may_fail`."""
        command = [str(word) for word in command]
        self.say(f"$ {' '.join(command)}")
        process = self.start(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired as error:
            end(process)
            out, err = process.communicate()
            self.say(f"{out}\n{err}\n(killed)")
            raise Failed(f"{Path(command[0]).name} did not finish within {seconds} s") from error
        self.say(f"{out}\n--- standard error\n{err}\n--- exit {process.returncode}")
        self.exit, self.err = process.returncode, err
        if process.returncode and not may_fail:
            last = next((line for line in reversed((err or out).splitlines()) if line.strip()), "no output")
            raise Failed(f"{Path(command[0]).name} exited with {process.returncode}: {last.strip()[:200]}")
        return out

    def node(self, bundle, script, *words, **more):
        return self.run(NODE, PEERS / bundle / "node_modules" / script, *words, **more)

    def start(self, command, env=None, **more):
        more = {"stdin": subprocess.DEVNULL, "text": True, "cwd": self.work, "errors": "replace", **more}
        # A process group, so that its child processes can be ended with it.
        process = subprocess.Popen(command, env=env or self.environment(), start_new_session=True, **more)
        self.processes.append(process)
        return process

    def config(self, servers, name="cellmate.json5", ask="never", tools=None, **more):
        """Writes a Cellmate configuration, by default without approvals, because no user is present."""
        path = self.folder / name
        settings = {"mcpServers": servers, "approvals": {"ask": ask}, **({"tools": tools} if tools else {}), **more}
        path.write_text(json.dumps(settings, indent=2))
        return path

    def stdio(self, config):
        """The command that starts Cellmate's server on standard streams."""
        return [self.cellmate, "mcp", "--config", str(config)]

    def listed(self, config, env=None):
        """Returns the tools that `cellmate mcp` lists."""
        process = self.start([self.cellmate, "mcp", "--config", str(config)], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

        def ask(number, method, params):
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            print(json.dumps(message), file=process.stdin, flush=True)
            return next(answer for answer in map(json.loads, process.stdout) if answer.get("id") == number)["result"]

        about = {"name": "peers", "version": "1"}
        ask(0, "initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about})
        tools = ask(1, "tools/list", {})["tools"]
        end(process)
        return tools

    def serve(self, config, token):
        """Starts Cellmate's server over HTTP with a token, and returns its address."""
        stderr_path = self.folder / "stderr"
        command = [self.cellmate, "mcp", "--http", "127.0.0.1:0", "--config", config]
        with open(stderr_path, "w") as stderr:
            process = self.start([str(word) for word in command], env=self.environment(CELLMATE_TOKEN=token), stderr=stderr)
        address = self.wait_for(process, stderr_path, r"serving MCP at (http[^;]*);")
        self.say(f"serving at {address}")
        return address

    def wait_for(self, process, stderr_path, pattern):
        """Waits until the process has written a line that matches, and returns the first group."""
        until = time.monotonic() + SERVING_SECONDS
        while time.monotonic() < until and process.poll() is None:
            found = re.search(pattern, stderr_path.read_text(errors="replace"))
            if found:
                return found.group(1)
            time.sleep(0.1)
        raise Failed(f"the server did not start: {stderr_path.read_text(errors='replace')[-300:]}")


def end(process):
    """Ends a process and its child processes."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
