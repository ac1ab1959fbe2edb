"""The check of Tool Search's contract: each of its rows that only tests of ours prove is observed with third-party clients.

The Python SDK's client uses `cellmate mcp`, and the SDKs of OpenAI and Anthropic use `cellmate gateway` with a scripted
model. The rows are those of docs/internals/contract.md. What was observed of each is written to the folder of logs.
"""

import contextlib
import json
import os
import shutil
import subprocess
import time
import urllib.request

from gateway import LAST_MESSAGE, TOKEN, script, serve
from model import Model
from pins import LOGS, PEERS, ROOT
from room import end, expect
from surfaces import ANSWER, DENIED_ID, SUM, SUM_ID, answer, telemetry
from upstream import everything, everything_http

ROWS = {
    414: "with Tool Search on, the model receives one tool, `tool_search_code`",
    417: "the contract's example searches, describes and calls",
    418: "the catalog can have core, plugin, MCP and client tools",
    419: "the model does not see every schema in advance",
    421: "the policy of agent, profile and sandbox is resolved",
    423: "eligible MCP tools are listed",
    424: "eligible tools of the client are added",
    426: "the code bridge or the structured tools are exposed",
    427: "every real call returns to the host",
    429: "policy, approval, hooks, logging and result handling apply to a bridged call",
    430: "mode `code` exposes `tool_search_code`",
    431: "mode `tools` exposes `tool_search`, `tool_describe` and `tool_call`",
    432: "both modes use the same catalog and execution path",
    433: "if no sandbox can be started, `code` becomes `tools`",
    434: "there is no setting that selects sources",
    435: "the catalog has core, MCP and client tools after policy",
    436: "`search(query, options?)`",
    437: "`{ limit: 5 }`",
    439: "`describe(id)` has full metadata with the exact input schema",
    440: "`call(id, args)`",
    441: "the tool `tool_search`",
    442: "the tool `tool_describe`",
    449: "allow and deny policies apply to final calls",
    450: "restrictions of agent and sandbox apply to final calls",
    452: "approvals apply to final calls",
    453: "`before_tool_call` hooks of plugins apply to final calls",
    454: "session identity, logs and telemetry apply to final calls",
    456: "`toolSearch: true`",
    457: "`toolSearch: { mode: \"tools\" }`",
    458: "`mode`, `codeTimeoutMs`, `searchDefaultLimit` and `maxSearchLimit`",
    459: "`toolSearch: false`",
    461: "telemetry: size and sources of the catalog",
    462: "telemetry: counts of searches, descriptions and calls",
    463: "telemetry: final calls that were executed",
    464: "telemetry: ids and sources of the selected tools",
    465: "session logs: how many schemas the model saw in advance",
    466: "session logs: how many searches and descriptions there were",
    467: "session logs: which tool was called",
    468: "session logs: whether it was a core, MCP or client tool",
    471: "1: direct mode calls the tool of a plugin",
    472: "2: Tool Search calls the same tool",
    473: "3: direct mode shows the provider the schemas of the plugin",
    474: "4: Tool Search shows the provider the bridge alone",
    475: "5: the request with Tool Search is smaller",
    476: "6: session logs have the counts and the bridged call",
    477: "search does not return a tool that policy excludes",
    478: "a call of a tool that has become unavailable fails",
    479: "a result says that policy or an approval blocked the call",
    480: "without a sandbox, `mode: \"tools\"` or disabling Tool Search works",
}
CODE = ["tool_search_code"]
STRUCTURED = ["tool_search", "tool_describe", "tool_call"]

# The plugin's tool fits the contract's example. The other tools make its catalog large.
ISSUE_ID, HIDDEN_ID = "plugin:tracker:create_issue", "plugin:tracker:delete_issue"
READ_ID, LOOK_ID = "openclaw:core:read", "client:app:look"
TEXT = {"type": "string"}
ISSUE_SCHEMA = {"type": "object", "properties": {"title": TEXT, "body": TEXT}, "required": ["title"]}
REPORT_SCHEMA = {"type": "object", "properties": {"project": {**TEXT, "description": "The project of the report."}}}
REPORTS = 60
EXAMPLE = """const hits = await openclaw.tools.search("create a GitHub issue");
const tool = await openclaw.tools.describe(hits[0].id);
return await openclaw.tools.call(tool.id, {
title: "Crash on startup",
body: "Steps to reproduce...",
});"""
MADE = {"tool": "create_issue", "input": {"title": "Crash on startup", "body": "Steps to reproduce..."}}
NOTE = "oolong\n"

# What the plugin `guard` does with arguments that match.
RULES = [
    {"match": "project-[0-9]+", "action": "redact"},
    {"match": "internal", "action": "block", "message": "internal names stay here"},
    {"match": "urgent", "action": "ask", "message": "urgent issues need a person"},
]
RELOAD_SECONDS = 15


class Observations:
    """What was observed of each row."""

    def __init__(self):
        self.seen = {}

    def see(self, numbers, holds, what):
        """Adds an observation of some rows, or fails the check."""
        numbers = [numbers] if isinstance(numbers, int) else numbers
        for number in numbers:
            expect(holds, f"row {number}, {ROWS[number]}: {what}")
            self.seen.setdefault(number, {})[what] = True

    def write(self, path):
        """Writes the table of all rows."""
        lines = ["| row | must be seen | observed |", "|---|---|---|"]
        for number, wanted in ROWS.items():
            observed = "<br>".join(self.seen.get(number, ["not seen"])).replace("\n", " ").replace("|", "\\|")
            lines.append(f"| {number} | {wanted} | {observed} |")
        path.write_text("\n".join([*lines, ""]), encoding="utf-8")


class Session:
    """One session of the Python SDK's client with `cellmate mcp`."""

    def __init__(self, workspace, config, *more, jailed=True, **env):
        command = [*workspace.stdio(config), *more]
        if not jailed:
            # A worker reserves more address space than that.
            command = ["sh", "-c", 'ulimit -v 2000000; exec "$0" "$@"', *command]
        python = [str(PEERS / "python-mcp/bin/python"), str(workspace.drives / "surfaces_client.py"), "-", *command]
        workspace.say(f"$ {' '.join(python)}")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": workspace.log}
        self.workspace, self.process = workspace, workspace.start(python, env=workspace.environment(**env), **pipes)
        self.tools, self.forms = self.read()["tools"], 0
        self.names = [tool["name"] for tool in self.tools]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # The server ends in order when its client does.
        self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=30)
        end(self.process)

    def read(self):
        line = self.process.stdout.readline()
        self.workspace.say(line)
        expect(line, "the client ended; see the log")
        return json.loads(line)

    def send(self, tool, arguments):
        """Makes a call, whose result `read` returns."""
        self.workspace.say(json.dumps([tool, arguments]))
        print(json.dumps([tool, arguments]), file=self.process.stdin, flush=True)

    def ask(self, tool, arguments):
        """Makes a call and returns what the client received."""
        self.send(tool, arguments)
        received = self.read()
        self.forms = received["forms"]
        return received

    def result(self, tool, **arguments):
        received = self.ask(tool, arguments)
        expect("result" in received, f"the call of {tool} was refused: {received}")
        return received["result"]

    def answer(self, tool, **arguments):
        return answer(self.result(tool, **arguments))

    def value(self, program):
        """Returns the value of a program of `tool_search_code`."""
        answered = self.answer("tool_search_code", code=program)
        expect(answered["ok"], f"the program failed: {answered}")
        return answered.get("value")

    def call(self, tool_id, arguments):
        """Calls a tool in the mode of the session. Returns its result, or the error as text."""
        if self.names == CODE:
            made = f"openclaw.tools.call({json.dumps(tool_id)}, {json.dumps(arguments)})"
            return self.value(f"return await {made}.catch((error) => error.message);")
        answered = self.answer("tool_call", id=tool_id, args=arguments)
        return answered["error"] if answered.get("ok") is False else answered["result"]

    def search(self, query, **options):
        if self.names == CODE:
            return self.value(f"return await openclaw.tools.search({json.dumps(query)}, {json.dumps(options)});")
        return self.answer("tool_search", query=query, **options)

    def describe(self, tool_id):
        if self.names == CODE:
            return self.value(f"return await openclaw.tools.describe({json.dumps(tool_id)});")
        return self.answer("tool_describe", id=tool_id)


def ids(hits):
    return [hit["id"] for hit in hits]


def text_of(result):
    """Returns the first text of an MCP tool's result; an error is a text already."""
    return result if isinstance(result, str) else result["content"][0]["text"]


def plugin_folder(workspace):
    """Writes the plugin with a large catalog, and returns its folder."""
    folder = workspace.folder / "tracker"
    if not folder.exists():
        folder.mkdir()
        shutil.copy(workspace.drives / "tracker_plugin.py", folder / "main.py")
        offered = {f"{verb}_issue": (f"{verb.title()}s a GitHub issue.", ISSUE_SCHEMA) for verb in ("create", "delete")}
        for number in range(REPORTS):
            offered[f"report_{number}"] = (f"Writes report {number} about every calendar event.", REPORT_SCHEMA)
        tools = [
            {"name": name, "description": description, "inputSchema": schema, "effects": "reads"}
            for name, (description, schema) in offered.items()
        ]
        about = {"id": "tracker", "name": "Tracker", "version": "1.0.0", "description": "Issues and reports."}
        manifest = {**about, "command": ["python3", "main.py"], "tools": tools}
        (folder / "cellmate.plugin.json").write_text(json.dumps(manifest))
    return folder


def install_plugins(workspace, *state):
    for folder in (plugin_folder(workspace), ROOT / "plugins/guard"):
        workspace.run(workspace.cellmate, "plugins", "add", folder, "--yes", *state)


def settings(workspace, tools):
    """Settings with a server, a core tool, two plugins, and a denied tool of each source."""
    base = {"deny": [DENIED_ID, HIDDEN_ID, "openclaw:core:write"], "fs": {"enabled": True, "roots": [str(workspace.work)]}}
    entries = {"guard": {"config": {"rules": RULES}}}
    return {"tools": {**base, **tools}, "plugins": {"entries": entries}}


def configured(workspace, name, tools, ask="never", servers=None):
    servers = {"everything": everything(workspace)} if servers is None else servers
    return workspace.config(servers, name=f"{name}.json5", ask=ask, **settings(workspace, tools))


def calls_of_plugin(state):
    """Returns the calls that the plugin received."""
    path = state / "plugins/tracker/data/calls"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def newest_run(workspace):
    """Returns the newest run, and the transcript of its calls."""
    run = json.loads(workspace.run(workspace.cellmate, "runs", "list", "--json"))[0]
    return run, json.loads(workspace.run(workspace.cellmate, "runs", "export", run["runId"], "--json"))


def called_ids(entries):
    return [entry["toolId"] for entry in entries if entry["kind"] == "tool_call"]


def shapes(workspace, rows):
    """The tools that each setting shows to the client. Returns those of direct mode."""
    for setting, numbers, expected in ((True, [414, 426, 430, 456], CODE), ({"mode": "tools"}, [426, 431, 457], STRUCTURED)):
        with Session(workspace, configured(workspace, "shape", {"toolSearch": setting})) as session:
            rows.see(numbers, session.names == expected, f"`toolSearch: {json.dumps(setting)}`: tools/list has {session.names}")
            shown = json.dumps(session.tools)
            leaked = [word for word in ("create_issue", "report_", "get-sum", "apply_patch", "project") if word in shown]
            rows.see(419, not leaked, f"{len(shown)} bytes of definitions; names of the catalog in them: {leaked}")
    with Session(workspace, configured(workspace, "off", {"toolSearch": False})) as session:
        rows.see(459, session.names == ["exec", "wait"], f"`toolSearch: false`: tools/list has {session.names}")
    with Session(workspace, configured(workspace, "direct", {"toolSearch": False, "codeMode": False})) as session:
        refused = session.ask("tool_search_code", {"code": "return 1"}).get("refused", "")
        holds = "unknown tool" in refused and not {*CODE, *STRUCTURED} & {*session.names}
        rows.see(459, holds, f"also without code mode, there are only the tools themselves: {refused}")
        all_shown = {"create_issue", "report_0", "everything__get-sum"} <= {*session.names}
        rows.see(419, all_shown, f"{len(json.dumps(session.tools))} bytes in direct mode")
        return session.tools


def no_sources(workspace, rows):
    """A setting that selects sources is refused, so that the client finds no server."""
    config = configured(workspace, "selecting", {"toolSearch": {"sources": ["mcp"]}})
    client = [PEERS / "python-mcp/bin/python", workspace.drives / "surfaces_client.py", "[]", *workspace.stdio(config)]
    workspace.run(*client, may_fail=True)
    said = next((line for line in workspace.err.splitlines() if "tools.toolSearch.sources" in line), "")
    rows.see(434, workspace.exit and "unknown key" in said, f"the server ends: {said}")


API = f"""const some = await openclaw.tools.search("calendar event");
const five = await openclaw.tools.search("calendar event", {{ limit: 5 }});
const issue = await openclaw.tools.describe("{ISSUE_ID}");
return {{ some, five, issue, sum: await openclaw.tools.describe("{SUM_ID}") }};"""
THREE = f"""const note = await openclaw.tools.call("{READ_ID}", {{ path: "note.txt" }});
const sum = await openclaw.tools.call("{SUM_ID}", {json.dumps(SUM)});
const made = await openclaw.tools.call("{ISSUE_ID}", {{ title: "Third" }});
return [note.text, sum.content[0].text, made.input.title];"""
HIDDEN = {DENIED_ID: "environment variables", HIDDEN_ID: "delete a GitHub issue", "openclaw:core:write": "write a file"}


def code_bridge(workspace, rows, direct):
    """Programs of `tool_search_code`. Returns what the structured tools must answer as well."""
    state = workspace.home / ".local/state/cellmate"
    by_name = {tool["name"]: tool for tool in direct}
    with Session(workspace, configured(workspace, "code", {"toolSearch": True})) as session:
        example = session.result("tool_search_code", code=EXAMPLE)
        rows.see(417, answer(example).get("value") == MADE, f"the example returns {answer(example).get('value')}")
        counts = counts_of(telemetry(example))
        rows.see(462, counts == [1, 1, 1], f"the example: {counts}")
        read = session.result("tool_search_code", code=API)
        found = answer(read)["value"]
        searching(rows, found["some"], found["five"])
        theirs = by_name["everything__get-sum"]["inputSchema"]
        holds = found["issue"]["parameters"] == ISSUE_SCHEMA and found["sum"]["parameters"] == theirs
        rows.see(439, holds, f"the schema of the plugin, {found['issue']}, and that of the server, {found['sum']['parameters']}")
        counts = counts_of(telemetry(read))
        rows.see(462, counts == [2, 2, 0], f"another program: {counts}")
        before = len(calls_of_plugin(state))
        three = session.result("tool_search_code", code=THREE)
        rows.see(440, answer(three).get("value") == [NOTE, ANSWER, "Third"], f"three calls return {answer(three).get('value')}")
        three_calls(workspace, rows, telemetry(three), calls_of_plugin(state)[before:])
        catalog(rows, telemetry(three), by_name)
        return common(session, rows)


def counts_of(counted):
    return [counted[name] for name in ("searchCount", "describeCount", "callCount")]


def searching(rows, some, five):
    """The hits of a search without a limit and with one."""
    compact = all({"id", "name", "description", "source"} <= {*hit} and "parameters" not in hit for hit in some)
    rows.see(436, compact and len(some) == 8, f"`search` returns {len(some)} hits with {sorted(some[0])}")
    rows.see(437, len(five) == 5 and five == some[:5], f"with `limit: 5`, the first {len(five)} of them")


def three_calls(workspace, rows, counted, received):
    """What is known of a program with a call of each source."""
    run, entries = newest_run(workspace)
    expected = [READ_ID, SUM_ID, ISSUE_ID]
    holds = counted["callCount"] == 3 and called_ids(entries) == expected
    rows.see(463, holds, f"callCount is {counted['callCount']}, the log has {called_ids(entries)}")
    sources = [{"id": tool, "source": tool.split(":")[0]} for tool in expected]
    rows.see(464, counted["selectedTools"] == sources, f"selectedTools: {counted['selectedTools']}")
    call_ids = [call["callId"].split(":")[0] for call in received]
    rows.see(427, call_ids == [run["runId"]], f"the plugin's process received calls of the runs {call_ids}")
    scope = {name: received[0]["scope"][name] for name in ("agentId", "sessionId")}
    holds = all(scope[name] == run[name] for name in scope) and called_ids(entries)[2] == ISSUE_ID and counted["callCount"] == 3
    rows.see(454, holds, f"the plugin sees {scope}; `runs list` has the same; `runs export` has the call, `_meta` the telemetry")


def catalog(rows, counted, direct):
    """The catalog, compared with the tools of direct mode, which has the same policy."""
    mcp = [name for name in direct if name.startswith("everything__")]
    rows.see(423, counted["sources"]["mcp"] == len(mcp) > 5, f"{counted['sources']['mcp']} tools of the MCP server")
    sizes = counted["catalogSize"] == sum(counted["sources"].values()) == len(direct)
    rows.see(461, sizes, f"catalogSize {counted['catalogSize']}, sources {counted['sources']}")
    own = [name for name in ("read", "ls", "find", "grep", "edit", "apply_patch") if name in direct]
    rows.see(435, counted["sources"]["openclaw"] == len(own) == 6, f"{len(own)} core tools; `write` is denied")


def common(session, rows):
    """What both modes must do in the same way. Returns everything that must be equal."""
    mode = session.names[0]
    hits, described = session.search("calendar event"), session.describe(ISSUE_ID)
    made = session.call(ISSUE_ID, MADE["input"])
    hooked = [session.call(ISSUE_ID, {"title": title}) for title in ("project-12", "internal")]
    rewritten = {"tool": "create_issue", "input": {"title": "[redacted]"}}
    rows.see(453, hooked[0] == rewritten, f"{mode}: the hook rewrites: {hooked[0]}")
    holds = "before_tool_call" in hooked[1] and RULES[1]["message"] in hooked[1]
    rows.see([453, 479], holds, f"{mode}: the hook blocks: {hooked[1]}")
    for tool, query in HIDDEN.items():
        found, refused = ids(session.search(query, limit=20)), session.call(tool, {})
        rows.see(477, found and tool not in found, f"{mode}: `{query}` finds {len(found)} tools without {tool}")
        rows.see([449, 479], f"unknown tool `{tool}`" in refused, f"{mode}: {refused}")
    return {"hits": ids(hits), "described": described, "made": made, "hooked": hooked}


def structured(workspace, rows, of_code):
    """The three tools, one after the other, with the ids that each returns."""
    with Session(workspace, configured(workspace, "structured", {"toolSearch": {"mode": "tools"}})) as session:
        hits = session.answer("tool_search", query="create a GitHub issue", limit=3)
        rows.see(441, len(hits) == 3 and hits[0]["id"] == ISSUE_ID, f"`tool_search` returns {ids(hits)}")
        described = session.answer("tool_describe", id=hits[0]["id"])
        rows.see(442, described["parameters"] == ISSUE_SCHEMA, f"`tool_describe` returns {described}")
        called = session.result("tool_call", id=described["id"], args=MADE["input"])
        rows.see([440, 432], answer(called)["result"] == MADE, f"`tool_call` returns {answer(called)['result']}")
        selected, (_, entries) = telemetry(called)["selectedTools"], newest_run(workspace)
        rows.see(464, selected == [{"id": ISSUE_ID, "source": "plugin"}], f"`tool_call`: {selected}")
        rows.see(432, called_ids(entries) == [ISSUE_ID], f"`tool_call` is logged like a call of a program: {called_ids(entries)}")
        same = common(session, rows)
        rows.see(432, same == of_code, f"equal in both modes: {sorted(same)}")


def policies(workspace, rows):
    """Allow lists, profiles and the rules of sandboxed agents, in both modes. Each leaves one tool."""
    cases = (
        ("allow", {"allow": [SUM_ID]}, [], [449]),
        ("profile", {"profiles": {"adding": [SUM_ID]}, "profile": "adding"}, [], [421]),
        ("sandbox", {"sandbox": {"tools": {"allow": [SUM_ID]}}}, ["--sandboxed"], [421, 450]),
    )
    for mode in ("code", "tools"):
        for name, policy, more, numbers in cases:
            config = configured(workspace, f"{name}-{mode}", {"toolSearch": {"mode": mode}, **policy})
            with Session(workspace, config, *more) as session:
                found, refused = ids(session.search("")), session.call(ISSUE_ID, {"title": "No"})
                holds = found == [SUM_ID] and "unknown tool" in refused and text_of(session.call(SUM_ID, SUM)) == ANSWER
                rows.see(numbers, holds, f"{name}, {mode}: the catalog is {found}, which can be called; {refused}")
    with Session(workspace, configured(workspace, "sandbox-off", {"toolSearch": True, **cases[2][1]})) as session:
        made = session.call(ISSUE_ID, {"title": "Yes"})
        rows.see([421, 450], made == {"tool": "create_issue", "input": {"title": "Yes"}}, f"without `--sandboxed`: {made}")


def approvals(workspace, rows):
    """Calls that people approve and deny, in both modes: the server is not trusted, and a hook asks."""
    for mode in ("code", "tools"):
        config = configured(workspace, f"approvals-{mode}", {"toolSearch": {"mode": mode}}, ask="changes")
        with Session(workspace, config, FORM_ANSWER="approve once") as session:
            summed = text_of(session.call(SUM_ID, SUM))
            rows.see(452, session.forms == 1 and summed == ANSWER, f"{mode}: {session.forms} form, approved: {summed}")
            made = session.call(ISSUE_ID, {"title": "urgent: project-3"})
            holds = session.forms == 2 and made["input"] == {"title": "urgent: [redacted]"}
            rows.see(452, holds, f"{mode}: a hook asks in form {session.forms}, approved: {made}")
            all_apply(workspace, rows, session, made)
        with Session(workspace, config, FORM_ANSWER="deny") as session:
            blocked = session.call(SUM_ID, SUM)
            holds = session.forms == 1 and "denied" in blocked
            rows.see([452, 479], holds, f"{mode}: {session.forms} form, denied: {blocked}")


def all_apply(workspace, rows, session, made):
    """The log of a call that two rules of a hook and an approval applied to, and a call that policy refuses."""
    logged = [entry["arguments"] for entry in newest_run(workspace)[1] if entry["kind"] == "tool_call"]
    refused, mode = session.call(DENIED_ID, {}), session.names[0]
    holds = session.forms == 2 and logged == [made["input"]] and "unknown tool" in refused
    what = f"{session.forms} approvals; the hook's arguments in the log, {logged}; result {made}; policy: {refused}"
    rows.see(429, holds, f"{mode}: {what}")


def until(holds, what):
    """Waits for a changed configuration to take effect."""
    deadline = time.monotonic() + RELOAD_SECONDS
    while not holds():
        expect(time.monotonic() < deadline, f"it takes more than {RELOAD_SECONDS} s until {what}")
        time.sleep(0.3)


def unavailable(workspace, rows):
    """A server that ends, a server that is removed and a tool that is denied, each after the tool was described."""
    far_id = "mcp:far:get-sum"
    for mode in ("code", "tools"):
        servers = {"everything": everything(workspace), "far": everything_http(workspace)}
        far, name = workspace.processes[-1], f"gone-{mode}"
        with Session(workspace, configured(workspace, name, {"toolSearch": {"mode": mode}}, servers=servers)) as session:
            for tool in (SUM_ID, far_id, ISSUE_ID):
                expect(session.describe(tool)["id"] == tool, f"{tool} is not described")
            end(far)
            ended = session.call(far_id, SUM)
            rows.see(478, isinstance(ended, str) and "server" in ended, f"{mode}: its server has ended: {ended}")
            del servers["everything"]
            configured(workspace, name, {"toolSearch": {"mode": mode}, "deny": [ISSUE_ID]}, servers=servers)
            is_removed = lambda: SUM_ID not in ids(session.search("sum of two numbers", limit=20))
            until(is_removed, "a removed server leaves the catalog")
            removed, denied = session.call(SUM_ID, SUM), session.call(ISSUE_ID, {"title": "Late"})
            rows.see(478, f"unknown tool `{SUM_ID}`" in removed, f"{mode}: its server was removed: {removed}")
            rows.see([449, 479], f"unknown tool `{ISSUE_ID}`" in denied, f"{mode}: denied after it was described: {denied}")


# The configuration is read again within two seconds.
LATER = f"""const tool = await openclaw.tools.describe("{SUM_ID}");
await new Promise((resolve) => setTimeout(resolve, 5000));
return [tool.id, await openclaw.tools.call(tool.id, {json.dumps(SUM)}).catch((error) => error.message)];"""


def unavailable_meanwhile(workspace, rows):
    """A server that is removed while a program runs that has described its tool."""
    with Session(workspace, configured(workspace, "meanwhile", {"toolSearch": True})) as session:
        expect(text_of(session.call(SUM_ID, SUM)) == ANSWER, "the server does not work")
        session.send("tool_search_code", {"code": LATER})
        # The program has begun by then, with the former configuration.
        time.sleep(0.5)
        configured(workspace, "meanwhile", {"toolSearch": True}, servers={})
        described, failed = answer(session.read()["result"])["value"]
        holds = described == SUM_ID and "was not called" in failed
        rows.see(478, holds, f"its server was removed while the program ran: {failed}")


def without_sandbox(workspace, rows):
    """Workers cannot be started. The server is reached over HTTP, because Node needs more address space as well."""
    servers = {"everything": everything_http(workspace)}
    for tools, number in (({"toolSearch": True}, 433), ({"toolSearch": {"mode": "tools"}}, 480)):
        with Session(workspace, configured(workspace, "unjailed", tools, servers=servers), jailed=False) as session:
            called = text_of(session.call(SUM_ID, SUM))
            refused = session.ask("tool_search_code", {"code": "return 1"}).get("refused", "")
            holds = session.names == STRUCTURED and called == ANSWER and "unknown tool" in refused
            rows.see(number, holds, f"{json.dumps(tools)}: tools/list has {session.names}, `tool_call` returns {called}")
            counted = telemetry(session.result("tool_search", query="calendar event"))
            holds = counted["mode"] == "tools" and counted["catalogSize"] > REPORTS
            rows.see(number, holds, f"the catalog has {counted['catalogSize']} tools, the mode is {counted['mode']}")
    reason = "no runtime is available"
    rows.see(433, reason in workspace.run(workspace.cellmate, "logs"), f"the log says: {reason}")
    tools = {"toolSearch": False, "codeMode": False}
    with Session(workspace, configured(workspace, "unjailed-off", tools, servers=servers), jailed=False) as session:
        summed = text_of(session.result("everything__get-sum", **SUM))
        rows.see(480, summed == ANSWER, f"{json.dumps(tools)}: {len(session.names)} direct tools, a call returns {summed}")
    with Session(workspace, configured(workspace, "jailed", {"toolSearch": True}, servers=servers)) as session:
        rows.see(433, session.names == CODE, f"with a sandbox, the same settings show {session.names}")


COUNTS = """const count = async (options) => (await openclaw.tools.search("calendar event", options)).length;
return [await count(), await count({ limit: 4 }), await count({ limit: 50 })];"""
NEVER = "await new Promise((resolve) => setTimeout(resolve, 60000)); return 1;"


def limits(workspace, rows):
    """The contract's numbers, and others, so that the former are not only the defaults."""
    for milliseconds, default, most in ((10000, 8, 20), (1500, 3, 6)):
        setting = {"mode": "code", "codeTimeoutMs": milliseconds, "searchDefaultLimit": default, "maxSearchLimit": most}
        with Session(workspace, configured(workspace, f"limits-{milliseconds}", {"toolSearch": setting})) as session:
            counts = session.value(COUNTS)
            rows.see(458, counts == [default, 4, most], f"{json.dumps(setting)}: searches return {counts} tools")
            began = time.monotonic()
            late = session.answer("tool_search_code", code=NEVER)
            took = (time.monotonic() - began) * 1000
            holds = late.get("code") == "timeout" and milliseconds * 0.9 < took < milliseconds + 4000
            rows.see(458, holds and f"{milliseconds} ms" in late["error"], f"{late['error']}; measured: {took:.0f} ms")


class Steps(Model):
    """A model that makes these calls one after another, then answers."""

    def __init__(self, *calls):
        super().__init__(None, None, LAST_MESSAGE)
        self.calls = calls

    def decide(self, path, tools, results):
        self.requests.append({"path": path, "tools": tools, "results": results})
        if len(results) == len(self.calls):
            return None
        tool, self.arguments = self.calls[len(results)]
        return tool

    def answers(self):
        """Returns the results of all calls of each turn, in order."""
        last = [request["results"] for request in self.requests if len(request["results"]) == len(self.calls)]
        return [list(map(json.loads, results)) for results in last]


class Gateway:
    """A gateway whose model makes these calls in every turn."""

    def __init__(self, workspace, name, tools, *calls, agents=None):
        self.workspace, self.state = workspace, workspace.folder / name
        install_plugins(workspace, "--state-dir", self.state)
        servers = {"everything": everything(workspace)}
        more = {"mcpServers": servers, "approvals": {"ask": "never"}, **settings(workspace, tools)}
        self.model = Steps(*calls)
        self.address = serve(workspace, self.model.address, "openai-responses", name=name, agents=agents, **more)
        self.process = workspace.processes[-1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        end(self.process)
        self.model.__exit__()

    def turns(self, agent="openclaw"):
        """Makes every kind of turn with both SDKs. Returns what the client did, and what the model received."""
        before = len(self.model.answers())
        client = [*script(self.workspace, "python-sdks", "python_sdks.py"), self.address, TOKEN]
        seen = json.loads(self.workspace.run(*client, env=self.workspace.environment(AGENT=agent)))
        expect(all(turn["text"] == LAST_MESSAGE for turn in seen), f"the client received {seen}")
        answers = self.model.answers()[before:]
        expect(len(answers) == len(seen), f"{len(seen)} turns, and {len(answers)} times all calls were made")
        return seen, answers

    def get(self, path):
        request = urllib.request.Request(f"{self.address}{path}", headers={"Authorization": f"Bearer {TOKEN}"})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as response:
            return response.read().decode()

    def logs(self):
        """Returns the log of each session, by its id, without the first line, which is about the export."""
        sessions = [item["sessionId"] for item in json.loads(self.get("/api/v1/sessions?limit=100"))["items"]]
        export = {session: self.get(f"/api/v1/sessions/{session}/trajectory") for session in sessions}
        self.workspace.say(json.dumps(export, indent=1))
        return {session: list(map(json.loads, text.splitlines()))[1:] for session, text in export.items()}


def of_kind(entries, kind):
    return [entry for entry in entries if entry["kind"] == kind]


def recorded(control):
    """Returns the telemetry of a control call in a session's log."""
    return control["result"].get("telemetry") or control["result"]["result"]["telemetry"]


def nested_ids(control):
    """Returns the tools that were called below a control call."""
    below = [call for call in control["toolCalls"] if call["parentToolCallId"] == control["toolCallId"]]
    return [call["toolId"] for call in below]


def direct_turns(workspace, rows):
    """A gateway in direct mode. Returns the size of the smallest first request to the provider."""
    tools = {"toolSearch": False, "codeMode": False}
    with Gateway(workspace, "gateway-direct", tools, ("create_issue", MADE["input"])) as gateway:
        seen, answers = gateway.turns()
        received = calls_of_plugin(gateway.state)
        holds = all(results == [MADE] for results in answers) and len(received) == len(seen)
        rows.see(471, holds, f"in {len(seen)} turns the plugin received {len(received)} calls and returned {answers[0][0]}")
        shown = gateway.model.requests[0]["tools"]
        fields = {name: [*(tool["schema"] or {}).get("properties", {})] for name, tool in shown.items()}
        reports = [name for name in fields if name.startswith("report_") and fields[name] == ["project"]]
        holds = fields.get("create_issue") == ["title", "body"] and len(reports) == REPORTS
        rows.see(473, holds, f"the provider received {len(shown)} schemas: create_issue, {len(reports)} reports and others")
        logs = gateway.logs().values()
        alone = all(called_ids(entries) == [ISSUE_ID] and not of_kind(entries, "control_call") for entries in logs)
        rows.see(476, alone and len(logs) == len(seen), f"direct mode: {len(logs)} sessions with the call of {ISSUE_ID} alone")
        return min(len(json.dumps(body)) for body in gateway.model.bodies)


CLIENT = f"""const hits = await openclaw.tools.search("looks", {{ limit: 3 }});
const found = await openclaw.tools.describe("{LOOK_ID}");
const called = await openclaw.tools.call(found.id, {{ n: 1 }}).catch((error) => error.message);
return {{ ids: hits.map((hit) => hit.id), parameters: found.parameters, called }};"""


def code_turns(workspace, rows, direct_bytes):
    """A gateway with the code bridge: the contract's example, then a program that finds the client's tool."""
    calls = [("tool_search_code", {"code": program}) for program in (EXAMPLE, CLIENT)]
    with Gateway(workspace, "gateway-code", {"toolSearch": True}, *calls) as gateway:
        seen, answers = gateway.turns()
        received, requests = calls_of_plugin(gateway.state), gateway.model.requests
        returned = [results[0].get("value") for results in answers]
        holds = returned == [MADE] * len(seen) and len(received) == len(seen)
        rows.see(472, holds, f"in {len(seen)} turns the plugin received {len(received)} calls and returned {returned[0]}")
        shown = {name for request in requests for name in request["tools"]}
        rows.see(474, [*shown] == CODE, f"{len(requests)} requests to the provider show {shown}")
        first = [body for body, request in zip(gateway.model.bodies, requests, strict=True) if not request["results"]]
        size = max(len(json.dumps(body)) for body in first)
        rows.see(475, size * 8 < direct_bytes, f"the request has {size} bytes, in direct mode {direct_bytes}")
        logs = gateway.logs()
        rows.see(476, len(logs) == len(seen), f"Tool Search: {len(logs)} sessions")
        for entries in logs.values():
            code_log(rows, entries, len(requests[0]["tools"]))
        scopes = {call["scope"]["sessionId"] for call in received}
        rows.see(454, scopes == {*logs}, f"the plugin saw the ids of all {len(scopes)} sessions")
        for _, found in answers:
            client_tool(rows, found["value"])


def client_tool(rows, found):
    """What a program sees of the client's tool, whose call would have to wait for the client's next request."""
    rows.see([418, 424], LOOK_ID in found["ids"], f"`search` finds {found['ids']}")
    rows.see(424, found["parameters"].get("required") == ["n"], f"`describe` has the client's schema: {found['parameters']}")
    expect("toolSearch.mode" in found["called"], f"the error names no mode in which the call works: {found['called']}")


def code_log(rows, entries, shown):
    """The log of a session with the code bridge answers the contract's questions."""
    controls = of_kind(entries, "control_call")
    example = recorded(controls[0])
    counts = counts_of(example)
    rows.see([466, 476], counts == [1, 1, 1], f"search, describe and call: {counts}")
    rows.see([467, 476], nested_ids(controls[0]) == [ISSUE_ID], f"below tool_search_code: {nested_ids(controls[0])}")
    holds = len(example["visibleTools"]) == shown == 1
    rows.see(465, holds, f"the model saw {example['visibleTools']}, the catalog has {example['catalogSize']} tools")
    sources = example["sources"]
    holds = all(sources[name] > 0 for name in ("openclaw", "plugin", "mcp")) and sources["client"] == 1
    rows.see([418, 424, 435], holds, f"sources of the catalog: {sources}")


def structured_turns(workspace, rows):
    """A gateway with the structured tools and two agents, one of which may not call two of the tools."""
    targets = {LOOK_ID: {"n": 1}, SUM_ID: SUM, READ_ID: {"path": "note.txt"}}
    calls = [("tool_search", {"query": "looks"}), ("tool_describe", {"id": LOOK_ID})]
    calls += [("tool_call", {"id": tool, "args": given}) for tool, given in targets.items()]
    agents = {"reviewer": {"tools": {"deny": [SUM_ID, LOOK_ID]}}}
    with Gateway(workspace, "gateway-tools", {"toolSearch": {"mode": "tools"}}, *calls, agents=agents) as gateway:
        seen, answers = gateway.turns()
        looked = all(turn["rounds"] == [[1]] for turn in seen)
        rows.see([418, 424], looked, f"in {len(seen)} turns, `tool_call` calls the client's own tool")
        for hits, described, client, mcp, core in answers:
            results = [client.get("result"), text_of(mcp["result"]), core["result"]["text"]]
            holds = LOOK_ID in ids(hits) and described["id"] == LOOK_ID and results == ["first", ANSWER, NOTE]
            rows.see(418, holds, f"client, MCP and core tools return {results}")
        for entries in gateway.logs().values():
            structured_log(rows, entries, [*targets])
        seen, answers = gateway.turns("openclaw/reviewer")
        rows.see(435, all(turn["rounds"] == [] for turn in seen), "policy can hide the client's tool: it is not called")
        for hits, *_, client, mcp, core in answers:
            refused = [result.get("error", "") for result in (client, mcp)]
            holds = LOOK_ID not in ids(hits) and all("unknown tool" in error for error in refused)
            rows.see([421, 450], holds and core["result"]["text"] == NOTE, f"the agent `reviewer` is refused: {refused}")


def structured_log(rows, entries, expected):
    """The log of a session with the structured tools answers the contract's questions."""
    controls = of_kind(entries, "control_call")
    names = [control["toolName"] for control in controls]
    rows.see(466, [names.count(name) for name in STRUCTURED[:2]] == [1, 1], f"control calls: {names}")
    below = [tool for control in controls for tool in nested_ids(control)]
    rows.see(467, below == expected, f"below tool_call: {below}")
    selected = {tool["id"]: tool["source"] for control in controls for tool in recorded(control)["selectedTools"]}
    rows.see(468, selected == {tool: tool.split(":")[0] for tool in expected}, f"sources: {selected}")
    rows.see(465, recorded(controls[0])["visibleTools"] == STRUCTURED, f"the model saw {recorded(controls[0])['visibleTools']}")


def tool_search(workspace):
    """A check: all rows are observed."""
    rows, table = Observations(), LOGS / "client-tool-search.md"
    (workspace.work / "note.txt").write_text(NOTE)
    install_plugins(workspace)
    try:
        direct = shapes(workspace, rows)
        no_sources(workspace, rows)
        structured(workspace, rows, code_bridge(workspace, rows, direct))
        for part in (policies, approvals, unavailable, unavailable_meanwhile, without_sandbox, limits):
            part(workspace, rows)
        code_turns(workspace, rows, direct_turns(workspace, rows))
        structured_turns(workspace, rows)
    finally:
        rows.write(table)
    missing = sorted(ROWS.keys() - rows.seen.keys())
    expect(not missing, f"nothing was observed of rows {missing}")
    return f"{len(rows.seen)} rows of Tool Search seen: {os.path.relpath(table)}"
