"""The check that follows docs/guide/embedding.md outside the repository, from `cargo new` to the program's output."""

import os
import re
import subprocess

from pins import PEERS, ROOT
from room import expect
from start import blocks

GUIDE = "docs/guide/embedding.md"
# The first build compiles all dependencies.
BUILD_SECONDS = 1800


def guide(workspace):
    """Executes the commands of the guide's first part, with its settings and its program."""
    text = (ROOT / GUIDE).read_text(encoding="utf-8")
    [commands], [settings] = blocks(text, "sh"), blocks(text, "toml")
    [program] = blocks(text, "rust,standalone_crate")
    [session] = blocks(text, "console")
    command, printed = session.split("\n", 1)
    folder = workspace.folder
    (folder / "cellmate").symlink_to(ROOT)
    # The build is kept, so that the check takes seconds if nothing has changed.
    env = {**os.environ, "CARGO_TARGET_DIR": str(PEERS / "embedding")}
    # The guide ends in the folder of the new program.
    steps = f"{commands}cat >> Cargo.toml <<'END'\n\n{settings}END\ncat > src/main.rs <<'END'\n{program}END\n{command.removeprefix('$ ')}\n"
    script = f"set -eu\nexec 2>> {workspace.log.name}\n{steps}"
    done = subprocess.run(["bash", "-c", script], cwd=folder, env=env, stdout=subprocess.PIPE, text=True, timeout=BUILD_SECONDS)
    expect(done.returncode == 0, f"it exits with {done.returncode}; see {os.path.relpath(workspace.log.name)}")
    shown = done.stdout.splitlines()[-1]
    pattern = ".*".join(re.escape(part) for part in printed.strip().split("…"))
    expect(re.fullmatch(pattern, shown), f"the program prints {shown}")
    return f"the program prints {shown[:60]}…"
