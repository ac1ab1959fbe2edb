"""A place for one check: a home of its own, commands whose every word is kept, and a server to talk to."""

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
# Nothing listens there: whatever wants to leave this machine while a check runs fails at once.
NOWHERE = "http://127.0.0.1:9"


class Failed(Exception):
    """What was seen in place of what was wanted."""


def expect(holds, message):
    if not holds:
        raise Failed(message)


class Room:
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
        """No variable of whoever runs the checks but those that programs are found by."""
        path = f"{NODE.parent}{os.pathsep}{os.environ['PATH']}"
        plain = {"PATH": path, "HOME": str(self.home), "TMPDIR": str(self.folder), "LANG": "C.UTF-8", "TERM": "dumb"}
        proxies = {name: NOWHERE for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")}
        loopback = {name: "127.0.0.1,localhost" for name in ("NO_PROXY", "no_proxy")}
        return {**plain, **proxies, **loopback, **more}

    def say(self, text):
        self.log.write(f"{text}\n")
        self.log.flush()

    def run(self, *command, env=None, seconds=COMMAND_SECONDS, may_fail=False):
        """Runs to the end and gives back what it printed. A failure is a failure of the check unless it may be one."""
        command = [str(word) for word in command]
        self.say(f"$ {' '.join(command)}")
        process = self.start(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired as error:
            end(process)
            out, err = process.communicate()
            self.say(f"{out}\n{err}\n(killed)")
            raise Failed(f"{Path(command[0]).name} was not done within {seconds} s") from error
        self.say(f"{out}\n--- standard error\n{err}\n--- exit {process.returncode}")
        self.exit, self.err = process.returncode, err
        if process.returncode and not may_fail:
            last = next((line for line in reversed((err or out).splitlines()) if line.strip()), "nothing was said")
            raise Failed(f"{Path(command[0]).name} ended with {process.returncode}: {last.strip()[:200]}")
        return out

    def node(self, room, script, *words, **more):
        return self.run(NODE, PEERS / room / "node_modules" / script, *words, **more)

    def start(self, command, env=None, **more):
        more = {"stdin": subprocess.DEVNULL, "text": True, "cwd": self.work, "errors": "replace", **more}
        # A group of its own, so that what it starts ends with it.
        process = subprocess.Popen(command, env=env or self.environment(), start_new_session=True, **more)
        self.processes.append(process)
        return process

    def config(self, servers, name="cellmate.json5"):
        """A configuration of ours in which nobody is asked: nobody is there."""
        path = self.folder / name
        path.write_text(json.dumps({"mcpServers": servers, "approvals": {"ask": "never"}}, indent=2))
        return path

    def stdio(self, config):
        """The command that starts our server on standard streams."""
        return [self.cellmate, "mcp", "--config", str(config), "--state-dir", str(self.folder / "state")]

    def serve(self, config, token):
        """Our server over HTTP, behind a token; its address."""
        said = self.folder / "said"
        command = [self.cellmate, "mcp", "--http", "127.0.0.1:0", "--config", config, "--state-dir", self.folder / "state"]
        with open(said, "w") as stderr:
            process = self.start([str(word) for word in command], env=self.environment(CELLMATE_TOKEN=token), stderr=stderr)
        address = self.wait_for(process, said, r"serving MCP at (http[^;]*);")
        self.say(f"serving at {address}")
        return address

    def wait_for(self, process, said, pattern):
        """The first group of what a started process says of itself."""
        until = time.monotonic() + SERVING_SECONDS
        while time.monotonic() < until and process.poll() is None:
            found = re.search(pattern, said.read_text(errors="replace"))
            if found:
                return found.group(1)
            time.sleep(0.1)
        raise Failed(f"it did not come up: {said.read_text(errors='replace')[-300:]}")


def end(process):
    """The process and all that it started."""
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
