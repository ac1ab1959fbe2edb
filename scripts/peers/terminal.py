"""A shell in a real terminal (tmux), for checks of commands that ask questions."""

import re
import subprocess
import time

from room import Failed

COLUMNS, LINES, HISTORY_LINES = 160, 50, 20_000
POLL_SECONDS = 0.05
# What cellmate asks before a call that needs approval.
CALL = "call it? [y]es, [a]lways, [N]o:"
PROMPT = re.compile(r"\[exit (\d+)\]\$\s*\Z")


class Terminal:
    """Types commands into one shell. `exit` is the code of the last command."""

    def __init__(self, workspace, env, cwd):
        self.workspace, self.exit = workspace, 0
        self.env = {**env, "PS1": r"[exit $?]$ ", "HISTFILE": ""}
        # A server of its own, so that neither the user's sessions nor their settings matter.
        self.base = ["tmux", "-S", str(workspace.folder / "tmux"), "-f", "/dev/null"]
        shell = ["bash", "--norc", "--noprofile"]
        size = ["-x", str(COLUMNS), "-y", str(LINES)]
        history = ["start-server", ";", "set-option", "-g", "history-limit", str(HISTORY_LINES), ";"]
        self.tmux(*history, "new-session", "-d", "-c", str(cwd), *size, *shell)

    def __enter__(self):
        self.wait(10)
        return self

    def __exit__(self, *_):
        self.tmux("kill-server")

    def tmux(self, *words):
        done = subprocess.run([*self.base, *words], env=self.env, capture_output=True, text=True, errors="replace", timeout=10)
        if done.returncode:
            raise Failed(f"tmux {words[0]} failed: {done.stderr.strip()}")
        return done.stdout

    def screen(self):
        """Returns what the terminal shows and what scrolled out of it, since the last command was typed."""
        return self.tmux("capture-pane", "-p", "-J", "-S", "-").rstrip()

    def run(self, command, answers, seconds):
        """Types a command, answers its questions, and returns what the terminal showed and the seconds that it took.

        `answers` are pairs: text that a question contains, and the line to type. They are given in this order.
        """
        self.tmux("send-keys", "-R")
        self.tmux("clear-history")
        began = time.monotonic()
        self.type(command)
        for question, answer in answers:
            self.wait(seconds, question)
            self.type(answer)
        shown = self.wait(seconds)
        took = time.monotonic() - began
        self.workspace.say(f"{shown}\n--- {took:.1f} s\n")
        return shown, took

    def type(self, line):
        self.tmux("send-keys", "-l", line)
        self.tmux("send-keys", "Enter")

    def press(self, key):
        self.tmux("send-keys", key)

    def shows(self, text, seconds):
        """Waits until the terminal shows a text."""
        until = time.monotonic() + seconds
        while text not in self.screen():
            if time.monotonic() > until:
                self.workspace.say(f"{self.screen()}\n--- no `{text}`")
                raise Failed(f"`{text}` did not appear; the terminal shows: {self.screen()[-400:]}")
            time.sleep(POLL_SECONDS)
        self.workspace.say(f"{self.screen()}\n--- `{text}`")

    def wait(self, seconds, question=None):
        """Waits until the terminal's last line contains the question, or until the shell is ready for the next command."""
        until = time.monotonic() + seconds
        while True:
            shown = self.screen()
            ready = PROMPT.search(shown)
            if question is None and ready:
                self.exit = int(ready.group(1))
                return shown
            if question is not None and question in "".join(shown.splitlines()[-1:]):
                return shown
            if ready or time.monotonic() > until:
                missing = f"the question `{question}` did not appear" if question else f"no end within {seconds} s"
                self.workspace.say(f"{shown}\n--- {missing}")
                raise Failed(f"{missing}; the terminal shows: {shown[-400:]}")
            time.sleep(POLL_SECONDS)
