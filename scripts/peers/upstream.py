"""Checks with third-party MCP servers: each by itself, then all of them in one cell."""

import json
import shutil
import socket
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from pins import NODE, PEERS
from room import Failed, expect

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
LISTENING_SECONDS = 30
# Plain text, because the fetch server installs a package at its first conversion of HTML.
PAGE = "Assam is strong.\n"


def script(path):
    return str(PEERS / "npm/node_modules" / path)


def everything(workspace):
    return {"command": str(NODE), "args": [script("@modelcontextprotocol/server-everything/dist/index.js"), "stdio"]}


def everything_http(workspace):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(NODE), script("@modelcontextprotocol/server-everything/dist/index.js"), "streamableHttp"]
    workspace.start(command, env=workspace.environment(PORT=str(port)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + LISTENING_SECONDS
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return {"url": f"http://127.0.0.1:{port}/mcp"}
        time.sleep(0.1)
    raise Failed("server-everything did not start listening")


def filesystem(workspace):
    (workspace.work / "note.txt").write_text("oolong\n")
    return {"command": str(NODE), "args": [script("@modelcontextprotocol/server-filesystem/dist/index.js"), str(workspace.work)]}


def memory(workspace):
    index = script("@modelcontextprotocol/server-memory/dist/index.js")
    return {"command": str(NODE), "args": [index], "env": {"MEMORY_FILE_PATH": str(workspace.folder / "memory.jsonl")}}


def sequential_thinking(workspace):
    return {"command": str(NODE), "args": [script("@modelcontextprotocol/server-sequential-thinking/dist/index.js")]}


def playwright(workspace):
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    expect(browser is not None, f"none of {BROWSERS} is installed")
    # It opens pages on loopback only, and Chromium has no sandbox when it runs as root.
    how = ["--headless", "--isolated", "--no-sandbox", "--executable-path", browser]
    return {"command": str(NODE), "args": [script("@playwright/mcp/cli.js"), *how]}


def time_server(workspace):
    return {"command": str(PEERS / "python/bin/mcp-server-time"), "args": []}


def git(workspace):
    repository = workspace.work / "repository"
    repository.mkdir()
    (repository / "leaf").write_text("green\n")
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "First flush"]):
        workspace.run("git", "-C", repository, "-c", "user.name=Ada", "-c", "user.email=ada@example.com", *words)
    return {"command": str(PEERS / "python/bin/mcp-server-git"), "args": ["--repository", str(repository)]}


def fetch(workspace):
    return {"command": str(PEERS / "python/bin/mcp-server-fetch"), "args": ["--ignore-robots-txt", "--allow-private-ips"]}


def sqlite(workspace):
    return {"command": str(PEERS / "python-sqlite/bin/mcp-server-sqlite"), "args": ["--db-path", str(workspace.folder / "tea.db")]}


def broken(workspace):
    return {"command": str(PEERS / "python-broken/bin/mcp-server-sqlite"), "args": ["--db-path", str(workspace.folder / "no.db")]}


def page(workspace):
    """Serves a page on loopback and returns its address."""
    class Page(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self):
            body = PAGE.encode()
            self.send_response(200)
            self.send_header("content-type", "text/plain")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}/"


def nothing(workspace):
    return {}


def in_repository(workspace):
    return {"repo_path": str(workspace.work / "repository"), "max_count": 1}


# Name: bundle, package, its configuration, the tool to call, its arguments, and text that the answer must contain.
SERVERS = {
    "everything": ("npm", "@modelcontextprotocol/server-everything", everything, "get-sum", lambda workspace: {"a": 20, "b": 22}, "42"),
    "everything-http": ("npm", "@modelcontextprotocol/server-everything", everything_http, "echo", lambda workspace: {"message": "tea"}, "Echo: tea"),
    "filesystem": ("npm", "@modelcontextprotocol/server-filesystem", filesystem, "read_text_file", lambda workspace: {"path": str(workspace.work / "note.txt")}, "oolong"),
    "memory": ("npm", "@modelcontextprotocol/server-memory", memory, "read_graph", nothing, "entities"),
    "sequential-thinking": ("npm", "@modelcontextprotocol/server-sequential-thinking", sequential_thinking, "sequentialthinking", lambda workspace: {"thought": "steep", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}, "thoughtNumber"),
    "time": ("python", "mcp-server-time", time_server, "convert_time", lambda workspace: {"source_timezone": "Etc/UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}, "+9.0h"),
    "git": ("python", "mcp-server-git", git, "git_log", in_repository, "First flush"),
    "fetch": ("python", "mcp-server-fetch", fetch, "fetch", lambda workspace: {"url": page(workspace)}, "Assam is strong."),
    "sqlite": ("python-sqlite", "mcp-server-sqlite", sqlite, "read_query", lambda workspace: {"query": "SELECT 6 * 7 AS answer"}, "42"),
    "playwright": ("npm", "@playwright/mcp", playwright, "browser_navigate", lambda workspace: {"url": page(workspace)}, "Page URL: http://127.0.0.1:"),
}


def one(name):
    """A check: `cellmate` lists the server's tools and calls one."""
    _, _, configured, tool, arguments, wanted = SERVERS[name]

    def check(workspace):
        config = workspace.config({"peer": configured(workspace)})
        listed = json.loads(workspace.run(workspace.cellmate, "tools", "list", "--json", "--config", config))
        expect(not listed["problems"], f"problems: {listed['problems']}")
        ids = [one["id"] for one in listed["tools"]]
        given = json.dumps(arguments(workspace))
        called = json.loads(workspace.run(workspace.cellmate, "tools", "call", f"peer.{tool}", "--args", given, "--json", "--yes", "--config", config))
        expect(called["ok"] and wanted in json.dumps(called["result"], ensure_ascii=False), f"{tool} returned {called}")
        return f"{len(ids)} tools listed, {tool} called"

    return check


CELL = """
const found = await MCP.$search("convert a time from one time zone to another", { limit: 3 });
const declared = await API.read("mcp/filesystem.d.ts");
const text = (result) => { if (result.isError) throw new Error(JSON.stringify(result)); return result.content.map((block) => block.text).join("\\n") };
const { path, repository, url } = JSON.parse(`GIVEN`);
await MCP.sqlite.createTable({ query: "CREATE TABLE tea (name TEXT, grams INTEGER)" });
await MCP.sqlite.writeQuery({ query: "INSERT INTO tea VALUES ('oolong', 20), ('assam', 22)" });
await MCP.memory.createEntities({ entities: [{ name: "oolong", entityType: "tea", observations: ["half oxidised"] }] });
const [sum, echo, note, graph, thought, time, log, page, rows, seen] = await Promise.all([
  MCP.everything.getSum({ a: 20, b: 22 }),
  MCP.everythingHttp.echo({ message: "tea" }),
  MCP.filesystem.readTextFile({ path }),
  MCP.memory.readGraph({}),
  MCP.sequentialThinking.sequentialthinking({ thought: "steep", nextThoughtNeeded: false, thoughtNumber: 1, totalThoughts: 1 }),
  MCP.time.convertTime({ source_timezone: "Etc/UTC", time: "12:00", target_timezone: "Asia/Tokyo" }),
  MCP.git.gitLog({ repo_path: repository, max_count: 1 }),
  MCP.fetch.fetch({ url }),
  MCP.sqlite.readQuery({ query: "SELECT sum(grams) AS grams FROM tea" }),
  MCP.playwright.browserNavigate({ url }).then(() => MCP.playwright.browserEvaluate({ function: "() => document.body.innerText" })),
]);
return {
  found: found.map((hit) => hit.call),
  declared: declared.includes("readTextFile"),
  broken: await MCP.broken.start({}).catch((error) => error.message),
  answers: [sum, echo, note, graph, thought, time, log, page, rows, seen].map(text),
};
"""
WANTED = ["42", "Echo: tea", "oolong", "half oxidised", "thoughtNumber", "+9.0h", "First flush", "Assam is strong.", "42", "Assam is strong."]


def across(workspace):
    """A check: one cell calls ten servers while an eleventh is broken."""
    servers = {name: configured(workspace) for name, (_, _, configured, *_) in SERVERS.items()}
    config = workspace.config({**servers, "broken": broken(workspace)})
    given = {"path": str(workspace.work / "note.txt"), "repository": str(workspace.work / "repository"), "url": page(workspace)}
    cell = CELL.replace("GIVEN", json.dumps(given))
    drive = [PEERS / "python-mcp/bin/python", workspace.drives / "mcp_client.py", cell, *workspace.stdio(config)]
    seen = json.loads(workspace.run(*drive))
    expect(seen["tools"] == ["exec", "wait"], f"the client was shown {seen['tools']}")
    expect(seen["result"]["status"] == "completed", f"the cell did not complete: {json.dumps(seen['result'])[:400]}")
    value = seen["result"]["value"]
    expect(any("time.convertTime" in call for call in value["found"]), f"found {value['found']}")
    expect(value["declared"] is True, f"declared: {value}")
    expect("`broken` is unavailable" in str(value["broken"]), f"a call of the broken server gave {value['broken']}")
    expect("server `broken` is not available" in workspace.err, "the broken server was not reported")
    for wanted, answer in zip(WANTED, value["answers"], strict=True):
        expect(wanted in answer, f"`{wanted}` is not in `{answer}`")
    return "10 servers called in one cell; the broken one left out"
