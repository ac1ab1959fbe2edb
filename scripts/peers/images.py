"""Checks that agents show their model an image that a cell outputs or returns: a random number as a PNG, which is read back
from the requests that the agent sends. No text of any request contains the image."""

import base64
import json
import random
import sys

from clients import CODEX, LAST_MESSAGE, run_claude_code, run_codex
from model import Model
from room import expect

# A server's image as output of the cell, and as part of its value.
CELLS = {
    "output": "image((await MCP.picture.draw({})).content[1]); return 'drawn'",
    "value": "return await MCP.picture.draw({})",
}
# Characters of base64 that no text has by chance.
FRAGMENT = 32


def images_and_texts(value):
    """Yields the images in a request, decoded, and its other strings."""
    if isinstance(value, dict):
        source = value.get("source") if value.get("type") == "image" else None
        if isinstance(source, dict) and source.get("type") == "base64":
            yield base64.b64decode(source["data"]), None
            return
        url = value.get("image_url") if value.get("type") in ("input_image", "image_url") else None
        url = url.get("url") if isinstance(url, dict) else url
        if isinstance(url, str) and url.startswith("data:image/"):
            yield base64.b64decode(url.partition(",")[2]), None
            return
        value = [*value.keys(), *value.values()]
    if isinstance(value, list):
        for item in value:
            yield from images_and_texts(item)
    elif isinstance(value, str):
        yield None, value


def fragments(data):
    """Returns a piece of the image's base64 for each alignment, so that every text with the image has one of them."""
    return [base64.b64encode(data[start:]).decode()[4 : 4 + FRAGMENT] for start in (40, 41, 42)]


def shown(workspace, prefix, run, tool="exec"):
    """Runs an agent once for each cell and looks for the image in the requests to its model."""
    sys.path.insert(0, str(workspace.drives))
    import picture

    number = str(random.randrange(100, 1000))
    data = picture.draw(number)
    expect(picture.read(data) == number, "the image does not show its number")
    server = {"command": sys.executable, "args": ["-B", "-S", str(workspace.drives / "picture_server.py"), number]}
    config = workspace.config({"picture": server})
    workspace.run(workspace.cellmate, "tools", "list", "--config", config)
    sizes = []
    for name, cell in CELLS.items():
        with Model(lambda tool_name: tool_name == f"{prefix}{tool}", {"code": cell}, LAST_MESSAGE) as model:
            try:
                printed = run(workspace, model.address, config)
            finally:
                workspace.say(json.dumps([request["results"] for request in model.requests], indent=1))
        expect(LAST_MESSAGE in printed, f"{name}: the model's last message was not printed: {printed[-300:]}")
        parts = [part for body in model.bodies for part in images_and_texts(body)]
        found = [picture.read(image) for image, _ in parts if image]
        expect(found and set(found) == {number}, f"{name}: the requests show {found} instead of {number}: {model.results()}")
        text = "\n".join(text for _, text in parts if text)
        expect(not any(piece in text for piece in fragments(data)), f"{name}: a text contains the image")
        results = [result for result in model.results() if '"status"' in result]
        expect(results and all('"completed"' in result and '"handle"' in result for result in results), f"{name}: results {results}")
        sizes.append(max(len(result) for result in results))
    return f"{number} read from an image that a cell outputs and one that it returns; {sizes} characters of text, no base64"


def claude_code(workspace):
    def run(workspace, address, config):
        workspace.run(workspace.cellmate, "connect", "claude-code", "--yes", "--config", config)
        return run_claude_code(workspace, address)

    return shown(workspace, "mcp__cellmate__", run)


def codex(workspace):
    def run(workspace, address, config):
        folder = workspace.home / ".codex"
        folder.mkdir(exist_ok=True)
        (folder / "config.toml").write_text(CODEX.replace("{address}", address))
        workspace.run(workspace.cellmate, "connect", "codex", "--yes", "--config", config)
        return run_codex(workspace)

    return shown(workspace, "mcp__cellmate::", run)


# Name: bundle, the package whose version is printed, the check.
IMAGES = {
    "claude-code/images": ("claude-code", "@anthropic-ai/claude-code", claude_code),
    "codex/images": ("codex", "@openai/codex", codex),
}
